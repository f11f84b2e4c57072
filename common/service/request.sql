-- request.sql - transactions, and exactly once: a mutating call leaves its key in its own transaction
--
-- The key is the digest of the Idempotency-Key, else the request id. Kept are the verb, a small reply or the
-- ids a large one is rebuilt from.

-- name: tx_limits
-- What is left of the caller's deadline, in ms: no statement works for somebody who has gone. And the trace, for
-- pg_stat_activity and for %a in log_line_prefix: prepared statements have no room for a comment; BEGIN has one.
SELECT set_config('statement_timeout', :statement_ms::text, true), set_config('lock_timeout', :lock_ms::text, true),
       set_config('application_name', :application::text, true);

-- name: call_name
SELECT set_config('application_name', :application::text, false);

-- name: tx_commit
COMMIT;

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

-- name: timer_lock
-- One replica at a time, until the end of the transaction: a frozen holder is ended by
-- idle_in_transaction_session_timeout, so no timer of the deployment stops with it.
SELECT pg_try_advisory_xact_lock(:class::int, hashtext(:lock_name)) AS held;

-- name: list_planner
-- A list has one shape for each set of filters: planned for its values, and free to read a whole table. But not to
-- merge two tables by id: for a tenant whose first job is a late one that reads everybody's jobs before it.
SELECT set_config('plan_cache_mode', 'auto', true), set_config('enable_seqscan', 'on', true),
       set_config('cursor_tuple_fraction', '1', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_bitmapscan', 'on', true);

-- name: list_planner_back
-- As the role has it.
SELECT set_config(name, reset_val, true)
FROM   pg_settings
WHERE  name IN ('plan_cache_mode', 'enable_seqscan', 'cursor_tuple_fraction', 'enable_mergejoin',
                'enable_bitmapscan');
