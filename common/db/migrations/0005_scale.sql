-- 0005_scale.sql - events that are kept for a time, sessions that end in pieces, request ids found by their age
--
-- Services of the version before go on meanwhile and afterwards: nothing that they use goes. Changing calls wait
-- while the index on requests is built (about a second for each million of request ids that are kept).

-- A session that is over and still has jobs to give back: nobody's any more, and the sweeper's until it holds none.
ALTER TABLE sessions ADD COLUMN ended timestamptz;

-- A BRIN index cannot say which rows are old once their pages have been used again: it would be read whole each time.
CREATE INDEX requests_age ON requests (created);
DROP INDEX requests_created;

-- ---------------------------------------------------------------- room for events

-- Attached, not created in place: that would wait for all readers of all events, and everybody behind it.
CREATE OR REPLACE FUNCTION make_event_partition(nth int) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF to_regclass(format('events_%s', nth)) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE events_%s (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                    WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = 20000)', nth);
    EXECUTE format('ALTER TABLE events ATTACH PARTITION events_%1$s FOR VALUES FROM (%2$s) TO (%3$s)',
                   nth, nth::bigint << 24, (nth + 1)::bigint << 24);
END $$;

-- When which ids had been drawn, by the server's clock: an event's own time is its client's.
CREATE TABLE event_marks (
    at timestamptz PRIMARY KEY,
    id bigint NOT NULL                           -- all events up to this one are older than `at`
);
INSERT INTO event_marks (at, id) SELECT clock_timestamp(), coalesce(pg_sequence_last_value('event_ids'), 0);

-- The partition in use and the one behind it, and a mark an hour. How many partitions were made.
CREATE FUNCTION event_room() RETURNS int LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    last bigint := coalesce(pg_sequence_last_value('event_ids'), 0);
    made int := 0;
BEGIN
    INSERT INTO event_marks (at, id)
    SELECT clock_timestamp(), last
    WHERE  NOT EXISTS (SELECT FROM event_marks WHERE at > now() - interval '1 hour' OR id = last)
    ON CONFLICT (at) DO NOTHING;
    FOR nth IN (last >> 24)::int .. (last >> 24)::int + 1 LOOP
        IF to_regclass(format('events_%s', nth)) IS NULL THEN
            PERFORM make_event_partition(nth);
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END $$;

-- ---------------------------------------------------------------- events that are old enough

CREATE TABLE event_low (low bigint NOT NULL);    -- one row: no event below it is there
INSERT INTO event_low (low) VALUES (0);

-- The last event of each owner that was forgotten: whoever asks from a cursor before it has missed something.
CREATE TABLE event_floors (
    owner_id bigint PRIMARY KEY,
    xid      xid8 NOT NULL,
    id       bigint NOT NULL
);

-- A piece: at most `batch` ids from the low end, of those that are older than `age` (an hour at least). The counts
-- go down with the rows. What somebody else is deleting, and what belongs to an app that is just moving or going, is
-- left for the next time, so nothing here waits. more: the next piece can be done at once. Jobs are looked up one
-- by one behind a fence (OFFSET 0): joined, they would all be read for each piece.
CREATE FUNCTION event_forget(age interval, batch int, OUT gone bigint, OUT more boolean) LANGUAGE plpgsql
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
        EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id >= $1 AND id < $2)', part) INTO stays USING bottom, top;
    END IF;
    IF NOT stays THEN
        UPDATE event_low SET low = top;
        DELETE FROM event_marks WHERE id < top - 1;
        more := top < due;
    END IF;
END $$;

-- A partition that lies below the low end goes. Which one; NULL: none, or somebody reads just now (next time).
CREATE FUNCTION event_drop() RETURNS int LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '200ms' SET enable_seqscan = off AS $$
DECLARE
    first int;
    low   bigint;
    full_ boolean;
BEGIN
    SELECT min(substr(c.relname, 8)::int) INTO first
    FROM   pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE  i.inhparent = 'events'::regclass AND c.relname ~ '^events_[0-9]{1,9}$';
    SELECT l.low INTO STRICT low FROM event_low l FOR UPDATE;
    IF first IS NULL OR (first + 1)::bigint << 24 > low THEN
        RETURN NULL;
    END IF;
    -- By an index: the rows that were deleted may still lie in the table.
    EXECUTE format('SELECT EXISTS (SELECT FROM events_%s ORDER BY job_id LIMIT 1)', first) INTO full_;
    IF full_ THEN
        UPDATE event_low l SET low = first::bigint << 24;
        RETURN NULL;
    END IF;
    EXECUTE format('DROP TABLE events_%s', first);
    RETURN first;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION event_room(), event_forget(interval, int), event_drop() FROM PUBLIC;
