-- tx.sql - statements of the bench itself

-- name: begin
BEGIN;

-- name: commit
COMMIT;

-- name: pool_ids
SELECT array_agg(id) AS ids
FROM   (SELECT id FROM jobs WHERE owner_id = 1 AND state <> 'AWAITING_PARENTS' AND id % :clients = :no ORDER BY id DESC LIMIT :n) AS few;

-- name: open_session
INSERT INTO sessions (owner_id, site_id) VALUES (1, :site_id) RETURNING id;

-- name: give_back
UPDATE jobs SET session_id = NULL WHERE session_id = :session_id;

-- name: hold
-- Running jobs of a session that was silent for long.
WITH silent AS (
    UPDATE sessions SET heartbeat = now() - interval '1 day' WHERE id = :session_id
), few AS (
    SELECT id FROM jobs
    WHERE  site_id = 1 AND session_id IS NULL AND not_before IS NULL AND state IN ('PREPROCESSED', 'RESTART_READY')
    ORDER  BY priority DESC, num_nodes, node_packing_count DESC, wall_time_min DESC, id
    LIMIT  :n
)
UPDATE jobs j SET session_id = :session_id, state = 'RUNNING' FROM few WHERE j.id = few.id;

-- name: oldest
SELECT coalesce(array_agg(id), '{}') AS ids
FROM   (SELECT id FROM jobs WHERE owner_id = 1 AND state = 'JOB_FINISHED' ORDER BY state, id LIMIT :n) AS few;
