-- 0008_recent.sql - lists of jobs by the time of their last change, and of events by rare states
--
-- Changing calls wait while the indexes are built: about a second for each million of jobs, and a quarter of that for each
-- million of events. Who has more builds them before, with these names (docs/operations.md): they are taken as they are.

-- GET /jobs/?ordering=last_update, and what changed since: read from an end of the index. No change of a job was in
-- place before either.
CREATE INDEX IF NOT EXISTS jobs_recent ON jobs (owner_id, last_update, id);

-- GET /events/?to_state=FAILED: a walk along the time meets each of the common states soon, and these perhaps never.
CREATE INDEX IF NOT EXISTS events_rare ON events (owner_id, to_state, timestamp, id)
    WHERE to_state IN ('AWAITING_PARENTS', 'CREATED', 'FAILED', 'READY', 'RESTART_READY', 'RUN_ERROR', 'RUN_TIMEOUT', 'STAGED_OUT');
