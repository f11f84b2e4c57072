-- sweep.sql - ending what is over: sessions, old request ids; room for events
--
-- session_end itself is in common/lifecycle.

-- name: session_stale
-- The sweeper, first statement: sessions that are over, whoever owns them. A session that is acquiring
-- right now is locked by its own touch, thus alive, thus skipped. by_age: false while heartbeats could not have come.
SELECT s.id, s.owner_id
FROM   sessions s
WHERE  :by_age::boolean AND s.heartbeat <= now() - :ttl::interval
   OR  EXISTS (SELECT FROM batch_jobs b WHERE b.id = s.batch_job_id AND b.state = 'finished')
ORDER  BY s.id
LIMIT  :batch
FOR UPDATE OF s SKIP LOCKED;

-- name: session_lock
-- DELETE /sessions/{id}, first statement.
SELECT id, site_id FROM sessions WHERE id = :session_id AND owner_id = :owner_id FOR UPDATE;

-- name: request_expire
-- Housekeeping, in pieces, by the one sweeper.
DELETE FROM requests
WHERE  ctid = ANY (ARRAY(SELECT ctid FROM requests WHERE created < now() - :keep::interval LIMIT :batch));

-- name: event_partition
-- Half of the newest partition in use is taken: make the next one. No row on nearly every tick.
SELECT n + 1 AS made, make_event_partition(n + 1)
FROM   (SELECT (last >> 24)::int AS n, last >> 23 AS half
        FROM (SELECT coalesce(pg_sequence_last_value('event_ids'), 1) AS last) AS seq) AS used
WHERE  half % 2 = 1 AND to_regclass(format('events_%s', n + 1)) IS NULL;
