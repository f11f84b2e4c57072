-- explain.sql - GET /jobs/{id}/explain: what keeps a job from running
--
-- One statement for each thing that can, sent only when the job's state makes it a candidate.

-- name: explain_job
SELECT j.state, j.site_id, j.cancel, j.attempts, j.open_parents, j.num_nodes, j.ranks_per_node, j.wall_time_min,
       extract(epoch FROM j.not_before - now())::float8 AS wait_sec,
       (s.retry->>'max_attempts')::bigint AS max_attempts,
       site.name AS site_name,
       extract(epoch FROM now() - greatest(site.last_refresh,
           (SELECT max(p.heartbeat) FROM sessions p WHERE p.site_id = j.site_id AND p.batch_job_id IS NULL)))::float8 AS silent_sec,
       j.session_id, held.batch_job_id AS held_in, extract(epoch FROM now() - held.heartbeat)::float8 AS held_sec,
       last.data->>'message' AS message, coalesce(last.data->>'reason', last.data->>'error', last.data->>'exception') AS more
FROM   jobs j
JOIN   job_specs s ON s.id = j.id
JOIN   sites site ON site.id = j.site_id
LEFT   JOIN sessions held ON held.id = j.session_id
LEFT   JOIN LATERAL (SELECT e.data FROM events e WHERE e.job_id = j.id ORDER BY e.id DESC LIMIT 1) AS last ON true
WHERE  j.id = :id AND j.owner_id = :owner_id AND (:token_site::bigint = 0 OR j.site_id = :token_site);

-- name: explain_parents
-- state NULL: the parent is gone.
SELECT p.id, j.state
FROM   (SELECT DISTINCT unnest(s.parent_ids) AS id FROM job_specs s WHERE s.id = :id) AS p
LEFT   JOIN jobs j ON j.id = p.id AND j.owner_id = :owner_id
WHERE  j.state IS DISTINCT FROM 'JOB_FINISHED'
ORDER  BY p.id
LIMIT  1000;

-- name: explain_items
SELECT id, state, transfer_info->>'error' AS error, extract(epoch FROM not_before - now())::float8 AS wait_sec
FROM   transfer_items
WHERE  job_id = :id AND direction = :direction::transfer_direction AND state <> 'done'
ORDER  BY id
LIMIT  1000;

-- name: explain_queues
-- Does any queue of the site give so many nodes for so long? most_*: the most that one gives. No row of a site that
-- has not told its queues.
SELECT max((q.value->>'max_nodes')::bigint) AS most_nodes, max((q.value->>'max_walltime')::bigint) AS most_minutes,
       bool_or((q.value->>'max_nodes')::bigint >= :num_nodes::bigint
               AND (q.value->>'max_walltime')::bigint >= :wall_time_min::bigint) AS fits
FROM   sites site, json_each(site.allowed_queues) AS q
WHERE  site.id = :site_id
HAVING count(*) > 0;

-- name: explain_allocations
-- The batch jobs there are, and whether one of the launchers in each would take the job: its tags, nodes, mode and
-- the minutes that are left. A batch job with partitions has a launcher for each.
SELECT b.id, b.state, bool_or(s.tags @> part.filter_tags) AS tags,
       bool_or(s.tags @> part.filter_tags AND part.num_nodes >= :num_nodes::bigint
               AND (part.job_mode <> 'serial' OR :serial::boolean)) AS nodes,
       left_min >= :wall_time_min::bigint AS minutes
FROM   batch_jobs b
JOIN   job_specs s ON s.id = :id
CROSS  JOIN LATERAL (
       SELECT CASE WHEN b.state = 'running' AND b.start_time IS NOT NULL
                   THEN b.wall_time_min - floor(extract(epoch FROM now() - b.start_time) / 60)
                   ELSE b.wall_time_min END AS left_min) AS t
CROSS  JOIN LATERAL (
       SELECT b.num_nodes::bigint AS num_nodes, b.job_mode::text AS job_mode, b.filter_tags
       WHERE  b.partitions IS NULL OR json_array_length(b.partitions) = 0
       UNION  ALL
       SELECT (p.value->>'num_nodes')::bigint, p.value->>'job_mode', coalesce(p.value->'filter_tags', '{}')::jsonb
       FROM   json_array_elements(b.partitions) AS p) AS part
WHERE  b.site_id = :site_id AND b.owner_id = :owner_id AND b.state IN ('pending_submission', 'queued', 'running')
GROUP  BY b.id, b.state, left_min
ORDER  BY b.id
LIMIT  1000;

-- name: explain_place
-- How many come before it, if it is among the first 1000 of the queue.
SELECT place - 1 AS ahead
FROM  (SELECT id, row_number() OVER (ORDER BY priority DESC, num_nodes, node_packing_count DESC, wall_time_min DESC, id) AS place
       FROM  (SELECT id, priority, num_nodes, node_packing_count, wall_time_min
              FROM   jobs
              WHERE  site_id = :site_id AND session_id IS NULL AND not_before IS NULL
                AND  state IN ('PREPROCESSED', 'RESTART_READY')
              ORDER  BY priority DESC, num_nodes, node_packing_count DESC, wall_time_min DESC, id
              LIMIT  1000) AS head) AS queue
WHERE  id = :id;

-- name: explain_quota
SELECT coalesce((SELECT u.max_jobs FROM users_public u WHERE u.id = :owner_id), :max_jobs)::bigint AS most,
       coalesce(sum(jobs), 0)::bigint AS used
FROM   job_counts
WHERE  owner_id = :owner_id AND state NOT IN ('JOB_FINISHED', 'FAILED');
