-- 0009_recent.sql - lists of jobs by the time of their last change, and of events by rare states
--
-- Changing calls wait while the indexes are built: about a second for each million of jobs, and a fifth of that for each
-- million of events. They may be built before, without a pause (docs/operations.md): then they are taken as they are.

-- GET /jobs/?ordering=last_update, and what changed since: read from an end of the index. No change of a job was in
-- place before either.
CREATE INDEX IF NOT EXISTS jobs_recent ON jobs (owner_id, last_update, id);

-- GET /events/?to_state=FAILED: a walk along the time meets each of the common states soon, and these perhaps never.
CREATE INDEX IF NOT EXISTS events_rare ON events (owner_id, to_state, timestamp, id)
    WHERE to_state IN ('AWAITING_PARENTS', 'CREATED', 'FAILED', 'READY', 'RESTART_READY', 'RUN_ERROR', 'RUN_TIMEOUT', 'STAGED_OUT');

-- As it was, but for the last question: EXISTS chose the index with the quickest first row, and read all of it when there was
-- none (450 of 480 ms in a full partition). What is counted is found by the numbers of the piece.
CREATE OR REPLACE FUNCTION event_forget(age interval, batch int, OUT gone bigint, OUT more boolean) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp SET enable_bitmapscan = on AS $$
DECLARE
    due    bigint;                               -- all below it is old
    bottom bigint;
    top    bigint;                               -- of this piece
    part   regclass;
    held   bigint[];                             -- apps that cannot move until we commit
    stays  boolean := false;
BEGIN
    gone := 0;
    more := false;
    SELECT max(m.id) + 1 INTO due FROM event_marks m WHERE m.at < now() - greatest(age, interval '1 hour');
    SELECT l.low INTO STRICT bottom FROM event_low l FOR UPDATE;
    IF due IS NULL OR bottom >= due THEN
        RETURN;
    END IF;
    part := to_regclass(format('events_%s', bottom >> 24));
    top := least(due, ((bottom >> 24) + 1) << 24);
    IF part IS NOT NULL THEN
        top := least(top, bottom + least(greatest(batch, 1), 100000));
        EXECUTE format($sql$
            SELECT array_agg(id)
            FROM  (SELECT a.id
                   FROM   apps a
                   WHERE  a.id = ANY (ARRAY(
                              SELECT DISTINCT j.app_id
                              FROM   %s e
                              CROSS  JOIN LATERAL (SELECT x.app_id FROM jobs x WHERE x.id = e.job_id OFFSET 0) AS j
                              WHERE  e.id >= $1 AND e.id < $2))
                   FOR    SHARE SKIP LOCKED) AS a $sql$, part) INTO held USING bottom, top;
        EXECUTE format($sql$
            WITH doomed AS MATERIALIZED (
                SELECT e.ctid, j.site_id, j.app_id
                FROM   %1$s e
                LEFT   JOIN LATERAL (SELECT x.site_id, x.app_id FROM jobs x WHERE x.id = e.job_id OFFSET 0) AS j ON true
                WHERE  e.id >= $1 AND e.id < $2 AND (j.app_id IS NULL OR j.app_id = ANY ($3))
                FOR    UPDATE OF e SKIP LOCKED
            ), dead AS (
                DELETE FROM %1$s WHERE ctid = ANY (ARRAY(SELECT ctid FROM doomed))
                RETURNING ctid, id, xid, owner_id, to_state
            ), counted AS (
                INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
                SELECT d.owner_id, w.site_id, w.app_id, d.to_state, 0, 0, -count(*)
                FROM   dead d JOIN doomed w ON w.ctid = d.ctid
                WHERE  w.app_id IS NOT NULL
                GROUP  BY d.owner_id, w.site_id, w.app_id, d.to_state
            ), floors AS (
                INSERT INTO event_floors AS f (owner_id, xid, id)
                SELECT DISTINCT ON (owner_id) owner_id, xid, id FROM dead ORDER BY owner_id, xid DESC, id DESC
                ON CONFLICT (owner_id) DO UPDATE SET xid = EXCLUDED.xid, id = EXCLUDED.id
                WHERE (EXCLUDED.xid, EXCLUDED.id) > (f.xid, f.id)
            )
            SELECT count(*) FROM dead $sql$, part) INTO gone USING bottom, top, held;
        EXECUTE format('SELECT count(*) > 0 FROM %s WHERE id >= $1 AND id < $2', part) INTO stays USING bottom, top;
    END IF;
    IF NOT stays THEN
        UPDATE event_low SET low = top;
        DELETE FROM event_marks WHERE id < top - 1;
        more := top < due;
    END IF;
END $$;
