-- sweep.sql - ending what is over: sessions, old request ids; room for events
--
-- session_end itself is in common/lifecycle.

-- name: session_clock
-- The sweeper, first of all: what time it is here. A heartbeat from the future is from before the clock was set
-- back: it counts from now, or its session would outlive its launcher by the whole jump.
WITH early AS (UPDATE sessions SET heartbeat = now() WHERE heartbeat > now() + :ttl::interval RETURNING id)
SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms, (SELECT count(*) FROM early) AS early;

-- name: session_stale
-- The sweeper, first statement: sessions that are over, whoever owns them. A session that is acquiring
-- right now is locked by its own touch, thus alive, thus skipped. by_age: false while heartbeats could not have come.
SELECT s.id, s.owner_id
FROM   sessions s
WHERE  :by_age::boolean AND s.heartbeat <= now() - :ttl::interval
   OR  s.ended IS NOT NULL
   OR  EXISTS (SELECT FROM batch_jobs b WHERE b.id = s.batch_job_id AND b.state = 'finished')
ORDER  BY s.id
LIMIT  :batch
FOR UPDATE OF s SKIP LOCKED;

-- name: session_lock
-- DELETE /sessions/{id}, first statement. going: a piece of it was done before.
SELECT id, site_id FROM sessions
WHERE  id = :session_id AND owner_id = :owner_id AND (ended IS NULL OR :going::boolean)
FOR    UPDATE;

-- name: request_expire
-- Housekeeping, in pieces, by the one sweeper.
DELETE FROM requests
WHERE  ctid = ANY (ARRAY(SELECT ctid FROM requests WHERE created < now() - :keep::interval ORDER BY created LIMIT :batch));

-- name: event_room
-- Partitions of events are made before they are needed, and the hours are marked.
SELECT event_room() AS made;

-- name: event_forget
-- A piece of the events that are older than event_keep.
SELECT gone, more FROM event_forget(:keep::interval, :batch);

-- name: event_drop
-- Then the partition that has become empty.
SELECT event_drop() AS nth;
