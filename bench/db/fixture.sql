-- fixture.sql - n runnable and d finished jobs for the benches: psql -v n=100000 -v d=0 -v sites=4 -v few=false
-- few: four shapes in runs of 500 (a campaign); otherwise 1,920 shapes scattered over the table (the worst case).
INSERT INTO users (id, username) VALUES (1, 'owner'), (2, 'other');
INSERT INTO sites (id, owner_id, name, path) SELECT g, 1, 's' || g, '/s' FROM generate_series(1, 4) g;
INSERT INTO apps (id, owner_id, site_id, name) SELECT g, 1, g, 'a' FROM generate_series(1, 4) g;
SELECT setseed(0.5) \g /dev/null
CREATE TEMP TABLE x AS
SELECT g AS id, 1 + g % :sites AS site, random() AS u, random() AS v, random() AS w FROM generate_series(1, :n + :d) g;
INSERT INTO jobs (id, owner_id, site_id, app_id, last_update, state, num_nodes, node_packing_count, wall_time_min)
SELECT id, 1, site, site, now() - random() * interval '1 day',
       CASE WHEN u < :n::float8 / (:n + :d) THEN 'PREPROCESSED' ELSE 'JOB_FINISHED' END::job_state,
       CASE WHEN :few THEN 1 ELSE (ARRAY[1, 1, 1, 1, 2, 4, 8, 16])[1 + floor(v * 8)::int] END,
       CASE WHEN :few THEN 1 + 3 * ((id / 1000) % 2) ELSE (ARRAY[1, 1, 4, 8])[1 + floor(w * 4)::int] END,
       CASE WHEN :few THEN 10 * (1 + (id / 500) % 4) ELSE floor(random() * 60)::int END
FROM   x ORDER BY id;
INSERT INTO job_specs (id, owner_id, app_id, workdir, tags, parameters, data)
SELECT id, 1, site, 'campaign/run-' || id, jsonb_build_object('experiment', 'e' || (id % 10), 'sample', 's' || (id % 1000)), '{"n": "17"}', '{"retries": 0}'
FROM   x ORDER BY id;
SELECT setval('job_ids', :n + :d) \g /dev/null
INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes)
SELECT owner_id, site_id, app_id, state, count(*), sum(num_nodes * 1000000::bigint / node_packing_count) FROM jobs GROUP BY 1, 2, 3, 4;
