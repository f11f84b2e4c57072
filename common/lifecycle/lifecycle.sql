-- lifecycle.sql - how jobs change state: the one place, used by jobs, sessions and transfers
--
-- Every statement has the same shape: lock the rows by id, plan from the locked rows, write rows,
-- events and counts from the plan. Planning from the locked rows (and from counters that live in them:
-- open_in, open_out, open_parents) is what makes it right when two calls meet at one job.

-- name: job_step
-- n jobs at once, each with its own wish, time and data (PATCH, PUT by id, PUT by filter).
-- states[i] NULL: no change asked for. Children (of jobs that may finish or be reopened, which is known only
-- under the lock) are locked in one order with the jobs named, so two calls never wait in a ring.
-- moved_to: where the jobs of a small call went in the end, as places in the list of states (for notices).
-- matched < n: some id is not there or not yours; roll back and tell (job_missing).
-- leases[i], when given, is the number the job was leased with: stale names the jobs that are not held under it
-- any more; roll back and answer 409. It is compared here, under the one ordered lock: a look at the named jobs
-- beforehand would lock them before their children and bring the deadlocks back. '{}' = nobody sent one.
-- An attempt is counted when a job goes to RUNNING, or to an end that nobody had reported as RUNNING before; a
-- wish to cancel is over when it leaves that state.
-- A run that failed goes on by itself (follow) if it was to be cancelled, or if the job has a retry policy: to
-- RESTART_READY while the cause is one of the policy's and attempts are left, to FAILED when none is. Nobody ever
-- sees the job between the two, so no hook handles what is decided here. For other causes the hooks decide.
WITH wish AS MATERIALIZED (
    SELECT * FROM unnest(:ids::bigint[], :states::job_state[], :timestamps::timestamptz[], :data::jsonb[], :leases::int[])
        AS w (id, req, at, data, fence)
), concerned AS (
    SELECT id FROM wish
    UNION
    SELECT p.child_id FROM wish w JOIN job_parents p ON p.parent_id = w.id
    WHERE  w.req IS NOT NULL
), locked AS MATERIALIZED (
    SELECT j.id, j.state, j.open_in, j.open_out, j.site_id, j.app_id, j.session_id, j.lease, j.attempts, j.cancel,
           j.num_nodes * 1000000::bigint / j.node_packing_count AS nodes
    FROM   concerned c JOIN jobs j ON j.id = c.id AND j.owner_id = :owner_id
    ORDER  BY j.id
    FOR NO KEY UPDATE OF j
), asked AS MATERIALIZED (
    SELECT l.*, w.req, w.at, w.data, w.fence, coalesce(w.req <> l.state, false) AS moves,
           CASE WHEN w.req = 'READY'         AND l.open_in  = 0 THEN 'STAGED_IN'
                WHEN w.req = 'POSTPROCESSED' AND l.open_out = 0 THEN 'JOB_FINISHED'
                WHEN w.req = 'STAGED_OUT'                       THEN 'JOB_FINISHED'
                ELSE w.req END AS target,
           l.attempts + (w.req = 'RUNNING' AND l.state <> 'RUNNING'
                         OR w.req IN ('RUN_DONE', 'RUN_ERROR', 'RUN_TIMEOUT')
                            AND l.state IN ('PREPROCESSED', 'RESTART_READY'))::int AS attempt,
           coalesce(w.req IN ('RUN_ERROR', 'RUN_TIMEOUT'), false)
               AND l.state IN ('RUNNING', 'PREPROCESSED', 'RESTART_READY') AS failed
    FROM   locked l JOIN wish w ON w.id = l.id
), judged AS MATERIALIZED (
    SELECT a.*, CASE WHEN failed THEN (SELECT s.retry::jsonb FROM job_specs s WHERE s.id = a.id) END AS policy,
           CASE WHEN NOT failed THEN NULL
                WHEN data->>'cause' IN ('exit', 'signal', 'node_loss', 'walltime') THEN data->>'cause'
                WHEN req = 'RUN_TIMEOUT' THEN 'walltime'
                -- negative: as waitpid says it; above 128: as a shell does
                WHEN jsonb_typeof(data->'returncode') = 'number'
                     AND ((data->>'returncode')::numeric < 0 OR (data->>'returncode')::numeric BETWEEN 129 AND 192)
                     THEN 'signal'
                ELSE 'exit' END AS cause
    FROM   asked a
), plan AS MATERIALIZED (
    SELECT j.*, (policy->>'max_attempts')::int AS most, coalesce((policy->>'backoff_sec')::int, 0) AS backoff,
           CASE WHEN NOT failed THEN NULL::job_state
                WHEN cancel THEN 'FAILED'
                WHEN attempt >= (policy->>'max_attempts')::int THEN 'FAILED'
                WHEN policy->'on' @> to_jsonb(cause) THEN 'RESTART_READY' END AS follow
    FROM   judged j
), moved AS (
    UPDATE jobs j
    SET    state       = CASE WHEN p.moves THEN coalesce(p.follow, p.target) ELSE j.state END,
           session_id  = CASE WHEN p.moves AND p.target <> 'RUNNING' THEN NULL ELSE j.session_id END,
           attempts    = coalesce(p.attempt, j.attempts),
           cancel      = j.cancel AND NOT (p.moves AND p.target <> 'RUNNING'),
           not_before  = CASE WHEN NOT p.moves THEN j.not_before
                              WHEN p.follow = 'RESTART_READY' AND p.backoff > 0
                              THEN now() + make_interval(secs => p.backoff) END,
           last_update = now()
    FROM   plan p
    WHERE  j.id = p.id
), logged AS (
    INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state, data)
    SELECT nextval('event_ids'), :owner_id, id, coalesce(at, now()), state, target,
           CASE WHEN req = target OR req = 'STAGED_OUT' THEN coalesce(data, '{}')
                WHEN req = 'READY' THEN coalesce(data, '{}') || '{"message": "Skipped stage in"}'
                ELSE coalesce(data, '{}') || '{"message": "Skipped stage out"}' END
    FROM   plan WHERE moves
    UNION ALL
    SELECT nextval('event_ids'), :owner_id, id, greatest(at, now()) + interval '1 microsecond', target, follow,
           CASE WHEN cancel THEN '{"message": "cancelled"}'
                ELSE jsonb_build_object(
                         'message', format('attempt %s of %s ended (%s): ', attempt, most, cause) ||
                             CASE WHEN follow = 'FAILED' THEN 'none is left'
                                  WHEN backoff > 0 THEN format('the next one in %s s', backoff)
                                  ELSE 'the next one' END,
                         'attempt', attempt, 'max_attempts', most, 'cause', cause) END
    FROM   plan WHERE follow IS NOT NULL
), counted AS (
    INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
    SELECT :owner_id, site_id, app_id, s.state, sum(s.n), sum(s.n * nodes), sum(s.e)
    FROM   plan, LATERAL (VALUES (plan.state, -1, 0), (plan.target, (follow IS NULL)::int, 1),
                                 (plan.follow, 1, 1)) AS s (state, n, e)
    WHERE  moves AND s.state IS NOT NULL
    GROUP  BY site_id, app_id, s.state
), freed AS (
    UPDATE transfer_items t SET state = 'pending', not_before = NULL
    FROM   plan p
    WHERE  p.moves AND p.target = 'POSTPROCESSED' AND p.open_out > 0
      AND  t.job_id = p.id AND t.state = 'awaiting_job'
)
SELECT count(*) AS matched, count(*) FILTER (WHERE moves) AS moved,
       array_agg(id) FILTER (WHERE moves AND target = 'JOB_FINISHED' AND state <> 'JOB_FINISHED') AS finished,
       array_agg(id) FILTER (WHERE moves AND state = 'JOB_FINISHED' AND target <> 'JOB_FINISHED') AS reopened,
       array_agg(id) FILTER (WHERE fence <> lease OR fence IS NOT NULL AND session_id IS NULL) AS stale,
       array_agg(id) FILTER (WHERE moves AND cardinality(:ids::bigint[]) <= 20) AS moved_ids,
       array_agg(array_position(enum_range(NULL::job_state), coalesce(follow, target))::bigint - 1)
           FILTER (WHERE moves AND cardinality(:ids::bigint[]) <= 20) AS moved_to
