-- large.sql - n waiting and d finished jobs of a centre that has lived: psql -v n=1000000 -v d=9000000 -v step=jobs, events, indexes
--
-- Seventeen tenants with twenty sites: the first has half of all jobs, a quarter at his first site, the others less and
-- less. Jobs came in requests of :batch, each of one app; the waiting ones are among the newest. Three events for
-- each that has finished, files for a tenth, recorded requests of two days. Without indexes while it grows.
SELECT :'step' = 'jobs' AS jobs, :'step' = 'events' AS events, :'step' = 'indexes' AS indexes,
       :n + :d AS total, greatest(2, least(1000, (:n + :d) / 500)) AS batch \gset
SET synchronous_commit = off;
SET maintenance_work_mem = '1GB';
SET work_mem = '256MB';

\if :jobs
CREATE TABLE later (def text);
INSERT INTO later
SELECT replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')
FROM   pg_index i JOIN pg_class c ON c.oid = i.indrelid LEFT JOIN pg_constraint o ON o.conindid = i.indexrelid
WHERE  c.relname IN ('jobs', 'job_specs', 'events', 'transfer_items') AND c.relnamespace = 'public'::regnamespace AND o.oid IS NULL;
SELECT format('DROP INDEX %s', i.indexrelid::regclass)
FROM   pg_index i JOIN pg_class c ON c.oid = i.indrelid LEFT JOIN pg_constraint o ON o.conindid = i.indexrelid
WHERE  c.relname IN ('jobs', 'job_specs', 'events', 'transfer_items') AND c.relnamespace = 'public'::regnamespace AND o.oid IS NULL \gexec

INSERT INTO users (id, username) SELECT g, 'tenant-' || g FROM generate_series(1, 17) g;
INSERT INTO sites (id, owner_id, name, path) SELECT g, greatest(1, g - 3), 's' || g, '/s' FROM generate_series(1, 20) g;
INSERT INTO apps (id, owner_id, site_id, name) SELECT g, greatest(1, g - 3), g, 'a' FROM generate_series(1, 20) g;
SELECT setval(pg_get_serial_sequence(t, 'id'), 20) FROM unnest('{users,sites,apps}'::text[]) AS t \g /dev/null

CREATE FUNCTION pg_temp.draw(what bigint, seed bigint) RETURNS float8 LANGUAGE sql IMMUTABLE
RETURN (hashint8extended(what, seed) & 16777215) / 16777216::float8;

INSERT INTO jobs (id, owner_id, site_id, app_id, batch_job_id, last_update, state, lease, attempts, open_parents, open_in, num_nodes, node_packing_count,
                  wall_time_min, return_code)
SELECT id, greatest(1, site - 3), site, site, CASE WHEN finished THEN 1 + id / :batch END,
       now() - (:total - id) * interval '100 days' / :total - v * interval '1 hour',
       CASE WHEN finished AND u < 0.03 THEN 'FAILED' WHEN finished THEN 'JOB_FINISHED' WHEN u < 0.96 OR id % :batch = 0 THEN 'PREPROCESSED'
            WHEN u < 0.97 THEN 'STAGED_IN' WHEN u < 0.98 THEN 'READY' WHEN u < 0.99 THEN 'AWAITING_PARENTS' ELSE 'RUN_DONE' END::job_state,
       finished::int, finished::int,
       (NOT finished AND id % :batch > 0 AND u >= 0.98 AND u < 0.99)::int, (NOT finished AND id % :batch > 0 AND u >= 0.97 AND u < 0.98)::int,
       (ARRAY[1, 1, 1, 1, 2, 4, 8, 16])[1 + floor(v * 8)::int], (ARRAY[1, 1, 4, 8])[1 + floor(w * 4)::int], floor(v * 480)::int % 60,
       CASE WHEN finished THEN (u < 0.03)::int END
FROM   (SELECT id, pg_temp.draw(id, 1) AS u, pg_temp.draw(id, 2) AS v, pg_temp.draw(id, 3) AS w,
               1 + width_bucket(pg_temp.draw(id / :batch, 4),
                                '{0.25,0.40,0.47,0.50,0.648,0.722,0.771,0.808,0.838,0.862,0.883,0.902,0.918,0.933,0.947,0.959,0.970,0.981,0.991}'::float8[]) AS site,
               NOT (id > :total - 2 * :n AND pg_temp.draw(id / :batch, 5) < 0.5) AS finished
        FROM   generate_series(1, :total) id) AS x;
