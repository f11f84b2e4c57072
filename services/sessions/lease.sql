-- lease.sql - which session may run which job
--
-- lease_touch first; then one lease_* statement. Which one: by states and sort_by.
--   states within {PREPROCESSED, RESTART_READY}                lease_small_first or lease_long_first
--   states within {STAGED_IN, RUN_DONE, RUN_ERROR, RUN_TIMEOUT}  lease_to_process
--   any other mixture                                          lease_any
-- The state lists are literal: a partial index is only used when the text itself implies its predicate.
-- "No limit" is spelled max_nodes = max_wall_time = 2147483647, budget = 'Infinity', app_ids = '{}'.
-- A job with a not_before waits for its next attempt (lifecycle.sql) and stands in none of the queues.
-- The queue's index must be read in its order, and no further than is taken. So what an index could be chosen for
-- instead, or what would make the planner expect one row, stands inside CASE, of which it believes that it is true for
-- half of the rows; and its role has no bitmap scans (roles.sql), whose plan reads and sorts the whole queue:
-- 210 ms instead of 0.4 with a million jobs of several tenants. lease_tagged_find, which has to have one, is preceded by
-- lease_bitmaps.
-- LIMIT 2048 inside is the planner's only hint of size (a generic plan takes LIMIT $n for a tenth of the
-- table); rows are still locked one by one and only until :max_jobs are found.

-- Tags: the three lease_* blocks test them too (by a scalar subquery: an EXISTS is turned into a hash of every
-- job that has the tag), which is right but walks the whole queue when few match. With filter_tags the caller
-- runs lease_tagged_walk (at most 4096 candidates) and, only if that came back short AND walked = 4096,
-- lease_tagged_find (starts from the tag index) for what is still wanted of max_jobs and budget. Both stand here
-- for small_first and (_long) for long_first; lease_to_process and lease_any test tags themselves.
-- last_update is shown as it was before, as the contract has it.

-- name: lease_touch
-- No row: expired or not yours. The row lock keeps the sweeper away until COMMIT.
UPDATE sessions SET heartbeat = now()
WHERE  id = :session_id AND owner_id = :owner_id AND ended IS NULL
RETURNING site_id, batch_job_id, heartbeat;

