-- copies.sql - statements of test_copy

-- name: jobs_in
COPY jobs (id, owner_id, site_id, app_id, last_update, state, num_nodes, cancel, return_code)
FROM STDIN (FORMAT binary);

-- name: specs_in
COPY job_specs (id, owner_id, app_id, gpus_per_rank, workdir, parent_ids, tags, data)
FROM STDIN (FORMAT binary);