FROM   plan;

-- name: job_missing
SELECT w.id FROM unnest(:ids::bigint[]) AS w (id)
WHERE  NOT EXISTS (SELECT FROM jobs j WHERE j.id = w.id AND j.owner_id = :owner_id)
ORDER  BY w.id;

-- name: job_release
-- After any statement that returned finished or reopened jobs, in the same transaction but in a statement
-- of its own: it has to see edges committed while the first one waited for its locks.
WITH delta AS (
    SELECT p.child_id AS id, sum(d.n)::int AS n
    FROM   (SELECT unnest(:finished::bigint[]) AS id, -1 AS n
            UNION ALL SELECT unnest(:reopened::bigint[]), 1) AS d
    JOIN   job_parents p ON p.parent_id = d.id
    GROUP  BY p.child_id
), locked AS MATERIALIZED (
    SELECT j.id, j.owner_id, j.state, j.site_id, j.app_id, j.open_in, j.open_parents + d.n AS open_parents,
           j.num_nodes * 1000000::bigint / j.node_packing_count AS nodes
    FROM   delta d JOIN jobs j ON j.id = d.id
    ORDER  BY j.id
    FOR NO KEY UPDATE OF j
), plan AS MATERIALIZED (
    SELECT l.*, l.state = 'AWAITING_PARENTS' AND l.open_parents = 0 AS moves,
           CASE WHEN l.open_in = 0 THEN 'STAGED_IN'::job_state ELSE 'READY' END AS target
    FROM   locked l
), moved AS (
    UPDATE jobs j
    SET    open_parents = p.open_parents,
           state        = CASE WHEN p.moves THEN p.target ELSE j.state END,
           session_id   = CASE WHEN p.moves THEN NULL ELSE j.session_id END,
           last_update  = CASE WHEN p.moves THEN now() ELSE j.last_update END
    FROM   plan p
    WHERE  j.id = p.id
), logged AS (
    INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state, data)
    SELECT nextval('event_ids'), owner_id, id, now(), state, target,
           CASE target WHEN 'READY' THEN '{"message": "All parents finished"}'::jsonb
                       ELSE '{"message": "Skipped stage in"}' END
    FROM   plan WHERE moves
), counted AS (
    INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
    SELECT owner_id, site_id, app_id, s.state, sum(s.n), sum(s.n * nodes), sum(s.e)
    FROM   plan, LATERAL (VALUES (plan.state, -1, 0), (plan.target, 1, 1)) AS s (state, n, e)
    WHERE  moves
    GROUP  BY owner_id, site_id, app_id, s.state
)
SELECT count(*) FILTER (WHERE moves) AS released FROM plan;

