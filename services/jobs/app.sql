-- app.sql - apps of a site

-- name: app_create
-- No row: no such site, or not yours.
INSERT INTO apps (owner_id, site_id, name, description, parameters, transfers, serialized_class, source_code)
SELECT :owner_id, site.id, :name, :description, :parameters::json, :transfers::json, :serialized_class, :source_code
FROM   sites site
WHERE  site.id = :site_id AND site.owner_id = :owner_id
RETURNING id, site_id, name, description, parameters, transfers, serialized_class, source_code;

-- name: app_read
SELECT id, site_id, name, description, parameters, transfers, serialized_class, source_code
FROM   apps
WHERE  id = :app_id AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site);

-- name: app_lock
-- Waits for creates that hold it FOR SHARE, and keeps new ones out.
SELECT id, site_id
FROM   apps
WHERE  id = :app_id AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site)
FOR    UPDATE;

-- name: app_site
SELECT id FROM sites WHERE id = :site_id AND owner_id = :owner_id FOR KEY SHARE;

-- name: app_update
-- NULL: key not sent.
UPDATE apps
SET    site_id          = coalesce(:site_id, site_id),
       name             = coalesce(:name, name),
       description      = coalesce(:description, description),
       parameters       = coalesce(:parameters::json, parameters),
       transfers        = coalesce(:transfers::json, transfers),
       serialized_class = coalesce(:serialized_class, serialized_class),
       source_code      = coalesce(:source_code, source_code)
WHERE  id = :app_id AND owner_id = :owner_id
RETURNING id, site_id, name, description, parameters, transfers, serialized_class, source_code;

-- name: app_jobs_lock
-- An app that moves takes its jobs along. First their locks, in the usual order; the next statement then sees
-- every count that was written while we waited.
SELECT count(*) AS locked
FROM  (SELECT j.id
       FROM   (SELECT id FROM job_specs WHERE app_id = :app_id AND owner_id = :owner_id ORDER BY id OFFSET 0) AS s
       JOIN   jobs j ON j.id = s.id
       ORDER  BY j.id
       FOR    NO KEY UPDATE OF j) AS l;

-- name: app_move
WITH moved AS (
    UPDATE jobs j
    SET    site_id = :site_id
    FROM   job_specs s
    WHERE  s.app_id = :app_id AND s.owner_id = :owner_id AND j.id = s.id
    RETURNING j.id
), items AS (
    UPDATE transfer_items t SET site_id = :site_id FROM moved m WHERE t.job_id = m.id
)
INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
SELECT :owner_id, side.site_id, :app_id, c.state, side.sign * c.jobs, side.sign * c.nodes, side.sign * c.events
FROM   (SELECT site_id, state, sum(jobs)::bigint AS jobs, sum(nodes)::bigint AS nodes, sum(events)::bigint AS events
        FROM   job_counts
        WHERE  owner_id = :owner_id AND app_id = :app_id AND site_id <> :site_id
        GROUP  BY site_id, state) AS c,
LATERAL (VALUES (c.site_id, -1), (:site_id, 1)) AS side (site_id, sign);

-- name: app_jobs_delete
-- As job_delete, but of a whole app: held ones too, none skipped. A thousand at a time, until it deletes none. :after
-- keeps it from walking over what was deleted just before.
WITH doomed AS MATERIALIZED (
    SELECT j.id, j.site_id, j.app_id, j.state, j.num_nodes * 1000000::bigint / j.node_packing_count AS nodes
    FROM   (SELECT id FROM job_specs WHERE app_id = :app_id AND owner_id = :owner_id AND id > :after ORDER BY id LIMIT 1000) AS s
    JOIN   jobs j ON j.id = s.id
    ORDER  BY j.id
    FOR    UPDATE OF j
), gone AS (
    DELETE FROM jobs WHERE id IN (SELECT id FROM doomed)
), specs AS (
    DELETE FROM job_specs WHERE id IN (SELECT id FROM doomed) RETURNING id, parent_ids
), edges AS (
    DELETE FROM job_parents p USING specs s, unnest(s.parent_ids) AS parent (id)
    WHERE  p.parent_id = parent.id AND p.child_id = s.id
), items AS (
    DELETE FROM transfer_items WHERE job_id IN (SELECT id FROM doomed)
), log AS (
    DELETE FROM events WHERE job_id IN (SELECT id FROM doomed) RETURNING job_id, to_state
), counted AS (
    INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
    SELECT :owner_id, site_id, app_id, state, -sum(j), -sum(n), -sum(e)
    FROM  (SELECT site_id, app_id, state, 1 AS j, nodes AS n, 0 AS e FROM doomed
           UNION ALL
           SELECT d.site_id, d.app_id, l.to_state, 0, 0, 1 FROM log l JOIN doomed d ON d.id = l.job_id) AS d
    GROUP  BY site_id, app_id, state
)
SELECT count(*) AS deleted, max(id) AS last FROM doomed;

-- name: app_delete
DELETE FROM apps WHERE id = :app_id AND owner_id = :owner_id;
