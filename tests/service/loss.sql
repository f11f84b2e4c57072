-- loss.sql - statements of test_db_loss

-- name: touch
UPDATE notes SET expires = now() WHERE state = :state RETURNING *;

-- name: nap
SELECT pg_sleep(:seconds) IS NULL;

-- name: backend
SELECT pg_backend_pid();