-- name: job_fields
-- The hot columns of a PATCH, each item with its own keys: NULL means "key not sent". The two columns that
-- may be set to null have a flag of their own. With job_step in the same call it runs AFTER it: job_step takes
-- all locks of the call in one order, children included, and here they are held already.
WITH wish AS MATERIALIZED (
    SELECT * FROM unnest(:ids::bigint[], :num_nodes::int[], :ranks_per_node::int[], :node_packing_count::int[],
                         :wall_time_min::int[], :pending_file_cleanup::boolean[],
                         :set_return_code::boolean[], :return_code::int[],
                         :set_batch_job_id::boolean[], :batch_job_id::bigint[], :priority::int[])
        AS w (id, num_nodes, ranks_per_node, node_packing_count, wall_time_min, pending_file_cleanup,
              set_return_code, return_code, set_batch_job_id, batch_job_id, priority)
), locked AS MATERIALIZED (
    SELECT j.id, j.state, j.site_id, j.app_id, j.num_nodes, j.node_packing_count
    FROM   wish w JOIN jobs j ON j.id = w.id AND j.owner_id = :owner_id
    ORDER  BY j.id
    FOR NO KEY UPDATE OF j
), counted AS (
    INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes)
    SELECT :owner_id, site_id, app_id, state, 0, sum(after - before)
    FROM  (SELECT l.*, l.num_nodes * 1000000::bigint / l.node_packing_count AS before,
                  coalesce(w.num_nodes, l.num_nodes) * 1000000::bigint
                      / coalesce(w.node_packing_count, l.node_packing_count) AS after
           FROM locked l JOIN wish w USING (id)) AS d
    WHERE  after <> before
    GROUP  BY site_id, app_id, state
)
UPDATE jobs j
SET    num_nodes            = coalesce(w.num_nodes, j.num_nodes),
       ranks_per_node       = coalesce(w.ranks_per_node, j.ranks_per_node),
       node_packing_count   = coalesce(w.node_packing_count, j.node_packing_count),
       wall_time_min        = coalesce(w.wall_time_min, j.wall_time_min),
       pending_file_cleanup = coalesce(w.pending_file_cleanup, j.pending_file_cleanup),
       priority             = coalesce(w.priority, j.priority),
       return_code          = CASE WHEN w.set_return_code THEN w.return_code ELSE j.return_code END,
       batch_job_id         = CASE WHEN w.set_batch_job_id THEN w.batch_job_id ELSE j.batch_job_id END,
       last_update          = now()
