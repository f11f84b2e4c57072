-- figures.sql - what /metrics says of the deployment; each part reads an index or a small table

-- name: figures_look
-- held: younger transactions that readers of events do not see yet, because an older one is still open.
SELECT (SELECT count(*) FROM sessions) AS sessions,
       (SELECT extract(epoch FROM now() - min(heartbeat)) FROM sessions)::float8 AS oldest_heartbeat,
       (SELECT count(*) FROM jobs WHERE session_id IS NOT NULL) AS leases,
       coalesce(pg_sequence_last_value('event_ids'), 0) AS last_event,
       (pg_snapshot_xmax(s)::text::bigint - pg_snapshot_xmin(s)::text::bigint) AS held
FROM   pg_current_snapshot() AS s;

-- name: figures_jobs
SELECT state::text AS state, sum(jobs)::bigint AS jobs, sum(events)::bigint AS events FROM job_counts GROUP BY state;
