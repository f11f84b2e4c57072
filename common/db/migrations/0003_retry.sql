-- 0003_retry.sql - what runs again by itself, and how much a user may have

-- A job that waits for its next attempt stands in no queue: what waits at the head of a queue would be walked
-- over by every lease. A timer clears not_before when the time has come, and with that the job enters the indexes.
-- Rows with NULL pay nothing for the column, and jobs_wake holds only those that wait.
ALTER TABLE jobs ADD COLUMN not_before timestamptz;

DROP INDEX jobs_small_first, jobs_long_first;
CREATE INDEX jobs_small_first ON jobs (site_id, priority DESC, num_nodes, node_packing_count DESC, wall_time_min DESC, id)
    WHERE session_id IS NULL AND not_before IS NULL AND state IN ('PREPROCESSED', 'RESTART_READY');
CREATE INDEX jobs_long_first ON jobs (site_id, priority DESC, wall_time_min DESC, num_nodes DESC, node_packing_count DESC, id)
    WHERE session_id IS NULL AND not_before IS NULL AND state IN ('PREPROCESSED', 'RESTART_READY');
CREATE INDEX jobs_wake ON jobs (not_before) WHERE not_before IS NOT NULL;

-- The same for files: how often one ended in error, and when the service sets it to pending again.
ALTER TABLE transfer_items
    ADD COLUMN failures   int NOT NULL DEFAULT 0,
    ADD COLUMN not_before timestamptz;
CREATE INDEX transfer_items_wake ON transfer_items (not_before) WHERE not_before IS NOT NULL;

-- Quotas of one user: NULL is the service's setting, 0 no limit. The other services may see them.
ALTER TABLE users
    ADD COLUMN max_jobs  int CHECK (max_jobs >= 0),
    ADD COLUMN max_sites int CHECK (max_sites >= 0);
CREATE OR REPLACE VIEW users_public AS SELECT id, username, max_jobs, max_sites FROM users;
