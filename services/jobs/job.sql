-- job.sql - reading jobs, and what update, delete and cancel look at before common/lifecycle does the work

-- name: job_read
SELECT j.id, j.app_id, j.session_id, j.batch_job_id, j.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
       j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts, j.cancel,
       s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   jobs j
JOIN   job_specs s ON s.id = j.id
WHERE  j.id = ANY (:ids::bigint[]) AND j.owner_id = :owner_id AND (:token_site::bigint = 0 OR j.site_id = :token_site)
ORDER  BY j.id;

-- name: job_absent
-- Which of the ids are not there, not yours, or not of the token's site.
SELECT w.id
FROM   unnest(:ids::bigint[]) AS w (id)
WHERE  NOT EXISTS (SELECT FROM jobs j
                   WHERE j.id = w.id AND j.owner_id = :owner_id AND (:token_site::bigint = 0 OR j.site_id = :token_site))
ORDER  BY w.id;

-- name: job_batch_jobs
-- Jobs keep no foreign key: the batch jobs named must be there, and stay until COMMIT.
SELECT id FROM batch_jobs
WHERE  id = ANY (:batch_ids::bigint[]) AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site)
ORDER  BY id
FOR    KEY SHARE;

-- name: job_lock
SELECT id
FROM   jobs
WHERE  id = :job_id AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site)
FOR    UPDATE;

-- name: cancel_lock
-- The jobs named and their children in one order, as job_step locks them (a job that is cancelled may be
-- somebody's parent). Then which of them end at once and whose launchers have to be asked.
WITH concerned AS (
    SELECT w.id FROM unnest(:ids::bigint[]) AS w (id)
    UNION
    SELECT p.child_id FROM unnest(:ids::bigint[]) AS w (id) JOIN job_parents p ON p.parent_id = w.id
), locked AS MATERIALIZED (
    SELECT j.id, j.state
    FROM   concerned c JOIN jobs j ON j.id = c.id AND j.owner_id = :owner_id
    ORDER  BY j.id
    FOR    NO KEY UPDATE OF j
)
SELECT l.id, l.state = 'RUNNING' AS running
FROM   locked l JOIN unnest(:ids::bigint[]) AS w (id) ON w.id = l.id
WHERE  l.state NOT IN ('JOB_FINISHED', 'FAILED')
ORDER  BY l.id;

-- name: cancel_request
UPDATE jobs SET cancel = true, last_update = now() WHERE id = ANY (:ids::bigint[]) AND owner_id = :owner_id;

-- name: where_lock
-- PUT /jobs/?filters: the matches and their children in one order; the filters are then tried again on what is
-- locked, for a job may have moved on since it was found.
WITH concerned AS (
    SELECT w.id FROM unnest(:ids::bigint[]) AS w (id)
    UNION
    SELECT p.child_id FROM unnest(:ids::bigint[]) AS w (id) JOIN job_parents p ON p.parent_id = w.id
)
SELECT count(*) AS locked
FROM  (SELECT j.id
       FROM   concerned c JOIN jobs j ON j.id = c.id AND j.owner_id = :owner_id
       ORDER  BY j.id
       FOR    NO KEY UPDATE OF j) AS l;

-- name: job_newest
SELECT coalesce(max(id), 0) AS id FROM job_specs WHERE owner_id = :owner_id;

-- name: delete_lock
-- DELETE /jobs/?filters: the same, but what is held or just being changed is left alone.
SELECT id
FROM   jobs
WHERE  id = ANY (:ids::bigint[]) AND owner_id = :owner_id AND session_id IS NULL
ORDER  BY id
FOR    UPDATE SKIP LOCKED;
