-- event.sql - reading events: the tail behind a cursor, lists, totals
--
-- A list is built from the filters that are present; the blocks here are the shapes that matter for speed.

-- name: event_tail
-- Everything of one owner after the cursor that no running transaction can still slip under.
SELECT xid, id, job_id, timestamp, from_state, to_state, data
FROM   events
WHERE  owner_id = :owner_id
  AND  (xid, id) > (:xid::xid8, :id::bigint)
  AND  xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER  BY xid, id
LIMIT  :limit;

-- name: event_tail_start
-- The cursor of a subscriber that has none.
SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid, 0::bigint AS id;

-- name: event_page
-- GET /events/: newest first, ties by id.
SELECT id, job_id, timestamp, from_state, to_state, data
FROM   events
WHERE  owner_id = :owner_id
ORDER  BY timestamp DESC, id
LIMIT  :limit OFFSET :offset;

-- name: event_page_of_jobs
-- job_id filter
SELECT id, job_id, timestamp, from_state, to_state, data
FROM   events
WHERE  owner_id = :owner_id AND job_id = ANY (:job_ids::bigint[])
ORDER  BY timestamp DESC, id
LIMIT  :limit OFFSET :offset;

-- name: event_page_by_tags
-- A scalar subquery: the walk from the newest event stops at the limit. (EXISTS becomes a hash of every job that has the tag.)
SELECT e.id, e.job_id, e.timestamp, e.from_state, e.to_state, e.data
FROM   events e
WHERE  e.owner_id = :owner_id
  AND  (SELECT s.tags FROM job_specs s WHERE s.id = e.job_id) @> :tags::jsonb
ORDER  BY e.timestamp DESC, e.id
LIMIT  :limit OFFSET :offset;

-- name: event_total_scan
SELECT count(*) FROM events WHERE owner_id = :owner_id;

-- name: event_total_tags
-- From the jobs that have the tags to their events.
SELECT count(*)
FROM   job_specs s
JOIN   events e ON e.job_id = s.id AND e.owner_id = :owner_id
WHERE  s.owner_id = :owner_id AND s.tags @> :tags::jsonb;
