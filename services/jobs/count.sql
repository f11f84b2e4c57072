-- count.sql - exact totals and backlog from the counts, and the folding of these
--
-- job_counts gets signed rows from every statement that changes states; their sum is the truth at any snapshot.

-- name: job_total
-- The exact total for any mixture of the filters site, app and state: a sum over at most some hundred rows.
SELECT coalesce(sum(jobs), 0) AS total
FROM   job_counts
WHERE  owner_id = :owner_id
  AND  (:site_ids::bigint[] = '{}' OR site_id = ANY (:site_ids))
  AND  (:app_ids::bigint[] = '{}' OR app_id = ANY (:app_ids))
  AND  (:states::job_state[] = '{}' OR state = ANY (:states));

-- name: site_backlog
-- Jobs and nodes by state at one site (elastic queue, dashboard).
SELECT state, sum(jobs) AS jobs, sum(nodes) / 1e6 AS nodes
FROM   job_counts
WHERE  owner_id = :owner_id AND site_id = :site_id
GROUP  BY state HAVING sum(jobs) <> 0
ORDER  BY state;

-- name: site_waiting
-- Of those, what is runnable but waits for its next attempt: nobody has to ask for nodes for it yet.
SELECT count(*) AS jobs, coalesce(sum(num_nodes::float8 / node_packing_count), 0) AS nodes
FROM   jobs
WHERE  not_before IS NOT NULL AND site_id = :site_id AND owner_id = :owner_id;

-- name: fold_counts
-- Once a second, in the one process that holds the timer's lock. Concurrent writers only add rows, so nothing is
-- lost. What is a single row already is left alone, or an idle centre would write all its counts anew each second.
WITH many AS (
    SELECT owner_id, site_id, app_id, state
    FROM   job_counts
    GROUP  BY owner_id, site_id, app_id, state
    HAVING count(*) > 1 OR (sum(jobs) = 0 AND sum(nodes) = 0 AND sum(events) = 0)
), old AS (
    DELETE FROM job_counts c
    USING  many m
    WHERE  c.owner_id = m.owner_id AND c.site_id = m.site_id AND c.app_id = m.app_id AND c.state = m.state
    RETURNING c.owner_id, c.site_id, c.app_id, c.state, c.jobs, c.nodes, c.events
)
INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
SELECT owner_id, site_id, app_id, state, sum(jobs), sum(nodes), sum(events)
FROM   old
GROUP  BY owner_id, site_id, app_id, state
HAVING sum(jobs) <> 0 OR sum(nodes) <> 0 OR sum(events) <> 0;

-- name: event_total
-- The exact total without filter, or by to_state.
SELECT coalesce(sum(events), 0) AS total
FROM   job_counts
WHERE  owner_id = :owner_id
  AND  (:site_ids::bigint[] = '{}' OR site_id = ANY (:site_ids))
  AND  (:states::job_state[] = '{}' OR state = ANY (:states));

-- name: end_frozen_copies
-- A backend that waits for COPY data for so long belongs to a process that was frozen or cut off; no timeout of
-- the server ends it, and it holds its locks. Our COPY data is complete before it begins.
SELECT count(pg_terminate_backend(pid)) AS ended
FROM   pg_stat_activity
WHERE  usename = current_user AND datname = current_database() AND pid <> pg_backend_pid()
  AND  state = 'active' AND wait_event_type = 'Client' AND wait_event = 'ClientRead' AND query ~* '^\s*COPY'
  AND  query_start < now() - :age::interval;
