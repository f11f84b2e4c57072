-- session.sql - a session is a lease: who may hold jobs of a site, and when it was last heard of

-- name: session_site
-- POST /sessions/: is the site the caller's, and is the batch job (if one is named) at that site?
SELECT site.id AS site_id, b.id AS batch_job_id
FROM   sites site
LEFT   JOIN batch_jobs b ON b.id = :batch_job_id AND b.site_id = site.id
WHERE  site.id = :site_id AND site.owner_id = :owner_id;

-- name: session_create
INSERT INTO sessions (owner_id, site_id, batch_job_id)
VALUES (:owner_id, :site_id, :batch_job_id)
RETURNING id, site_id, batch_job_id, heartbeat;

-- name: session_touch
-- No row: expired or not yours. clock_timestamp, so that a tick is later than all before it.
UPDATE sessions
SET    heartbeat = greatest(clock_timestamp(), heartbeat + interval '1 microsecond')
WHERE  id = :session_id AND owner_id = :owner_id AND ended IS NULL
RETURNING site_id;

-- name: session_cancelled
-- What the launcher should kill: jobs it holds that somebody has asked to cancel.
SELECT id FROM jobs WHERE session_id = :session_id AND cancel ORDER BY id;

-- name: session_lost
-- Of the jobs that the launcher believes it holds, those that it does not.
SELECT w.id
FROM   unnest(:jobs::bigint[]) AS w (id)
WHERE  NOT EXISTS (SELECT FROM jobs j WHERE j.id = w.id AND j.session_id = :session_id)
ORDER  BY w.id;
