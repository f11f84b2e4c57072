-- insert.sql - jobs by INSERT .. unnest, for tests and benches
--
-- The service copies rows in (services/jobs/create.sql). These blocks write the same rows, so that the rules
-- can be tried from psql and the two ways compared.

-- name: job_insert
INSERT INTO jobs (id, owner_id, site_id, app_id, last_update, state, open_parents, open_in, open_out,
                  num_nodes, ranks_per_node, node_packing_count, wall_time_min, return_code, priority)
SELECT id, :owner_id, site_id, app_id, now(), state, open_parents, open_in, open_out,
       num_nodes, ranks_per_node, node_packing_count, wall_time_min, return_code, priority
FROM   unnest(:ids::bigint[], :site_ids::bigint[], :app_ids::bigint[], :states::job_state[],
              :open_parents::int[], :open_in::int[], :open_out::int[], :num_nodes::int[], :ranks_per_node::int[],
              :node_packing_count::int[], :wall_time_min::int[], :return_code::int[], :priority::int[])
    AS new (id, site_id, app_id, state, open_parents, open_in, open_out,
            num_nodes, ranks_per_node, node_packing_count, wall_time_min, return_code, priority);

-- name: job_spec_insert
-- parent_ids travel as text ('{1,2}'): an array of arrays would have to be rectangular.
INSERT INTO job_specs (id, owner_id, app_id, threads_per_rank, threads_per_core, gpus_per_rank, workdir, parent_ids,
                       tags, parameters, data, launch_params, serialized_parameters, retry)
SELECT id, :owner_id, app_id, threads_per_rank, threads_per_core, gpus_per_rank, workdir, parent_ids::bigint[],
       tags, parameters, data, launch_params, serialized_parameters, retry
FROM   unnest(:ids::bigint[], :app_ids::bigint[], :threads_per_rank::int[], :threads_per_core::int[],
              :gpus_per_rank::float8[], :workdir::text[], :parent_ids::text[], :tags::jsonb[], :parameters::json[],
              :data::json[], :launch_params::json[], :serialized_parameters::text[], :retry::json[])
    AS new (id, app_id, threads_per_rank, threads_per_core, gpus_per_rank, workdir, parent_ids,
            tags, parameters, data, launch_params, serialized_parameters, retry);

-- name: job_first_events
WITH counted AS (
    INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
    SELECT :owner_id, site_id, app_id, state, count(*), sum(num_nodes * 1000000::bigint / node_packing_count), count(*)
    FROM   unnest(:site_ids::bigint[], :app_ids::bigint[], :states::job_state[], :num_nodes::int[],
                  :node_packing_count::int[]) AS new (site_id, app_id, state, num_nodes, node_packing_count)
    GROUP  BY site_id, app_id, state
)
INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)
SELECT nextval('event_ids'), :owner_id, id, now(), 'CREATED', state
FROM   unnest(:ids::bigint[], :states::job_state[]) AS new (id, state);
