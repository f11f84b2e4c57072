-- batch.sql - batch jobs (pilots): the launchers' allocations

-- name: batch_create
-- No row: no such site, or not yours.
INSERT INTO batch_jobs (owner_id, site_id, num_nodes, wall_time_min, job_mode, project, queue, filter_tags,
                        optional_params, partitions)
SELECT :owner_id, site.id, :num_nodes, :wall_time_min, :job_mode::batch_mode, :project, :queue, :filter_tags::jsonb,
       :optional_params::json, :partitions::json
FROM   sites site
WHERE  site.id = :site_id AND site.owner_id = :owner_id
RETURNING id, site_id, scheduler_id, num_nodes, wall_time_min, job_mode, state, project, queue, start_time, end_time,
          filter_tags, optional_params, partitions, status_info;

-- name: batch_read
SELECT id, site_id, scheduler_id, num_nodes, wall_time_min, job_mode, state, project, queue, start_time, end_time,
       filter_tags, optional_params, partitions, status_info
FROM   batch_jobs
WHERE  id = ANY (:ids::bigint[]) AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site)
ORDER  BY id;

-- name: batch_lock
SELECT id
FROM   batch_jobs
WHERE  id = ANY (:ids::bigint[]) AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site)
ORDER  BY id
FOR    NO KEY UPDATE;

-- name: batch_update
-- n at once, each with its own keys. NULL: key not sent; the three that may become null have flags. What is to be
-- deleted stays so until it is finished, but its other fields change.
WITH stored AS (
    UPDATE batch_jobs b
    SET    state        = CASE WHEN w.state IS NULL THEN b.state
                               WHEN b.state = 'pending_deletion' AND w.state <> 'finished' THEN b.state
                               ELSE w.state END,
           scheduler_id = CASE WHEN w.set_scheduler_id THEN w.scheduler_id ELSE b.scheduler_id END,
           status_info  = coalesce(w.status_info, b.status_info),
           start_time   = CASE WHEN w.set_start_time THEN w.start_time ELSE b.start_time END,
           end_time     = CASE WHEN w.set_end_time THEN w.end_time ELSE b.end_time END
    FROM   unnest(:ids::bigint[], :states::batch_state[], :status_infos::json[],
                  :set_scheduler_id::boolean[], :scheduler_ids::bigint[], :set_start_time::boolean[],
                  :start_times::timestamptz[], :set_end_time::boolean[], :end_times::timestamptz[])
        AS w (id, state, status_info, set_scheduler_id, scheduler_id, set_start_time, start_time, set_end_time, end_time)
    WHERE  b.id = w.id AND b.owner_id = :owner_id
    RETURNING b.id, b.site_id, b.scheduler_id, b.num_nodes, b.wall_time_min, b.job_mode, b.state, b.project, b.queue,
              b.start_time, b.end_time, b.filter_tags, b.optional_params, b.partitions, b.status_info
)
SELECT * FROM stored ORDER BY id;

-- name: batch_delete
-- Sessions forget it by foreign key, before (lock order) batch_forget tells the jobs.
DELETE FROM batch_jobs
WHERE  id = :batch_id AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site)
RETURNING id;

-- name: batch_many
-- More jobs than one batch_forget takes?
SELECT count(*) > 1000 AS many
FROM  (SELECT FROM jobs WHERE batch_job_id = :batch_id AND owner_id = :owner_id LIMIT 1001) AS j;

-- name: batch_forget
-- A thousand of its jobs, any, but locked in the usual order.
WITH part AS MATERIALIZED (
    SELECT id FROM jobs WHERE batch_job_id = :batch_id AND owner_id = :owner_id LIMIT 1000
), held AS MATERIALIZED (
    SELECT j.id
    FROM   (SELECT id FROM part ORDER BY id OFFSET 0) AS s
    JOIN   jobs j ON j.id = s.id
    WHERE  j.batch_job_id = :batch_id
    ORDER  BY j.id
    FOR    NO KEY UPDATE OF j
), gone AS (
    UPDATE jobs j SET batch_job_id = NULL FROM held h WHERE j.id = h.id
)
SELECT count(*) AS found FROM part;
