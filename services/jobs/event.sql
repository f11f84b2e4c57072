-- event.sql - the log of changes of state, as a stream (lists are built from their filters)

-- name: event_tail_start
-- The cursor of a subscriber that has none: whatever is written from now on.
SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid;

-- name: event_tail
-- Everything of one owner after the cursor that no running transaction can still slip under. Rows that a filter
-- does not want are handed out too (wanted = false), so that the cursor moves on over them.
WITH page AS MATERIALIZED (
    SELECT xid, id, job_id, timestamp, from_state, to_state, data
    FROM   events
    WHERE  owner_id = :owner_id
      AND  (xid, id) > (:xid::xid8, :id::bigint)
      AND  xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER  BY xid, id
    LIMIT  :limit
)
SELECT p.xid::text || '-' || p.id AS cursor, p.xid, p.id, p.job_id, p.timestamp, p.from_state, p.to_state, p.data,
       j.site_id, j.app_id, s.tags,
       (:site_ids::bigint[] = '{}' OR coalesce(j.site_id = ANY (:site_ids), false))
       AND (:app_ids::bigint[] = '{}' OR coalesce(j.app_id = ANY (:app_ids), false))
       AND (:job_ids::bigint[] = '{}' OR p.job_id = ANY (:job_ids))
       AND (:states::job_state[] = '{}' OR p.to_state = ANY (:states))
       AND (:tags::jsonb = '{}' OR coalesce(s.tags @> :tags, false)) AS wanted
FROM   page p
LEFT   JOIN jobs j ON j.id = p.job_id
LEFT   JOIN job_specs s ON s.id = p.job_id
ORDER  BY p.xid, p.id;
