-- tx.sql - statements of the bench itself

-- name: begin
BEGIN;

-- name: commit
COMMIT;

-- name: pool_ids
SELECT array_agg(id) AS ids
FROM   (SELECT id FROM jobs WHERE state <> 'AWAITING_PARENTS' AND id % :clients = :no ORDER BY id DESC LIMIT :n) AS few;

-- name: open_session
INSERT INTO sessions (owner_id, site_id) VALUES (1, :site_id) RETURNING id;

-- name: give_back
UPDATE jobs SET session_id = NULL WHERE session_id = :session_id;