-- name: lease_small_first
WITH ready AS MATERIALIZED (
    SELECT * FROM (
        SELECT j.id, j.priority, j.num_nodes, j.node_packing_count, j.wall_time_min, j.last_update
        FROM   jobs j
        WHERE  j.site_id = :site_id
          AND  j.session_id IS NULL AND j.not_before IS NULL AND j.state IN ('PREPROCESSED', 'RESTART_READY')
          AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
          AND  CASE WHEN j.owner_id = :owner_id AND j.state = ANY (:states::job_state[])
                         AND (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
                         AND (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
                         AND (:tags::jsonb = '{}' OR (SELECT s.tags FROM job_specs s WHERE s.id = j.id) @> :tags)
                    THEN true ELSE false END
        ORDER  BY j.priority DESC, j.num_nodes, j.node_packing_count DESC, j.wall_time_min DESC, j.id
        LIMIT  2048
        FOR NO KEY UPDATE OF j SKIP LOCKED) AS queue
    LIMIT :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY priority DESC, num_nodes, node_packing_count DESC, wall_time_min DESC, id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT t.*, s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   taken t JOIN job_specs s ON s.id = t.id
ORDER  BY t.place;

-- name: lease_long_first
WITH ready AS MATERIALIZED (
    SELECT * FROM (
        SELECT j.id, j.priority, j.num_nodes, j.node_packing_count, j.wall_time_min, j.last_update
        FROM   jobs j
        WHERE  j.site_id = :site_id
          AND  j.session_id IS NULL AND j.not_before IS NULL AND j.state IN ('PREPROCESSED', 'RESTART_READY')
          AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
          AND  CASE WHEN j.owner_id = :owner_id AND j.state = ANY (:states::job_state[])
                         AND (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
                         AND (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
                         AND (:tags::jsonb = '{}' OR (SELECT s.tags FROM job_specs s WHERE s.id = j.id) @> :tags)
                    THEN true ELSE false END
        ORDER  BY j.priority DESC, j.wall_time_min DESC, j.num_nodes DESC, j.node_packing_count DESC, j.id
        LIMIT  2048
        FOR NO KEY UPDATE OF j SKIP LOCKED) AS queue
    LIMIT :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY priority DESC, wall_time_min DESC, num_nodes DESC, node_packing_count DESC, id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT t.*, s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   taken t JOIN job_specs s ON s.id = t.id
ORDER  BY t.place;

-- name: lease_to_process
WITH ready AS MATERIALIZED (
    SELECT * FROM (
        SELECT j.id, j.num_nodes, j.node_packing_count, j.last_update
        FROM   jobs j
        WHERE  j.site_id = :site_id
          AND  j.session_id IS NULL AND j.state IN ('STAGED_IN', 'RUN_DONE', 'RUN_ERROR', 'RUN_TIMEOUT')
          AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
          AND  CASE WHEN j.owner_id = :owner_id AND j.state = ANY (:states::job_state[])
                         AND (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
                         AND (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
                         AND (:tags::jsonb = '{}' OR (SELECT s.tags FROM job_specs s WHERE s.id = j.id) @> :tags)
                    THEN true ELSE false END
        ORDER  BY j.id
        LIMIT  2048
        FOR NO KEY UPDATE OF j SKIP LOCKED) AS queue
    LIMIT :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT t.*, s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   taken t JOIN job_specs s ON s.id = t.id
ORDER  BY t.place;

-- name: lease_any
-- No partial index fits: filters the rows of (owner, state). Rare, and as slow as those states are full. Ordered by an
-- expression, or the primary key would be walked, with everybody's jobs.
WITH ready AS MATERIALIZED (
    SELECT * FROM (
        SELECT j.id, j.num_nodes, j.node_packing_count, j.last_update
        FROM   jobs j
        WHERE  j.site_id = :site_id AND j.owner_id = :owner_id
          AND  j.session_id IS NULL AND j.not_before IS NULL
          AND  j.state = ANY (:states::job_state[])
          AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
          AND  (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
          AND  (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
          AND  (:tags::jsonb = '{}' OR (SELECT s.tags FROM job_specs s WHERE s.id = j.id) @> :tags)
        ORDER  BY j.id + 0
        LIMIT  2048
        FOR NO KEY UPDATE OF j SKIP LOCKED) AS queue
    LIMIT :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT t.*, s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   taken t JOIN job_specs s ON s.id = t.id
ORDER  BY t.place;

-- The LATERALs with OFFSET 0 or a lock of their own are fences: one look-up by primary key for each candidate, in
-- their order, until there are enough. As plain joins a plan made while the tables had no statistics took an index
-- scan of the whole queue for each candidate (2 s and 5 s with 5,000 jobs; now 6 ms and 1 ms). For the same reason they
-- do not name the states: the text must imply the primary key only.

-- name: lease_tagged_walk
WITH walk AS MATERIALIZED (
    SELECT j.id
    FROM   jobs j
    WHERE  j.site_id = :site_id
      AND  j.session_id IS NULL AND j.not_before IS NULL AND j.state IN ('PREPROCESSED', 'RESTART_READY')
      AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
      AND  CASE WHEN j.owner_id = :owner_id AND j.state = ANY (:states::job_state[])
                     AND (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
                     AND (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
                THEN true ELSE false END
    ORDER  BY j.priority DESC, j.num_nodes, j.node_packing_count DESC, j.wall_time_min DESC, j.id
    LIMIT  4096
), ready AS MATERIALIZED (
    SELECT j.*
    FROM   walk w
    CROSS  JOIN LATERAL (SELECT s.id, s.tags FROM job_specs s WHERE s.id = w.id OFFSET 0) AS s
    CROSS  JOIN LATERAL (
        SELECT k.id, k.priority, k.num_nodes, k.node_packing_count, k.wall_time_min, k.last_update
        FROM   jobs k
        WHERE  k.id = CASE WHEN s.tags @> :tags::jsonb THEN s.id END
          AND  k.site_id = :site_id AND k.session_id IS NULL AND k.not_before IS NULL AND k.state = ANY (:states)
        FOR NO KEY UPDATE SKIP LOCKED) AS j
    LIMIT  :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY priority DESC, num_nodes, node_packing_count DESC, wall_time_min DESC, id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT (SELECT count(*) FROM walk) AS walked, (SELECT count(*) FROM ready) AS candidates, t.*,
       s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   (VALUES (1)) AS always
LEFT   JOIN (taken t JOIN job_specs s ON s.id = t.id) ON true
ORDER  BY t.place;

-- name: lease_bitmaps
-- Until COMMIT.
SELECT set_config('enable_bitmapscan', 'on', true);

-- name: lease_tagged_find
WITH tagged AS MATERIALIZED (
    SELECT id FROM job_specs WHERE owner_id = :owner_id AND tags @> :tags::jsonb
), found AS MATERIALIZED (
    SELECT j.id
    FROM   tagged t
    CROSS  JOIN LATERAL (SELECT * FROM jobs k WHERE k.id = t.id OFFSET 0) AS j
    WHERE  j.site_id = :site_id
      AND  j.session_id IS NULL AND j.not_before IS NULL AND j.state IN ('PREPROCESSED', 'RESTART_READY')
      AND  j.state = ANY (:states::job_state[])
      AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
      AND  (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
      AND  (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
    ORDER  BY j.priority DESC, j.num_nodes, j.node_packing_count DESC, j.wall_time_min DESC, j.id
    LIMIT  4096
), ready AS MATERIALIZED (
    SELECT j.*
    FROM   found w
    CROSS  JOIN LATERAL (
        SELECT k.id, k.priority, k.num_nodes, k.node_packing_count, k.wall_time_min, k.last_update
        FROM   jobs k
        WHERE  k.id = w.id
          AND  k.site_id = :site_id AND k.session_id IS NULL AND k.not_before IS NULL AND k.state = ANY (:states)
        FOR NO KEY UPDATE SKIP LOCKED) AS j
    LIMIT  :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY priority DESC, num_nodes, node_packing_count DESC, wall_time_min DESC, id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT t.*, s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   taken t JOIN job_specs s ON s.id = t.id
ORDER  BY t.place;

-- name: lease_tagged_walk_long
WITH walk AS MATERIALIZED (
    SELECT j.id
    FROM   jobs j
    WHERE  j.site_id = :site_id
      AND  j.session_id IS NULL AND j.not_before IS NULL AND j.state IN ('PREPROCESSED', 'RESTART_READY')
      AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
      AND  CASE WHEN j.owner_id = :owner_id AND j.state = ANY (:states::job_state[])
                     AND (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
                     AND (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
                THEN true ELSE false END
    ORDER  BY j.priority DESC, j.wall_time_min DESC, j.num_nodes DESC, j.node_packing_count DESC, j.id
    LIMIT  4096
), ready AS MATERIALIZED (
    SELECT j.*
    FROM   walk w
    CROSS  JOIN LATERAL (SELECT s.id, s.tags FROM job_specs s WHERE s.id = w.id OFFSET 0) AS s
    CROSS  JOIN LATERAL (
        SELECT k.id, k.priority, k.num_nodes, k.node_packing_count, k.wall_time_min, k.last_update
        FROM   jobs k
        WHERE  k.id = CASE WHEN s.tags @> :tags::jsonb THEN s.id END
          AND  k.site_id = :site_id AND k.session_id IS NULL AND k.not_before IS NULL AND k.state = ANY (:states)
        FOR NO KEY UPDATE SKIP LOCKED) AS j
    LIMIT  :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY priority DESC, wall_time_min DESC, num_nodes DESC, node_packing_count DESC, id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT (SELECT count(*) FROM walk) AS walked, (SELECT count(*) FROM ready) AS candidates, t.*,
       s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   (VALUES (1)) AS always
LEFT   JOIN (taken t JOIN job_specs s ON s.id = t.id) ON true
ORDER  BY t.place;

-- name: lease_tagged_find_long
WITH tagged AS MATERIALIZED (
    SELECT id FROM job_specs WHERE owner_id = :owner_id AND tags @> :tags::jsonb
), found AS MATERIALIZED (
    SELECT j.id
    FROM   tagged t
    CROSS  JOIN LATERAL (SELECT * FROM jobs k WHERE k.id = t.id OFFSET 0) AS j
    WHERE  j.site_id = :site_id
      AND  j.session_id IS NULL AND j.not_before IS NULL AND j.state IN ('PREPROCESSED', 'RESTART_READY')
      AND  j.state = ANY (:states::job_state[])
      AND  j.num_nodes <= :max_nodes AND j.wall_time_min <= :max_wall_time
      AND  (j.ranks_per_node = 1 AND j.num_nodes = 1 OR NOT :serial_only)
      AND  (:app_ids::bigint[] = '{}' OR j.app_id = ANY (:app_ids))
    ORDER  BY j.priority DESC, j.wall_time_min DESC, j.num_nodes DESC, j.node_packing_count DESC, j.id
    LIMIT  4096
), ready AS MATERIALIZED (
    SELECT j.*
    FROM   found w
    CROSS  JOIN LATERAL (
        SELECT k.id, k.priority, k.num_nodes, k.node_packing_count, k.wall_time_min, k.last_update
        FROM   jobs k
        WHERE  k.id = w.id
          AND  k.site_id = :site_id AND k.session_id IS NULL AND k.not_before IS NULL AND k.state = ANY (:states)
        FOR NO KEY UPDATE SKIP LOCKED) AS j
    LIMIT  :max_jobs
), fits AS (
    SELECT id, last_update, sum(num_nodes::float8 / node_packing_count) OVER place AS used, row_number() OVER place AS place
    FROM   ready
    WINDOW place AS (ORDER BY priority DESC, wall_time_min DESC, num_nodes DESC, node_packing_count DESC, id)
), taken AS (
    UPDATE jobs j
    SET    session_id = :session_id, batch_job_id = coalesce(:batch_job_id, j.batch_job_id),
           lease = j.lease + 1, last_update = now()
    FROM   fits f
    WHERE  j.id = f.id AND f.used <= :budget::float8
    RETURNING j.id, j.app_id, j.session_id, j.batch_job_id, f.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
              j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts,
              j.cancel, f.place
)
SELECT t.*, s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   taken t JOIN job_specs s ON s.id = t.id
ORDER  BY t.place;

-- name: lease_again
-- The same request once more (its reply was lost): what it took and what the session still holds, in the same order.
SELECT j.id, j.app_id, j.session_id, j.batch_job_id, j.last_update, j.state, j.lease, j.num_nodes, j.ranks_per_node,
       j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.attempts, j.cancel,
       s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.workdir, s.parent_ids, s.tags, s.parameters, s.data,
       s.launch_params, s.retry, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   jobs j JOIN job_specs s ON s.id = j.id
WHERE  j.id = ANY (:ids::bigint[]) AND j.owner_id = :owner_id AND j.session_id = :session_id
ORDER  BY CASE WHEN :sort::text <> 'by_id' THEN -j.priority END,
          CASE :sort WHEN 'small_first' THEN j.num_nodes WHEN 'long_first' THEN -j.wall_time_min END,
          CASE :sort WHEN 'small_first' THEN -j.node_packing_count WHEN 'long_first' THEN -j.num_nodes END,
          CASE :sort WHEN 'small_first' THEN -j.wall_time_min WHEN 'long_first' THEN -j.node_packing_count END,
          j.id;
