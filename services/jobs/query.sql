-- query.sql - reading jobs: lists and totals
--
-- A list is built from the filters that are present (the descriptors know the columns); the blocks here
-- are the shapes that matter for speed. Every list has two statements: the page, and, only when the page
-- cannot tell the total itself (offset > 0 or the page came back full), the count.

-- name: job_page
-- Default order. job_specs drives, so a tenant's own ids are walked and nothing else; the page is cut before
-- the hot rows are fetched. :ids etc. = '{}' means no filter.
SELECT j.id, j.owner_id, j.site_id, j.app_id, j.session_id, j.batch_job_id, j.last_update, j.state, j.num_nodes, j.ranks_per_node,
       j.node_packing_count, j.wall_time_min, j.return_code, j.pending_file_cleanup, j.priority, j.lease, j.attempts, j.cancel, s.workdir, s.tags, s.data, s.parameters, s.parent_ids,
       s.launch_params, s.retry, s.threads_per_rank, s.threads_per_core, s.gpus_per_rank, s.serialized_parameters, s.serialized_return_value, s.serialized_exception
FROM   job_specs s
JOIN   jobs j ON j.id = s.id
WHERE  s.owner_id = :owner_id
ORDER  BY s.id
LIMIT  :limit OFFSET :offset;

-- name: job_page_by_tags
SELECT j.id, j.state, j.last_update, s.workdir, s.tags, s.data
FROM   job_specs s
JOIN   jobs j ON j.id = s.id
WHERE  s.owner_id = :owner_id AND s.tags @> :tags::jsonb
ORDER  BY s.id
LIMIT  :limit OFFSET :offset;

-- name: job_page_by_state
SELECT j.id, j.state, j.last_update, s.workdir, s.tags, s.data
FROM  (SELECT * FROM jobs
       WHERE owner_id = :owner_id AND state = ANY (:states::job_state[])
       ORDER BY id LIMIT :limit OFFSET :offset) AS j
JOIN   job_specs s ON s.id = j.id
ORDER  BY j.id;

-- name: job_page_newest
-- ordering=-last_update: no index (it would cost every update); a top-n heap over the tenant's hot rows.
SELECT j.id, j.state, j.last_update, s.workdir, s.tags, s.data
FROM  (SELECT * FROM jobs WHERE owner_id = :owner_id
       ORDER BY last_update DESC, id LIMIT :limit OFFSET :offset) AS j
JOIN   job_specs s ON s.id = j.id
ORDER  BY j.last_update DESC, j.id;

-- name: job_total_scan
-- What it replaces, and what every other filter needs (tags, workdir, times): a real count.
SELECT count(*) FROM jobs WHERE owner_id = :owner_id AND state = ANY (:states::job_state[]);

-- name: job_total_tags
SELECT count(*) FROM job_specs WHERE owner_id = :owner_id AND tags @> :tags::jsonb;
