-- orphan.sql - jobs whose parents will never finish (setting fail_orphans)

-- name: orphan_find
-- Of the next :page jobs that wait: those with a parent that has FAILED (for good: what has a retry policy goes
-- on in the statement that fails it) or is no longer there, locked. A page without orphans tells where it ended.
WITH page AS MATERIALIZED (
    SELECT id, owner_id FROM jobs
    WHERE  state = 'AWAITING_PARENTS' AND id > :after
    ORDER  BY id
    LIMIT  :page
), orphan AS MATERIALIZED (
    SELECT p.id, p.owner_id, b.parent_id, b.deleted
    FROM   page p
    JOIN   job_specs s ON s.id = p.id
    CROSS  JOIN LATERAL (
        SELECT parent.id AS parent_id, q.id IS NULL AS deleted
        FROM   unnest(s.parent_ids) AS parent (id)
        LEFT   JOIN jobs q ON q.id = parent.id
        WHERE  q.id IS NULL OR q.state = 'FAILED'
        ORDER  BY parent.id
        LIMIT  1
    ) AS b
), locked AS MATERIALIZED (
    SELECT j.id
    FROM   jobs j
    WHERE  j.id = ANY (ARRAY(SELECT id FROM orphan)) AND j.state = 'AWAITING_PARENTS'
    ORDER  BY j.id
    FOR    NO KEY UPDATE SKIP LOCKED
)
SELECT (SELECT max(id) FROM page) AS last, o.id, o.owner_id, o.parent_id, o.deleted
FROM   (SELECT) AS always
LEFT   JOIN (SELECT orphan.* FROM orphan JOIN locked USING (id)) AS o ON true
ORDER  BY o.owner_id, o.id;
