-- site.sql - sites

-- name: site_create
INSERT INTO sites (owner_id, name, path, globus_endpoint_id, backfill_windows, queued_jobs, optional_batch_job_params,
                   allowed_projects, allowed_queues, transfer_locations)
VALUES (:owner_id, :name, :path, :globus_endpoint_id::uuid, :backfill_windows::json, :queued_jobs::json,
        :optional_batch_job_params::json, :allowed_projects::json, :allowed_queues::json, :transfer_locations::jsonb)
RETURNING id, name, path, globus_endpoint_id, backfill_windows, queued_jobs, optional_batch_job_params,
          allowed_projects, allowed_queues, transfer_locations, last_refresh, creation_date;

-- name: site_read
SELECT id, name, path, globus_endpoint_id, backfill_windows, queued_jobs, optional_batch_job_params,
       allowed_projects, allowed_queues, transfer_locations, last_refresh, creation_date
FROM   sites
WHERE  id = :site_id AND owner_id = :owner_id AND (:token_site::bigint = 0 OR id = :token_site);

-- name: site_update
-- NULL: key not sent. Any PUT, even an empty one, is a sign of life: last_refresh always grows.
UPDATE sites
SET    name                      = coalesce(:name, name),
       path                      = coalesce(:path, path),
       globus_endpoint_id        = CASE WHEN :set_globus_endpoint_id THEN :globus_endpoint_id::uuid
                                        ELSE globus_endpoint_id END,
       backfill_windows          = coalesce(:backfill_windows::json, backfill_windows),
       queued_jobs               = coalesce(:queued_jobs::json, queued_jobs),
       optional_batch_job_params = coalesce(:optional_batch_job_params::json, optional_batch_job_params),
       allowed_projects          = coalesce(:allowed_projects::json, allowed_projects),
       allowed_queues            = coalesce(:allowed_queues::json, allowed_queues),
       transfer_locations        = coalesce(:transfer_locations::jsonb, transfer_locations),
       last_refresh              = greatest(clock_timestamp(), last_refresh + interval '1 microsecond')
WHERE  id = :site_id AND owner_id = :owner_id AND (:token_site::bigint = 0 OR id = :token_site)
RETURNING id, name, path, globus_endpoint_id, backfill_windows, queued_jobs, optional_batch_job_params,
          allowed_projects, allowed_queues, transfer_locations, last_refresh, creation_date;

-- name: site_lock
-- DELETE, first statement: from here no app, session or batch job can be added to the site.
SELECT id
FROM   sites
WHERE  id = :site_id AND owner_id = :owner_id AND (:token_site::bigint = 0 OR id = :token_site)
FOR    UPDATE;

-- name: site_sessions_lock
-- Before the jobs: the order of locks is sessions, jobs, items. They go with the site, when no job is theirs any more.
SELECT id FROM sessions WHERE site_id = :site_id ORDER BY id FOR UPDATE;

-- name: site_apps_lock
SELECT id FROM apps WHERE site_id = :site_id ORDER BY id FOR UPDATE;

-- name: site_delete
-- Its apps, batch jobs and sessions go by foreign key.
DELETE FROM sites WHERE id = :site_id;

-- name: site_batch_jobs
SELECT state, count(*) AS count, sum(num_nodes) AS nodes
FROM   batch_jobs
WHERE  site_id = :site_id AND owner_id = :owner_id
  AND  state IN ('pending_submission', 'queued', 'running', 'pending_deletion')
GROUP  BY state
ORDER  BY state;
