-- create.sql - POST /jobs/: n jobs in one transaction, the same number of statements for any n
--
-- Order: job_ids, create_apps, create_parents (one pipeline); the service then checks slots,
-- aliases and workdirs and works out each job's first state; then the rows.
-- Ids come before rows: the reply is built from the request, in its order, without reading anything back.
-- Rows go in by COPY (job_copy, job_spec_copy, event_copy, then job_counts_add), which is as fast for one job as
-- INSERT .. unnest and a third faster for a thousand.

-- name: job_ids
-- n ids in ascending order (not always one block: other calls draw at the same time), and the time of this call.
SELECT array_agg(id) AS ids, now() AS created
FROM   (SELECT nextval('job_ids') AS id FROM generate_series(1, :n::int)) AS block;

-- name: event_ids
-- The same for their first events, when these are copied in.
SELECT array_agg(id) AS ids FROM (SELECT nextval('event_ids') AS id FROM generate_series(1, :n::int)) AS block;

-- name: job_copy
COPY jobs (id, owner_id, site_id, app_id, last_update, state, open_parents, open_in, open_out,
           num_nodes, ranks_per_node, node_packing_count, wall_time_min, return_code, priority) FROM STDIN (FORMAT binary);

-- name: job_spec_copy
COPY job_specs (id, owner_id, app_id, threads_per_rank, threads_per_core, gpus_per_rank, workdir, parent_ids,
                tags, parameters, data, launch_params, serialized_parameters, retry) FROM STDIN (FORMAT binary);

-- name: event_copy
COPY events (id, owner_id, job_id, timestamp, from_state, to_state) FROM STDIN (FORMAT binary);

-- name: job_counts_add
-- One row per (site, app, state) of the call; as many events as jobs, for each has its first.
INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
SELECT :owner_id, site_id, app_id, state, count(*), sum(nodes), count(*)
FROM   unnest(:site_ids::bigint[], :app_ids::bigint[], :states::job_state[], :nodes::bigint[])
    AS c (site_id, app_id, state, nodes)
GROUP  BY site_id, app_id, state;

-- name: create_apps
-- One lock per app instead of one foreign key check per job: the app cannot vanish or move before COMMIT.
SELECT app.id, app.site_id, app.transfers, site.transfer_locations
FROM   apps app
JOIN   sites site ON site.id = app.site_id
WHERE  app.id = ANY (:app_ids::bigint[]) AND app.owner_id = :owner_id
ORDER  BY app.id
FOR SHARE OF app;

-- name: create_parents
-- SHARE waits for whoever is finishing a parent just now; whoever comes later finds our edges.
SELECT id, site_id, state = 'JOB_FINISHED' AS finished
FROM   jobs
WHERE  id = ANY (:parent_ids::bigint[]) AND owner_id = :owner_id
ORDER  BY id
FOR SHARE;

-- name: job_edges
-- Only sent when some job has parents.
INSERT INTO job_parents (parent_id, child_id)
SELECT * FROM unnest(:parents::bigint[], :children::bigint[]);

-- name: job_items
-- Only sent when some job has transfers.
INSERT INTO transfer_items (owner_id, site_id, job_id, direction, state, recursive, local_path, remote_path, location_alias)
SELECT :owner_id, site_id, job_id, direction,
       CASE direction WHEN 'in' THEN 'pending' ELSE 'awaiting_job' END::transfer_state,
       recursive::boolean, local_path, remote_path, location_alias
FROM   unnest(:site_ids::bigint[], :job_ids::bigint[], :directions::transfer_direction[], :recursive::boolean[],
              :local_paths::text[], :remote_paths::text[], :location_aliases::text[])
    AS new (site_id, job_id, direction, recursive, local_path, remote_path, location_alias);
