-- admin.sql - signing keys, users, roles, the audit log

-- name: admin_users
SELECT u.id, u.username, u.created, u.password_hash IS NOT NULL AS password, u.disabled IS NOT NULL AS disabled,
       EXISTS (SELECT FROM identities i WHERE i.user_id = u.id) AS provider, u.max_jobs, u.max_sites,
       (SELECT count(*) FROM sites s WHERE s.owner_id = u.id) AS sites,
       (SELECT coalesce(sum(c.jobs), 0) FROM job_counts c WHERE c.owner_id = u.id) AS jobs
FROM   users u
ORDER  BY u.id;

-- name: admin_user_limit
-- -1: as it was; NULL: the services' setting; 0: no limit.
UPDATE users
SET    max_jobs  = CASE WHEN :max_jobs::int = -1 THEN max_jobs ELSE :max_jobs END,
       max_sites = CASE WHEN :max_sites::int = -1 THEN max_sites ELSE :max_sites END
WHERE  username = :username
RETURNING id, max_jobs, max_sites;

-- name: admin_user_id
SELECT id FROM users WHERE username = :username;

-- name: admin_user_add
INSERT INTO users (username, password_hash) VALUES (:username, :password_hash)
ON CONFLICT (username) DO NOTHING
RETURNING id;

-- name: admin_user_password
-- Two seconds, because auth may just be signing what it has checked; who logs in meanwhile gets a token from then on.
UPDATE users
SET    password_hash = :password_hash, tokens_from = date_trunc('second', clock_timestamp()) + interval '2 seconds'
WHERE  username = :username
RETURNING id;

-- name: admin_user_disable
UPDATE users SET disabled = coalesce(disabled, now()) WHERE username = :username RETURNING id;

-- name: admin_user_enable
UPDATE users
SET    disabled = NULL, tokens_from = date_trunc('second', clock_timestamp()) + interval '2 seconds'
WHERE  username = :username
RETURNING id;

-- name: admin_tokens_end
-- What logged in, or everything: sites and scripts too.
DELETE FROM tokens WHERE owner_id = :user_id AND (:all OR (name = 'login' AND scope = 'user'));

-- name: admin_user_lock
SELECT id FROM users WHERE id = :user_id FOR UPDATE;

-- name: admin_sites_lock
SELECT id FROM sites WHERE owner_id = :user_id ORDER BY id FOR UPDATE;

-- name: admin_sessions_delete
-- Before the jobs: the order of locks is sessions, jobs, items.
DELETE FROM sessions WHERE owner_id = :user_id;

-- name: admin_apps_lock
SELECT id FROM apps WHERE owner_id = :user_id ORDER BY id FOR UPDATE;

-- name: admin_user_jobs_delete
-- As app_jobs_delete of services/jobs, but of a whole user. A piece at a time, until it deletes none.
WITH doomed AS MATERIALIZED (
    SELECT j.id, j.site_id, j.app_id, j.state, j.num_nodes * 1000000::bigint / j.node_packing_count AS nodes
    FROM   (SELECT id FROM job_specs WHERE owner_id = :user_id ORDER BY id LIMIT 1000) AS s
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
    SELECT :user_id, site_id, app_id, state, -sum(j), -sum(n), -sum(e)
    FROM  (SELECT site_id, app_id, state, 1 AS j, nodes AS n, 0 AS e FROM doomed
           UNION ALL
           SELECT d.site_id, d.app_id, l.to_state, 0, 0, 1 FROM log l JOIN doomed d ON d.id = l.job_id) AS d
    GROUP  BY site_id, app_id, state
)
SELECT count(*) AS deleted FROM doomed;

-- name: admin_user_delete
-- Sites with their apps and batch jobs, tokens and log-ins go by foreign key.
DELETE FROM users WHERE id = :user_id;

-- name: admin_audit_add
INSERT INTO audit (user_id, actor, action, outcome, peer, detail)
VALUES (:audit_user, :actor, :action, 'ok', :peer, :detail);

-- name: admin_audit
-- The last ones, oldest first.
SELECT * FROM (
    SELECT a.id, a.at, a.user_id, coalesce(u.username, CASE WHEN a.user_id IS NULL THEN '' ELSE '#' || a.user_id END) AS username,
           a.actor, a.action, a.outcome, a.peer, a.request, a.detail
    FROM   audit a
    LEFT   JOIN users u ON u.id = a.user_id
    WHERE  (:age::text IS NULL OR a.at > now() - :age::interval)
      AND  (:username::text IS NULL OR u.username = :username OR a.actor = :username)
      AND  (NOT :failed OR a.outcome = 'failed')
    ORDER  BY a.id DESC
    LIMIT  :most
) AS last
ORDER  BY id;

-- name: admin_keys
-- `signs` as key_active of services/auth.
SELECT kid, created, retired,
       kid = (SELECT kid FROM signing_keys WHERE retired IS NULL OR retired > now()
              ORDER BY created > now() - interval '15 seconds', CASE WHEN created > now() - interval '15 seconds' THEN created END,
                       created DESC, kid
              LIMIT 1) AS signs
FROM   signing_keys
ORDER  BY created DESC, kid;

-- name: admin_key_lock
-- The same lock as auth's, which makes the first key.
SELECT pg_advisory_xact_lock(hashtext('abies signing key'));

-- name: admin_key_add
INSERT INTO signing_keys (kid, public_key, secret_key) VALUES (:kid, :public_key, :secret_key);

-- name: admin_key_retire
-- In a minute: until then it signs on, while gateways learn of the new one (fifteen seconds) and replicas of auth look.
UPDATE signing_keys SET retired = now() + interval '1 minute' WHERE retired IS NULL AND kid <> :kid;

-- name: admin_roles
SELECT w.name, r.rolcanlogin IS TRUE AS there
FROM   unnest(:names::text[]) AS w (name)
LEFT   JOIN pg_roles r ON r.rolname = w.name
ORDER  BY w.name;
