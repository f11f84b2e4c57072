-- request.sql - a mutating request happens once
--
-- Its key (the digest of the Idempotency-Key, else the request id) is written by its own transaction.
-- Kept are the verb, a small reply or the ids a large one is rebuilt from.

-- name: request_claim
-- First statement of every mutating call. One row: go on. None: the same request was committed before
-- (request_reply says what it answered). A twin in flight is waited for.
INSERT INTO requests (owner_id, key, verb, body_hash) VALUES (:owner_id, :key, :verb, :body_hash)
ON CONFLICT (key, owner_id) DO NOTHING
RETURNING created;

-- name: request_reply
SELECT verb, body_hash, reply,
       ARRAY(SELECT generate_series(lower(r), upper(r) - 1) FROM unnest(ids) AS r) AS ids
FROM   requests
WHERE  key = :key AND owner_id = :owner_id;

-- name: request_done
-- ids is one range when the block was drawn undisturbed: 30 bytes instead of 8 KB.
UPDATE requests
SET    reply = :reply,
       ids = (SELECT range_agg(int8range(i, i, '[]')) FROM unnest(:ids::bigint[]) AS i)
WHERE  key = :key AND owner_id = :owner_id;