FROM   locked l JOIN wish w ON w.id = l.id
WHERE  j.id = l.id;

-- name: job_spec_fields
-- The cold columns, only sent when an item has one; after job_step or job_fields, whose locks cover it.
UPDATE job_specs s
SET    tags                    = coalesce(w.tags, s.tags),
       data                    = coalesce(w.data, s.data),
       workdir                 = coalesce(w.workdir, s.workdir),
       launch_params           = coalesce(w.launch_params, s.launch_params),
       threads_per_rank        = coalesce(w.threads_per_rank, s.threads_per_rank),
       threads_per_core        = coalesce(w.threads_per_core, s.threads_per_core),
       gpus_per_rank           = coalesce(w.gpus_per_rank, s.gpus_per_rank),
       serialized_parameters   = coalesce(w.serialized_parameters, s.serialized_parameters),
       serialized_return_value = coalesce(w.serialized_return_value, s.serialized_return_value),
       serialized_exception    = coalesce(w.serialized_exception, s.serialized_exception),
       parameters              = coalesce(w.parameters, s.parameters),
       retry                   = CASE WHEN w.set_retry THEN w.retry ELSE s.retry END
FROM   unnest(:ids::bigint[], :tags::jsonb[], :data::json[], :workdir::text[], :launch_params::json[],
              :threads_per_rank::int[], :threads_per_core::int[], :gpus_per_rank::float8[],
              :serialized_parameters::text[], :serialized_return_value::text[], :serialized_exception::text[],
              :parameters::json[], :set_retry::boolean[], :retry::json[])
    AS w (id, tags, data, workdir, launch_params, threads_per_rank, threads_per_core, gpus_per_rank,
          serialized_parameters, serialized_return_value, serialized_exception, parameters, set_retry, retry)
WHERE  s.id = w.id AND s.owner_id = :owner_id;

-- name: item_lock
-- PATCH /transfers/, first statement: the jobs of the items named, and the children of those that may finish.
WITH item AS MATERIALIZED (
    SELECT t.id, t.job_id FROM transfer_items t
    WHERE  t.id = ANY (:ids::bigint[]) AND t.owner_id = :owner_id
), locked AS MATERIALIZED (
    SELECT j.id FROM jobs j
    WHERE  j.id IN (SELECT job_id FROM item UNION
                    SELECT p.child_id FROM item JOIN job_parents p ON p.parent_id = item.job_id)
    ORDER  BY j.id
    FOR NO KEY UPDATE
)
SELECT (SELECT count(*) FROM item) AS matched, (SELECT count(*) FROM locked) AS locked;

