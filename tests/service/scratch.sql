-- scratch.sql - what the handlers of test_skeleton.c do

-- name: scratch_add
INSERT INTO scratch (owner_id, note) VALUES (:owner_id, :task_id) RETURNING id;

-- name: scratch_count
SELECT count(*) AS n FROM scratch;

-- name: scratch_conflict
SELECT scratch_fail(:state::text);

-- name: scratch_kill
SELECT pg_terminate_backend(pg_backend_pid());

-- name: scratch_wait
SELECT pg_sleep(20);
