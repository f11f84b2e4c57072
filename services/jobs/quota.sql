-- quota.sql - how much a user may have: a column of users, else the service's setting; 0 is no limit
--
-- Whoever has a limit creates one call at a time (a lock until COMMIT, taken in front of all row locks), so that two
-- calls do not slip in under it together. Whoever has none waits for nobody.

-- name: quota_jobs
SELECT most, CASE WHEN most > 0 THEN pg_advisory_xact_lock(703015, hashint8(:owner_id::bigint))::text END AS held
FROM  (SELECT coalesce((SELECT u.max_jobs FROM users_public u WHERE u.id = :owner_id), :max_jobs)::bigint AS most) AS quota;

-- name: quota_jobs_used
-- In a statement of its own: it has to see what was committed while quota_jobs waited.
SELECT coalesce(sum(jobs), 0)::bigint AS used
FROM   job_counts
WHERE  owner_id = :owner_id AND state NOT IN ('JOB_FINISHED', 'FAILED');

-- name: quota_sites
SELECT most, CASE WHEN most > 0 THEN pg_advisory_xact_lock(703016, hashint8(:owner_id::bigint))::text END AS held
FROM  (SELECT coalesce((SELECT u.max_sites FROM users_public u WHERE u.id = :owner_id), :max_sites)::bigint AS most) AS quota;

-- name: quota_sites_used
SELECT count(*) AS used FROM sites WHERE owner_id = :owner_id;
