-- 0007_orphans.sql - jobs that wait for parents, found by themselves (setting fail_orphans)
--
-- Adds an index, in a moment: a plain build, because waiting jobs are few beside all others.

CREATE INDEX jobs_waiting ON jobs (id) WHERE state = 'AWAITING_PARENTS';
