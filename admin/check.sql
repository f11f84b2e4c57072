-- check.sql - what must be true of the tables at any moment; each block counts what is not, with an example
--
-- All run on one snapshot, so services may be at work meanwhile. Each returns one row: n, example.

-- name: check_job_counts
-- jobs and nodes by owner, site, application and state
SELECT count(*) AS n, min(format('owner %s site %s app %s %s: off by %s jobs, %s nodes', owner_id, site_id, app_id, state, jobs, nodes)) AS example
FROM  (SELECT owner_id, site_id, app_id, state, sum(jobs) AS jobs, sum(nodes) AS nodes
       FROM  (SELECT owner_id, site_id, app_id, state, 1 AS jobs, num_nodes * 1000000::bigint / node_packing_count AS nodes FROM jobs
              UNION ALL
              SELECT owner_id, site_id, app_id, state, -jobs, -nodes FROM job_counts) AS both_sides
       GROUP  BY owner_id, site_id, app_id, state
       HAVING sum(jobs) <> 0 OR sum(nodes) <> 0) AS wrong;

-- name: check_event_counts
SELECT count(*) AS n, min(format('owner %s site %s app %s %s: off by %s events', owner_id, site_id, app_id, state, events)) AS example
FROM  (SELECT owner_id, site_id, app_id, state, sum(events) AS events
       FROM  (SELECT j.owner_id, j.site_id, j.app_id, e.to_state AS state, 1 AS events FROM events e JOIN jobs j ON j.id = e.job_id
              UNION ALL
              SELECT owner_id, site_id, app_id, state, -events FROM job_counts) AS both_sides
       GROUP  BY owner_id, site_id, app_id, state
       HAVING sum(events) <> 0) AS wrong;

-- name: check_open_items
SELECT count(*) AS n, min(format('job %s: open_in %s (items say %s), open_out %s (%s)', id, open_in, todo_in, open_out, todo_out)) AS example
FROM  (SELECT j.id, j.open_in, j.open_out,
              count(t.id) FILTER (WHERE t.direction = 'in') AS todo_in, count(t.id) FILTER (WHERE t.direction = 'out') AS todo_out
       FROM   jobs j LEFT JOIN transfer_items t ON t.job_id = j.id AND t.state <> 'done'
       GROUP  BY j.id
       HAVING j.open_in <> count(t.id) FILTER (WHERE t.direction = 'in')
           OR j.open_out <> count(t.id) FILTER (WHERE t.direction = 'out')) AS wrong;

-- name: check_open_parents
-- A parent deleted before it finished is waited for, one deleted later is not: between the two bounds.
SELECT count(*) AS n, min(format('job %s: open_parents %s, edges say %s to %s', id, open_parents, least_open, least_open + deleted)) AS example
FROM  (SELECT c.id, c.open_parents, count(*) FILTER (WHERE p.state <> 'JOB_FINISHED') AS least_open,
              count(e.parent_id) FILTER (WHERE p.id IS NULL) AS deleted
       FROM   jobs c LEFT JOIN job_parents e ON e.child_id = c.id LEFT JOIN jobs p ON p.id = e.parent_id
       GROUP  BY c.id) AS sums
WHERE  open_parents < least_open OR open_parents > least_open + deleted;

-- name: check_free_but_waiting
-- (But a user may put a job there by hand; if that was long ago, its events are forgotten.)
SELECT count(*) AS n, min(format('job %s waits for parents, all of them have finished', id)) AS example
FROM   jobs WHERE state = 'AWAITING_PARENTS' AND open_parents = 0
  AND  EXISTS (SELECT FROM job_parents e WHERE e.child_id = jobs.id)
  AND  EXISTS (SELECT FROM events e WHERE e.job_id = jobs.id)
  AND  NOT EXISTS (SELECT FROM events e
                   WHERE e.job_id = jobs.id AND e.to_state = 'AWAITING_PARENTS' AND e.from_state <> 'CREATED');

-- name: check_event_chains
-- In the order they were written: from CREATED (the first ones may be forgotten), each from where the one before led. (Asking a finished job for
-- POSTPROCESSED writes JOB_FINISHED to JOB_FINISHED, as the contract has it.)
SELECT count(*) AS n, min(format('job %s event %s: %s to %s after %s', job_id, id, from_state, to_state, before)) AS example
FROM  (SELECT e.job_id, e.id, e.from_state, e.to_state, lag(e.to_state, 1, 'CREATED') OVER chain AS before,
             row_number() OVER chain = 1 AS first
       FROM   events e JOIN jobs j ON j.id = e.job_id
       WINDOW chain AS (PARTITION BY e.job_id ORDER BY e.id)) AS steps
