-- steps.sql - statements of test_pipeline

-- name: echo_number
SELECT :n::bigint AS n;

-- name: echo_text
SELECT :text::text AS text;

-- name: divide
SELECT 10 / :n::int AS n;

-- name: keep
INSERT INTO notes (state, expires) VALUES (:state, now());

-- name: commit_it
COMMIT;