INSERT INTO batch_jobs (id, owner_id, site_id, scheduler_id, num_nodes, wall_time_min, job_mode, state, project, queue)
SELECT batch_job_id, min(owner_id), min(site_id), batch_job_id, 8, 60, 'mpi', 'finished', 'p', 'q' FROM jobs WHERE batch_job_id IS NOT NULL GROUP BY 1;
SELECT setval(pg_get_serial_sequence('batch_jobs', 'id'), max(id)) FROM batch_jobs \g /dev/null
INSERT INTO job_specs (id, owner_id, app_id, workdir, parent_ids, tags, parameters, data)
SELECT id, owner_id, app_id, 'campaign-' || id / :batch || '/run-' || id, CASE WHEN open_parents > 0 THEN ARRAY[id - id % :batch] ELSE '{}' END,
       jsonb_build_object('experiment', 'e' || (id % 10), 'sample', 's' || (id % 1000), 'campaign', 'c' || id / :batch), '{"n": "17"}', '{"retries": 0}'
FROM   jobs;
INSERT INTO job_parents (parent_id, child_id) SELECT id - id % :batch, id FROM jobs WHERE open_parents > 0 ORDER BY 1, 2;
INSERT INTO transfer_items (owner_id, site_id, job_id, direction, state, local_path, remote_path, location_alias)
SELECT owner_id, site_id, id, 'in', CASE WHEN open_in > 0 THEN 'pending' ELSE 'done' END::transfer_state, 'in.dat', '/data/' || id, 'beamline'
FROM   jobs WHERE open_in > 0 OR id % 10 = 0;
INSERT INTO requests (owner_id, key, created, verb, ids)
SELECT 1 + g % 17, gen_random_uuid(), now() - interval '2 days' * (:total / 10 - g) / (:total / 10), 'job.create', int8multirange(int8range(g, g + 9))
FROM   generate_series(1, :total / 10) g;
SELECT setval('job_ids', :total), setval('event_ids', 3 * :total) \g /dev/null
\endif

\if :events
SELECT count(make_event_partition(g::int)) FROM generate_series(0, (3 * :total >> 24) + 1) g \g /dev/null
CREATE TEMP TABLE steps AS
SELECT * FROM (VALUES (true, 1, 'CREATED', 'STAGED_IN'), (true, 2, 'STAGED_IN', 'PREPROCESSED'), (true, 3, 'PREPROCESSED', NULL),
                      (false, 1, 'CREATED', 'STAGED_IN'), (false, 2, 'STAGED_IN', NULL)) AS s (finished, k, a, b);
INSERT INTO events (id, xid, owner_id, job_id, timestamp, from_state, to_state, data)
SELECT 3 * (id - 1) + k, (100 + (id * (pg_current_xact_id()::text::bigint - 101)) / :total)::text::xid8, owner_id, id,
       last_update - (3 - k) * interval '5 minutes', a::job_state, coalesce(b::job_state, state), CASE k WHEN 3 THEN '{"return_code": 0}' ELSE '{}' END::jsonb
FROM   jobs JOIN steps ON finished = (state IN ('JOB_FINISHED', 'FAILED'));
INSERT INTO event_marks (at, id)
SELECT now() - (2400 - h) * interval '1 hour', 3 * :total::bigint * h / 2400 FROM generate_series(1, 2399) h;
INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
SELECT owner_id, site_id, app_id, state, sum(jobs), sum(nodes), sum(events)
FROM  (SELECT owner_id, site_id, app_id, state, count(*) AS jobs, sum(num_nodes * 1000000::bigint / node_packing_count) AS nodes, 0 AS events
       FROM   jobs GROUP BY 1, 2, 3, 4
       UNION  ALL
       SELECT owner_id, site_id, app_id, coalesce(b::job_state, state), 0, 0, count(*)
       FROM   jobs JOIN steps ON finished = (state IN ('JOB_FINISHED', 'FAILED')) GROUP BY 1, 2, 3, 4) AS c
GROUP  BY 1, 2, 3, 4;
\endif

\if :indexes
SELECT def FROM later \gexec
DROP TABLE later;
\endif
