-- event.sql - the log of changes of state, as a stream (lists are built from their filters)

-- name: event_floor
-- Behind it all events of the owner are there.
SELECT xid, id FROM event_floors WHERE owner_id = :owner_id;

-- name: event_moved
-- Owners with events behind their places, also such that an open transaction holds back: event_tail says so.
SELECT o.owner_id
FROM   unnest(:owners::bigint[], :xids::bigint[], :places::bigint[]) AS o (owner_id, xid, id)
WHERE  EXISTS (SELECT FROM events e WHERE e.owner_id = o.owner_id AND (e.xid, e.id) > (o.xid::text::xid8, o.id));

-- name: event_tail
-- Everything of one owner after the cursor that no running transaction can still slip under: what is below `head`.
-- Without a cursor (xid NULL) the page is empty and begins at head: whatever is written from now on. Rows that a
-- filter does not want are handed out too (wanted = false), so that the cursor moves on over them. At most :limit
-- rows, and no further one once :bytes of data are full: `n` tells how many there were. There is always a row; in an
-- empty page its id is null. held: committed rows wait for an older transaction to end. lost: events behind the
-- cursor are forgotten (event_keep).
WITH page AS MATERIALIZED (
    SELECT xid, id, job_id, timestamp, from_state, to_state, data
    FROM   events
    WHERE  owner_id = :owner_id
      AND  (xid, id) > (coalesce(:xid::xid8, pg_snapshot_xmin(pg_current_snapshot())), :id::bigint)
      AND  xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER  BY xid, id
    LIMIT  :limit
), sized AS (
    SELECT *, sum(octet_length(data::text)) OVER (ORDER BY xid, id ROWS UNBOUNDED PRECEDING) - octet_length(data::text) AS before
    FROM   page
), now AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS head, (SELECT count(*) FROM page) AS n,
           EXISTS (SELECT FROM events WHERE owner_id = :owner_id AND xid >= pg_snapshot_xmin(pg_current_snapshot())) AS held,
           EXISTS (SELECT FROM event_floors f
                   WHERE f.owner_id = :owner_id AND (f.xid, f.id) > (:xid, :id)) AS lost
)
SELECT now.head, now.n, now.held, now.lost,
       p.xid::text || '-' || p.id AS cursor, p.xid, p.id, p.job_id, p.timestamp, p.from_state, p.to_state, p.data,
       j.site_id, j.app_id, s.tags,
       (:site_ids::bigint[] = '{}' OR coalesce(j.site_id = ANY (:site_ids), false))
       AND (:app_ids::bigint[] = '{}' OR coalesce(j.app_id = ANY (:app_ids), false))
       AND (:job_ids::bigint[] = '{}' OR p.job_id = ANY (:job_ids))
       AND (:states::job_state[] = '{}' OR p.to_state = ANY (:states))
       AND (:tags::jsonb = '{}' OR coalesce(s.tags @> :tags, false)) AS wanted
FROM   now
LEFT   JOIN sized p ON p.before < :bytes
LEFT   JOIN jobs j ON j.id = p.job_id
LEFT   JOIN job_specs s ON s.id = p.job_id
ORDER  BY p.xid, p.id;