WHERE  from_state <> before
  AND  NOT (first AND (SELECT low > 0 FROM event_low));

-- name: check_event_ends
SELECT count(*) AS n, min(format('job %s is %s, its last event says %s', id, state, coalesce(last::text, 'nothing'))) AS example
FROM  (SELECT j.id, j.state, (SELECT e.to_state FROM events e WHERE e.job_id = j.id ORDER BY e.id DESC LIMIT 1) AS last FROM jobs j) AS ends
WHERE  state IS DISTINCT FROM last AND NOT (last IS NULL AND (SELECT low > 0 FROM event_low));

-- name: check_finished_once
-- A job that was never reopened finishes once.
SELECT count(*) AS n, min(format('job %s finished %s times', job_id, times)) AS example
FROM  (SELECT job_id, count(*) AS times FROM events WHERE to_state = 'JOB_FINISHED' GROUP BY job_id) AS ends
WHERE  times > 1 + (SELECT count(*) FROM events e WHERE e.job_id = ends.job_id AND e.from_state = 'JOB_FINISHED');

-- name: check_leases
SELECT count(*) AS n, min(format('job %s of site %s is held by session %s of site %s', j.id, j.site_id, j.session_id, coalesce(s.site_id::text, '(none)'))) AS example
FROM   jobs j LEFT JOIN sessions s ON s.id = j.session_id
WHERE  j.session_id IS NOT NULL AND (s.id IS NULL OR s.site_id <> j.site_id OR s.owner_id <> j.owner_id);

-- name: check_cancels
SELECT count(*) AS n, min(format('job %s is %s and still to be cancelled', id, state)) AS example
FROM   jobs WHERE cancel AND state <> 'RUNNING';

-- name: check_waiting
-- Only what is runnable again and held by nobody waits for a time.
SELECT count(*) AS n, min(format('job %s is %s and waits for its next attempt', id, state)) AS example
FROM   jobs WHERE not_before IS NOT NULL AND (state <> 'RESTART_READY' OR session_id IS NOT NULL);

-- name: check_halves
SELECT count(*) AS n, min(format('job %s: its two rows differ or one is missing', coalesce(j.id, s.id))) AS example
FROM   jobs j FULL JOIN job_specs s ON s.id = j.id
WHERE  j.id IS NULL OR s.id IS NULL OR j.owner_id <> s.owner_id OR j.app_id <> s.app_id;

-- name: check_homes
SELECT count(*) AS n, min(format('job %s: app %s or its site is not there or not its owner''s', j.id, j.app_id)) AS example
FROM   jobs j LEFT JOIN apps a ON a.id = j.app_id
WHERE  a.id IS NULL OR a.owner_id <> j.owner_id OR a.site_id <> j.site_id;

-- name: check_batch_jobs
SELECT count(*) AS n, min(format('job %s: batch job %s is not there', j.id, j.batch_job_id)) AS example
FROM   jobs j LEFT JOIN batch_jobs b ON b.id = j.batch_job_id
WHERE  j.batch_job_id IS NOT NULL AND b.id IS NULL;

-- name: check_edges
SELECT count(*) AS n, min(format('job %s: parent %s is not in both lists', child_id, parent_id)) AS example
FROM  (SELECT parent_id, child_id FROM (SELECT unnest(parent_ids) AS parent_id, id AS child_id FROM job_specs) AS sent
       EXCEPT SELECT parent_id, child_id FROM job_parents) AS wrong;

-- name: check_items
SELECT count(*) AS n, min(format('transfer item %s: job %s is not there, not its owner''s or at another site', t.id, t.job_id)) AS example
FROM   transfer_items t LEFT JOIN jobs j ON j.id = t.job_id
WHERE  j.id IS NULL OR j.owner_id <> t.owner_id OR j.site_id <> t.site_id;

-- name: check_event_room
-- The partition behind the one in use is there before it is needed.
SELECT (to_regclass(format('events_%s', last >> 24)) IS NULL)::int::bigint AS n, format('events have no partition for id %s', last) AS example
FROM   (SELECT coalesce(pg_sequence_last_value('event_ids'), 0) + 1 AS last) AS next;