-- name: item_step
-- Second statement (it must see what others committed while item_lock waited). NULL: key not sent.
-- A stage-in item that ends in error goes back to pending by itself (again) while its job's retry policy names
-- `stage_in` and the item has attempts left: at once, or when its not_before has come (item_wake). Then the job
-- keeps its state and the log says why nothing happens yet; without attempts left (spent) it is FAILED.
WITH wish AS MATERIALIZED (
    SELECT * FROM unnest(:ids::bigint[], :states::transfer_state[], :task_ids::text[], :infos::json[])
        AS w (id, state, task_id, info)
), old AS MATERIALIZED (
    SELECT t.id, t.job_id, t.direction, t.state, coalesce(w.state, t.state) AS target, t.failures + 1 AS attempt,
           coalesce(w.state = 'error', false) AND t.state <> 'error' AS failed
    FROM   wish w JOIN transfer_items t ON t.id = w.id AND t.owner_id = :owner_id
), judged AS MATERIALIZED (
    SELECT o.id, o.job_id, o.attempt, (s.retry->>'max_attempts')::int AS most,
           coalesce((s.retry->>'backoff_sec')::int, 0) AS backoff
    FROM   old o
    CROSS  JOIN LATERAL (SELECT x.retry FROM job_specs x WHERE x.id = o.job_id OFFSET 0) AS s
    CROSS  JOIN LATERAL (SELECT j.state FROM jobs j WHERE j.id = o.job_id OFFSET 0) AS j
    WHERE  o.failed AND o.direction = 'in' AND s.retry::jsonb->'on' @> '"stage_in"'
      AND  j.state IN ('READY', 'AWAITING_PARENTS')
), verdict AS MATERIALIZED (
    SELECT job_id, array_agg(id ORDER BY id) AS items, max(attempt) AS attempt, min(most) AS most,
           min(backoff) AS backoff, bool_or(attempt >= most) AS spent
    FROM   judged GROUP BY job_id
), again AS MATERIALIZED (
    SELECT j.id, j.backoff FROM judged j JOIN verdict v USING (job_id) WHERE NOT v.spent
), stored AS (
    UPDATE transfer_items t
    SET    state         = CASE WHEN a.backoff = 0 THEN 'pending' ELSE coalesce(w.state, t.state) END,
           failures      = o.attempt - (NOT o.failed)::int,
           not_before    = CASE WHEN a.backoff > 0 THEN now() + make_interval(secs => a.backoff)
                                WHEN w.state IS NULL THEN t.not_before END,
           task_id       = coalesce(w.task_id, t.task_id),
           transfer_info = coalesce(w.info, t.transfer_info)
    FROM   wish w JOIN old o ON o.id = w.id LEFT JOIN again a ON a.id = w.id
    WHERE  t.id = w.id AND t.owner_id = :owner_id
    RETURNING t.id, t.job_id, t.direction, t.state, t.recursive, t.local_path, t.remote_path,
              t.location_alias, t.task_id, t.transfer_info
), delta AS (
    SELECT job_id, coalesce(sum(n) FILTER (WHERE direction = 'in'), 0) AS d_in,
           coalesce(sum(n) FILTER (WHERE direction = 'out'), 0) AS d_out
    FROM   (SELECT job_id, direction, (target <> 'done')::int - (state <> 'done')::int AS n FROM old) AS c
    GROUP  BY job_id
), plan AS MATERIALIZED (
    SELECT j.id, j.state, j.site_id, j.app_id, j.num_nodes * 1000000::bigint / j.node_packing_count AS nodes,
           j.open_in + d.d_in AS open_in, j.open_out + d.d_out AS open_out, v.items, v.attempt, v.most, v.backoff,
           CASE WHEN v.spent THEN 'FAILED'::job_state
                WHEN j.state = 'READY'         AND j.open_in  + d.d_in  = 0 THEN 'STAGED_IN'
                WHEN j.state = 'POSTPROCESSED' AND j.open_out + d.d_out = 0 THEN 'JOB_FINISHED'
                WHEN v.job_id IS NOT NULL THEN j.state END AS target
    FROM   delta d JOIN jobs j ON j.id = d.job_id LEFT JOIN verdict v ON v.job_id = d.job_id
), moved AS (
    UPDATE jobs j
    SET    open_in = p.open_in, open_out = p.open_out, state = coalesce(p.target, j.state),
           session_id = CASE WHEN p.target = 'FAILED' THEN NULL ELSE j.session_id END,
           last_update = CASE WHEN p.target IS NULL THEN j.last_update ELSE now() END
    FROM   plan p
    WHERE  j.id = p.id AND (p.target IS NOT NULL OR j.open_in <> p.open_in OR j.open_out <> p.open_out)
), logged AS (
    INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state, data)
    SELECT nextval('event_ids'), :owner_id, id, now(), state, target,
           CASE WHEN items IS NULL THEN '{}'
                ELSE jsonb_build_object(
                         'message', format('attempt %s of %s ended (stage_in): ', attempt, most) ||
                             CASE WHEN target = 'FAILED' THEN 'none is left'
                                  WHEN backoff > 0 THEN format('the next one in %s s', backoff)
                                  ELSE 'the next one' END,
                         'attempt', attempt, 'max_attempts', most, 'cause', 'stage_in', 'items', items) END
    FROM   plan WHERE target IS NOT NULL
), counted AS (
    INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
    SELECT :owner_id, site_id, app_id, s.state, sum(s.n), sum(s.n * nodes), sum(s.e)
    FROM   plan, LATERAL (VALUES (plan.state, -1, 0), (plan.target, 1, 1)) AS s (state, n, e)
    WHERE  target IS NOT NULL
    GROUP  BY site_id, app_id, s.state
)
SELECT s.*, (SELECT array_agg(id) FROM plan WHERE target = 'JOB_FINISHED') AS finished,
       (SELECT count(*) FROM plan WHERE target IS NOT NULL) AS moved
