-- admin.sql - signing keys, users, roles

-- name: admin_users
SELECT u.id, u.username, u.created, u.password_hash IS NOT NULL AS password, u.max_jobs, u.max_sites,
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
RETURNING max_jobs, max_sites;

-- name: admin_keys
SELECT kid, created, retired,
       retired IS NULL AND row_number() OVER (PARTITION BY retired IS NULL ORDER BY created DESC, kid) = 1 AS signs
FROM   signing_keys
ORDER  BY created DESC, kid;

-- name: admin_key_lock
-- The same lock as auth's, which makes the first key.
SELECT pg_advisory_xact_lock(hashtext('abies signing key'));

-- name: admin_key_add
INSERT INTO signing_keys (kid, public_key, secret_key) VALUES (:kid, :public_key, :secret_key);

-- name: admin_key_retire
-- In a minute: until then a replica of auth may sign with it, because it has not looked yet.
UPDATE signing_keys SET retired = now() + interval '1 minute' WHERE retired IS NULL AND kid <> :kid;

-- name: admin_roles
SELECT w.name, r.rolcanlogin IS TRUE AS there
FROM   unnest(:names::text[]) AS w (name)
LEFT   JOIN pg_roles r ON r.rolname = w.name
ORDER  BY w.name;