FROM   stored s
ORDER  BY s.id;

-- name: item_wake
-- Items whose next attempt is due. What is locked just now comes next time, so nothing here waits. If the job is no
-- longer one that stages in, its items stay as they are.
WITH due AS MATERIALIZED (
    SELECT t.id, t.state = 'error' AND j.state IN ('READY', 'AWAITING_PARENTS') AS again
    FROM   transfer_items t
    CROSS  JOIN LATERAL (SELECT x.state FROM jobs x WHERE x.id = t.job_id OFFSET 0) AS j
    WHERE  t.not_before <= now()
    ORDER  BY t.not_before
    LIMIT  :batch
    FOR    NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE transfer_items t
SET    state = CASE WHEN d.again THEN 'pending' ELSE t.state END, not_before = NULL
FROM   due d
WHERE  t.id = d.id;

-- name: job_wake
-- Jobs whose next attempt is due enter the queues.
WITH due AS MATERIALIZED (
    SELECT id FROM jobs
    WHERE  not_before <= now()
    ORDER  BY not_before
    LIMIT  :batch
    FOR    NO KEY UPDATE SKIP LOCKED
)
UPDATE jobs j SET not_before = NULL FROM due d WHERE j.id = d.id;

-- name: session_end
-- Second statement of both: give back what the sessions hold, at most :batch jobs (NULL: all), and delete them; if
-- there may be more they are ended, and nobody's, until the next piece. RUNNING jobs become RUN_TIMEOUT,
-- or FAILED when their cancellation had been asked for. A retry policy goes on from there as in job_step: whoever
-- ran the job is gone, and that is `node_loss`.
WITH held AS MATERIALIZED (
    SELECT id FROM jobs WHERE session_id = ANY (:sessions::bigint[]) LIMIT :batch::bigint
), rest AS MATERIALIZED (
    SELECT coalesce(count(*) = :batch, false) AS more FROM held
), locked AS MATERIALIZED (
    SELECT j.id, j.owner_id, j.session_id, j.state, j.site_id, j.app_id, j.attempts, j.state = 'RUNNING' AS moves,
           CASE WHEN j.cancel THEN 'FAILED'::job_state ELSE 'RUN_TIMEOUT' END AS target,
           j.num_nodes * 1000000::bigint / j.node_packing_count AS nodes
    FROM   held h JOIN jobs j ON j.id = h.id
    WHERE  j.session_id = ANY (:sessions::bigint[])
    ORDER  BY j.id
    FOR NO KEY UPDATE OF j
), judged AS MATERIALIZED (
    SELECT l.*, CASE WHEN moves AND target = 'RUN_TIMEOUT'
                     THEN (SELECT s.retry::jsonb FROM job_specs s WHERE s.id = l.id) END AS policy
    FROM   locked l
), plan AS MATERIALIZED (
    SELECT j.*, (policy->>'max_attempts')::int AS most, coalesce((policy->>'backoff_sec')::int, 0) AS backoff,
           CASE WHEN attempts >= (policy->>'max_attempts')::int THEN 'FAILED'::job_state
                WHEN policy->'on' @> '"node_loss"' THEN 'RESTART_READY' END AS follow
    FROM   judged j
), moved AS (
    UPDATE jobs j
    SET    session_id  = NULL,
           state       = CASE WHEN p.moves THEN coalesce(p.follow, p.target) ELSE p.state END,
           cancel      = j.cancel AND NOT p.moves,
           not_before  = CASE WHEN p.follow = 'RESTART_READY' AND p.backoff > 0
                              THEN now() + make_interval(secs => p.backoff) END,
           last_update = CASE WHEN p.moves THEN now() ELSE j.last_update END
    FROM   plan p
    WHERE  j.id = p.id
), logged AS (
    INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state, data)
    SELECT nextval('event_ids'), owner_id, id, now(), 'RUNNING', target,
           jsonb_build_object('message', CASE target WHEN 'FAILED' THEN 'cancelled'
               ELSE 'Session ' || session_id || ' ended while the job was RUNNING' END)
    FROM   plan WHERE moves
    UNION ALL
    SELECT nextval('event_ids'), owner_id, id, now() + interval '1 microsecond', target, follow,
           jsonb_build_object(
               'message', format('attempt %s of %s ended (node_loss): ', attempts, most) ||
                   CASE WHEN follow = 'FAILED' THEN 'none is left'
                        WHEN backoff > 0 THEN format('the next one in %s s', backoff)
                        ELSE 'the next one' END,
               'attempt', attempts, 'max_attempts', most, 'cause', 'node_loss')
    FROM   plan WHERE follow IS NOT NULL
), counted AS (
    INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)
    SELECT owner_id, site_id, app_id, s.state, sum(s.n), sum(s.n * nodes), sum(s.e)
    FROM   plan, LATERAL (VALUES (plan.state, -1, 0), (plan.target, (follow IS NULL)::int, 1),
                                 (plan.follow, 1, 1)) AS s (state, n, e)
    WHERE  moves AND s.state IS NOT NULL
    GROUP  BY owner_id, site_id, app_id, s.state
), gone AS (
    DELETE FROM sessions WHERE id = ANY (:sessions::bigint[]) AND NOT (SELECT more FROM rest) RETURNING id
), going AS (
    UPDATE sessions SET ended = coalesce(ended, now()) WHERE id = ANY (:sessions::bigint[]) AND (SELECT more FROM rest)
)
SELECT (SELECT count(*) FROM gone) AS sessions, (SELECT more FROM rest) AS more, count(*) AS freed,
       count(*) FILTER (WHERE moves) AS timed_out,
       array_agg(DISTINCT owner_id) FILTER (WHERE moves) AS owners
FROM   plan;

-- name: job_delete
-- DELETE /jobs/: unlocked matches among :ids, a batch at a time. Edges of a deleted parent stay, as parent_ids
-- do: a child still waiting for it keeps waiting (a finished parent was counted down before).
WITH doomed AS MATERIALIZED (
    SELECT id, site_id, app_id, state, num_nodes * 1000000::bigint / node_packing_count AS nodes
    FROM   jobs
    WHERE  id = ANY (:ids::bigint[]) AND owner_id = :owner_id AND session_id IS NULL
    ORDER  BY id
    FOR UPDATE SKIP LOCKED
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
    SELECT :owner_id, site_id, app_id, state, -sum(j), -sum(n), -sum(e)
    FROM  (SELECT site_id, app_id, state, 1 AS j, nodes AS n, 0 AS e FROM doomed
           UNION ALL
           SELECT d.site_id, d.app_id, l.to_state, 0, 0, 1 FROM log l JOIN doomed d ON d.id = l.job_id) AS d
    GROUP  BY site_id, app_id, state
)
SELECT count(*) AS deleted, array_agg(id) AS ids FROM doomed;
