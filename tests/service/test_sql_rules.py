"""Each rule of the job and session contracts that is decided in SQL, tried with the services' own statements.

One script runs once; each expectation in it is a test."""
import pytest
from sql_script import ROOT, Script, history, state

COUNTS = """SELECT count(*) FROM (SELECT owner_id, site_id, app_id, state, sum(j), sum(n) FROM (
  SELECT owner_id, site_id, app_id, state, 1 AS j, num_nodes * 1000000::bigint / node_packing_count AS n, 0 AS e FROM jobs
  UNION ALL SELECT j.owner_id, j.site_id, j.app_id, e.to_state, 0, 0, 1 FROM events e JOIN jobs j ON j.id = e.job_id
  UNION ALL SELECT owner_id, site_id, app_id, state, -jobs, -nodes, -events FROM job_counts) AS u
  GROUP BY 1, 2, 3, 4 HAVING sum(j) <> 0 OR sum(n) <> 0 OR sum(e) <> 0) AS d"""
TAKEN = "SELECT string_agg(id::text, ' ' ORDER BY place) FROM got"


def set_up(s):
    s.say("CREATE TEMP TABLE last (matched bigint, moved bigint, finished bigint[], reopened bigint[], stale bigint[]);"
          "CREATE TEMP TABLE got (id bigint, place bigint, lease int, batch_job_id bigint);")
    s.say("INSERT INTO users (id, username) VALUES (1, 'owner'), (2, 'other');"
          "INSERT INTO sites (id, owner_id, name, path) VALUES (1, 1, 's', '/s'), (2, 2, 't', '/t');"
          "INSERT INTO apps (id, owner_id, site_id, name) VALUES (1, 1, 1, 'a'), (2, 2, 2, 'b');"
          "INSERT INTO sessions (id, owner_id, site_id) VALUES (70, 1, 1), (71, 1, 1);")


def creation(s):
    # 1 plain, 2 one in, 3 one out, 4 two in and one out, 5 6 children of 1, 7 child of 1 and 10, 8 child of 3,
    # 9 child of 1 with an in item, 10 plain, 12-14 plain
    s.create([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14],
             ["STAGED_IN", "READY", "STAGED_IN", "READY"] + ["AWAITING_PARENTS"] * 5 + ["STAGED_IN"] * 4,
             parents={5: [1], 6: [1], 7: [1, 10], 8: [3], 9: [1]},
             ins=[0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0], outs=[0, 0, 1, 1] + [0] * 9, packing=[1, 1, 3] + [1] * 10)
    s.create([11], ["STAGED_IN"], owner=2, site=2)
    s.want("first event", history(1), "CREATED>STAGED_IN")
    s.want("items: in pending, out awaiting_job",
           "SELECT string_agg(direction || ' ' || state, ', ' ORDER BY direction, id) FROM transfer_items WHERE job_id = 4",
           "in pending, in pending, out awaiting_job")
    s.want("counts after create", COUNTS, "0")


def steps(s):
    s.step([1, 999], "PREPROCESSED")
    s.want("a missing id shows in matched", "SELECT matched FROM last", "1")
    s.step([1, 11], "RUNNING")
    s.want("a foreign id is not matched, not touched",
           "SELECT (SELECT matched FROM last) || (SELECT state::text FROM jobs WHERE id = 11)", "1STAGED_IN")
    s.want("going to RUNNING counts an attempt", "SELECT attempts FROM jobs WHERE id = 1", "1")
    s.step([1], "RUNNING")
    s.want("RUNNING again does not", "SELECT attempts FROM jobs WHERE id = 1", "1")
    s.say("UPDATE jobs SET session_id = 70, cancel = true WHERE id IN (1, 10);")
    s.step([1], "RUN_DONE", data="""'{"a": 1}'""", at="'2026-01-02 03:04:05.000678+00'")
    s.want("change frees the lease", state(1), "RUN_DONE")
    s.want("leaving RUNNING ends a wish to cancel", "SELECT cancel FROM jobs WHERE id = 1", "false")
    s.want("client time and data kept",
           "SELECT timestamp AT TIME ZONE 'UTC' || ' ' || data FROM events WHERE job_id = 1 ORDER BY id DESC LIMIT 1",
           '2026-01-02 03:04:05.000678 {"a": 1}')
    s.step([10], "STAGED_IN")
    s.want("same state: no event, lease kept", f"SELECT ({state(10)}) || ' ' || ({history(10)})",
           "STAGED_IN held CREATED>STAGED_IN")
    s.step([10], [None])
    s.want("no state: no event, lease kept", f"SELECT ({state(10)}) || ' ' || ({history(10)})",
           "STAGED_IN held CREATED>STAGED_IN")
    s.step([10], "RUNNING")
    s.want("RUNNING keeps the lease", state(10), "RUNNING held")
    s.want("RUNNING keeps a wish to cancel", "SELECT cancel FROM jobs WHERE id = 10", "true")


def parents(s):
    s.step([1], "POSTPROCESSED")
    s.want("POSTPROCESSED without out items finishes", history(1),
           "CREATED>STAGED_IN STAGED_IN>PREPROCESSED PREPROCESSED>RUNNING RUNNING>RUN_DONE "
           "RUN_DONE>JOB_FINISHED:Skipped stage out")
    s.want("children freed, all in one call", f"SELECT ({state(5)}) || ' ' || ({state(6)})", "STAGED_IN STAGED_IN")
    s.want("child message", history(5), "CREATED>AWAITING_PARENTS AWAITING_PARENTS>STAGED_IN:Skipped stage in")
    s.want("child with stage-in becomes READY", history(9),
           "CREATED>AWAITING_PARENTS AWAITING_PARENTS>READY:All parents finished")
    s.want("child of two parents waits", state(7), "AWAITING_PARENTS")
    s.step([1], "JOB_FINISHED")
    s.want("finished again is a no-op", "SELECT moved FROM last", "0")
    s.want("... and counts nothing down", "SELECT open_parents FROM jobs WHERE id = 7", "1")
    s.step([1], "RESTART_READY")
    s.want("a reopened parent counts up", "SELECT open_parents FROM jobs WHERE id = 7", "2")
    s.step([10], "STAGED_OUT")
    s.want("STAGED_OUT is stored as JOB_FINISHED, no message", history(10),
           "CREATED>STAGED_IN STAGED_IN>RUNNING RUNNING>JOB_FINISHED")
    s.want("child still waits for the reopened one", state(7), "AWAITING_PARENTS")
    s.step([1], "JOB_FINISHED")
    s.want("last parent frees it", state(7), "STAGED_IN")


def transfers(s):
    s.step([2], "READY")
    s.want("READY with a pending item: same state", "SELECT moved FROM last", "0")
    s.items("job_id = 2", "done")
    s.want("stage-in done: STAGED_IN, no message", history(2), "CREATED>READY READY>STAGED_IN")
    s.items("job_id = 2", "pending")
    s.want("item back to pending leaves the job", f"SELECT ({state(2)}) || (SELECT open_in FROM jobs WHERE id = 2)",
           "STAGED_IN1")
    s.items("job_id = 2", "done")
    s.want("done again: counter 0, job unmoved", f"SELECT ({state(2)}) || (SELECT open_in FROM jobs WHERE id = 2)",
           "STAGED_IN0")
    s.step([2], "FAILED")
    s.step([2], "READY")
    s.want("READY with all in items done", history(2),
           "CREATED>READY READY>STAGED_IN STAGED_IN>FAILED FAILED>STAGED_IN:Skipped stage in")
    s.items("job_id = 4 AND id = (SELECT min(id) FROM transfer_items WHERE job_id = 4)", "done")
    s.want("one of two in items: still READY", state(4), "READY")
    s.items("job_id = 4 AND direction = 'in'", "error")
    s.want("error never moves the job", f"SELECT ({state(4)}) || (SELECT open_in FROM jobs WHERE id = 4)", "READY2")
    s.step([3], "POSTPROCESSED")
    s.want("POSTPROCESSED with out items stays", history(3), "CREATED>STAGED_IN STAGED_IN>POSTPROCESSED")
    s.want("... and its items become pending", "SELECT state FROM transfer_items WHERE job_id = 3", "pending")
    s.items("job_id = 3", "done")
    s.want("stage-out done: JOB_FINISHED", history(3),
           "CREATED>STAGED_IN STAGED_IN>POSTPROCESSED POSTPROCESSED>JOB_FINISHED")
    s.want("... and that frees the child too", state(8), "STAGED_IN")
    s.want("counts after the walk", COUNTS, "0")


def leases(s):
    # the table of the session contract, section 3.2
    s.create([101, 102, 103, 104, 105, 106, 107, 108], ["PREPROCESSED"] * 8, nodes=[1, 1, 1, 2, 4, 1, 2, 8],
             packing=[1, 4, 4, 1, 1, 1, 1, 1], walls=[5, 5, 50, 0, 100, 90, 30, 0])

    def took(what, expected, block, **given):
        s.say("UPDATE jobs SET session_id = NULL WHERE id BETWEEN 101 AND 108;")
        s.lease(block, 70, **given)
        s.want(what, "SELECT coalesce(string_agg((id - 100)::text, ' ' ORDER BY place), '') FROM got", expected)

    small, long = "lease_small_first", "lease_long_first"
    took("budget 100, small first", "3 2 6 1 7 4 5 8", small, budget=100)
    took("budget 3.5, small first", "3 2 6 1", small, budget=3.5)
    took("budget 3.5, long first: nothing", "", long, budget=3.5)
    took("budget 4, long first", "5", long, budget=4)
    took("budget 3, at most 3 jobs", "3 2 6", small, budget=3, n=3)
    took("budget 0: nothing", "", small, budget=0)
    took("wall time and nodes bound", "2 1 7 4", small, max_wall_time=30, max_nodes=2)
    took("serial only", "3 2 6 1", small, serial_only="true")
    took("tags that match", "3 2 6 1 7 4 5 8", small, tags="""'{"k": "v"}'""")
    took("tags that do not", "", small, tags="""'{"k": "x"}'""")
    took("states []", "", small, states="'{}'")
    for block in ("lease_tagged_walk", "lease_tagged_find"):
        took(f"{block} takes in the same order", "3 2 6 1 7 4 5 8", block, tags="""'{"k": "v"}'""")
        took(f"{block} keeps to the budget", "3 2 6 1", block, tags="""'{"k": "v"}'""", budget=3.5)
        took(f"{block}_long has the other order", "5 6 3 7 2 1 8 4", block + "_long", tags="""'{"k": "v"}'""")
        took(f"{block}: no match, no job", "", block, tags="""'{"k": "x"}'""")
    s.say("UPDATE jobs SET priority = 5 WHERE id = 108; UPDATE jobs SET priority = -1 WHERE id = 103;")
    took("priority comes before size", "8 2 6 1 7 4 5 3", small)
    took("priority comes before length", "8 5 6 7 2 1 4 3", long)
    s.say("UPDATE jobs SET priority = 0;")


def two_sessions(s):
    s.say("INSERT INTO batch_jobs (id, owner_id, site_id, num_nodes, wall_time_min, job_mode, project, queue)"
          " VALUES (7, 1, 1, 1, 1, 'mpi', 'p', 'q'); UPDATE jobs SET session_id = NULL WHERE id BETWEEN 101 AND 108;")
    s.lease("lease_small_first", 70, n=2, batch_job_id="7::bigint")
    s.want("first of two sessions", TAKEN, "103 102")
    s.lease("lease_small_first", 71)
    s.want("second gets the rest, each once", "SELECT count(*) FROM got", "6")
    s.want("batch job bound, kept when the session has none",
           "SELECT string_agg(coalesce(batch_job_id::text, '-'), ' ' ORDER BY id) FROM jobs WHERE id BETWEEN 101 AND 104",
           "- 7 7 -")
    s.want("fence counts leases", "SELECT min(lease) > 1 FROM jobs WHERE id = 103", "true")
    for what, fence, stale in (("the lease it has", 0, ""), ("an older lease", -1, "103")):
        s.step([103], [None], leases=f"(SELECT ARRAY[lease + {fence}] FROM jobs WHERE id = 103)")
        s.want("a report under " + what, "SELECT coalesce(array_to_string(stale, ' '), '') FROM last", stale)
    s.want("acquire writes no event", history(103), "CREATED>PREPROCESSED")
    s.lease("lease_to_process", 71, states="'{STAGED_IN,RUN_DONE,RUN_ERROR,RUN_TIMEOUT}'")
    s.want("processing queue by id", TAKEN, "2 5 6 7 8 12 13 14")
    s.say("UPDATE jobs SET session_id = NULL WHERE id IN (12, 104);")
    s.lease("lease_any", 70, states="'{STAGED_IN,PREPROCESSED}'")
    s.want("a mixture of states", TAKEN, "12 104")


def ends(s):
    s.step([103, 104], "RUNNING")
    s.say("UPDATE jobs SET cancel = true WHERE id = 104; UPDATE sessions SET heartbeat = now() - interval '10 min' WHERE id = 70;")
    s.say("BEGIN; TRUNCATE got, last;")
    s.loop(s.call("session_stale", ttl="'5 min'", batch=100, by_age="true"), "INSERT INTO got VALUES (r.id);")
    s.want("the sweeper finds the stale one only", "SELECT string_agg(id::text, ' ') FROM got", "70")
    s.loop(s.call("session_end", sessions="(SELECT array_agg(id) FROM got)", batch="NULL"),
           "INSERT INTO last VALUES (r.freed, r.timed_out, r.owners);")
    s.say("COMMIT;")
    s.want("expiry: what was held, what ran, whose events",
           "SELECT matched || ' ' || moved || ' ' || finished::text FROM last", "4 2 {1}")
    s.want("expiry: RUNNING becomes RUN_TIMEOUT", state(103), "RUN_TIMEOUT")
    s.want("expiry: held ones are only freed", state(102), "PREPROCESSED")
    s.want("expiry: one event", history(103), "CREATED>PREPROCESSED PREPROCESSED>RUNNING "
           "RUNNING>RUN_TIMEOUT:Session 70 ended while the job was RUNNING")
    s.want("expiry: one to be cancelled is FAILED", history(104),
           "CREATED>PREPROCESSED PREPROCESSED>RUNNING RUNNING>FAILED:cancelled")
    s.want("... and the wish is over", "SELECT cancel FROM jobs WHERE id = 104", "false")
    s.step([103], [None], leases="(SELECT ARRAY[lease] FROM jobs WHERE id = 103)")
    s.want("a report after the session has ended", "SELECT array_to_string(stale, ' ') FROM last", "103")
    s.want("session gone, batch job stays on the job",
           "SELECT (SELECT count(*) FROM sessions WHERE id = 70) || ' ' || (SELECT batch_job_id FROM jobs WHERE id = 103)",
           "0 7")


def fields(s):
    s.say(s.call("job_fields", owner_id=1, ids="'{101,102}'", num_nodes="'{3,NULL}'", ranks_per_node="'{NULL,2}'",
                 node_packing_count="'{}'", wall_time_min="'{}'", pending_file_cleanup="'{NULL,f}'",
                 set_return_code="'{t,f}'", return_code="'{9,NULL}'", set_batch_job_id="'{f,t}'",
                 batch_job_id="'{NULL,NULL}'", priority="'{NULL,4}'"))
    s.want("fields: each item its own keys",
           "SELECT string_agg(concat_ws('/', num_nodes, ranks_per_node, pending_file_cleanup, return_code,"
           " coalesce(batch_job_id::text, '-'), priority), ' ' ORDER BY id) FROM jobs WHERE id IN (101, 102)",
           "3/1/t/9/-/0 1/2/f/-/4")
    empty = {k: "'{}'" for k in ("data", "launch_params", "threads_per_rank", "threads_per_core", "gpus_per_rank",
                                 "serialized_parameters", "serialized_return_value", "serialized_exception")}
    s.say(s.call("job_spec_fields", owner_id=1, ids="'{101,102}'", tags="""ARRAY['{"x": "y"}', NULL]::jsonb[]""",
                 workdir="'{NULL,elsewhere}'", parameters="""ARRAY[NULL, '{"n": 1}']::json[]""", set_retry="'{t,f}'",
                 retry="""ARRAY['{"max_attempts": 3}', NULL]::json[]""", **empty))
    s.want("cold fields: each item its own keys",
           "SELECT string_agg(concat_ws('/', tags, workdir, parameters, coalesce(retry::text, '-')), ' ' ORDER BY id)"
           " FROM job_specs WHERE id IN (101, 102)",
           '{"x": "y"}/w101/{}/{"max_attempts": 3} {"k": "v"}/elsewhere/{"n": 1}/-')
    s.say(s.call("job_spec_fields", owner_id=1, ids="'{101}'", tags="'{}'", workdir="'{}'", parameters="'{}'",
                 set_retry="'{t}'", retry="'{NULL}'", **empty))
    s.want("retry can be taken back", "SELECT coalesce(retry::text, '-') FROM job_specs WHERE id = 101", "-")
    s.say(s.call("job_delete", owner_id=1, ids="'{1,101,9,4}'"))
    s.want("delete keeps what is held",
           "SELECT string_agg(id::text, ' ' ORDER BY id) FROM jobs WHERE id IN (1, 4, 9, 101)", "101")
    s.want("... and takes events, items, edges along",
           "SELECT (SELECT count(*) FROM events WHERE job_id IN (1, 4, 9)) + (SELECT count(*) FROM transfer_items"
           " WHERE job_id IN (4, 9)) + (SELECT count(*) FROM job_parents WHERE child_id = 9)", "0")
    s.want("counts at the end", COUNTS, "0")
    s.say(s.call("fold_counts"))
    s.want("counts after folding", COUNTS, "0")
    s.want("... one row each",
           "SELECT count(*) FROM (SELECT 1 FROM job_counts GROUP BY owner_id, site_id, app_id, state HAVING count(*) > 1) AS d",
           "0")


def requests(s):
    key = "'0190f3a0-0000-7000-8000-000000000001'"
    claim = dict(owner_id=1, key=key, verb="'job.create'", body_hash="'\\x01'::bytea")
    s.say("TRUNCATE got;")
    s.loop(s.call("request_claim", **claim), "INSERT INTO got VALUES (1);")
    s.say(s.call("request_done", owner_id=1, key=key, reply="NULL::bytea", ids="'{5,6,7,9}'"))
    s.loop(s.call("request_claim", **claim), "INSERT INTO got VALUES (2);")
    s.want("a repeated request is claimed once", "SELECT string_agg(id::text, ' ') FROM got", "1")
    s.want("its ids are kept as ranges", "SELECT ids FROM requests", "{[5,8),[9,10)}")
    reply = s.call("request_reply", owner_id=1, key=key).rstrip(";\n")
    s.want("... and come back as numbers", f"SELECT ids FROM ({reply}) AS r", "{5,6,7,9}")
    s.say("UPDATE requests SET created = now() - interval '2 days';")
    s.say(s.call("request_expire", keep="'1 day'", batch=10))
    s.want("old requests are forgotten", "SELECT count(*) FROM requests", "0")


def partitions(s):
    s.say("SELECT setval('event_ids', 5);")
    s.loop(s.call("event_room"), "NULL;")
    s.want("no partition before it is needed", "SELECT to_regclass('events_2') IS NULL", "true")
    s.say("SELECT setval('event_ids', 1::bigint << 24);")
    s.loop(s.call("event_room"), "NULL;")
    s.want("the next partition when one is begun", "SELECT to_regclass('events_2') IS NOT NULL", "true")
    s.loop(s.call("event_room"), "IF r.made > 0 THEN RAISE 'made twice'; END IF;")
    s.say("DROP TABLE events_2; SELECT setval('event_ids', 9::bigint << 24);")
    s.loop(s.call("event_room"), "NULL;")
    s.want("whatever was missed, the one in use and the next are there",
           "SELECT to_regclass('events_9') IS NOT NULL AND to_regclass('events_10') IS NOT NULL", "true")


def make_script():
    s = Script()
    for part in (set_up, creation, steps, parents, transfers, leases, two_sessions, ends, fields, requests, partitions):
        part(s)
    return s


SCRIPT = make_script()


@pytest.fixture(scope="module")
def results(database):
    """What each rule came to, by its number. One session: the script has temporary tables."""
    lines = database.psql("\n".join(SCRIPT.lines))
    rows = [line.split("|", 2) for line in lines if line.startswith("rule|")]
    return {int(n): value for _, n, value in rows}


@pytest.mark.parametrize("number", range(len(SCRIPT.rules)), ids=SCRIPT.rules)
def test_rule(results, number):
    assert number in results, "the script ended before it"
    assert results[number] == "t", f"{SCRIPT.rules[number]}: was {results[number]!r}"


def test_every_invariant_holds_afterwards(results, database):
    """The statements of `abies-admin check`, on what the script left."""
    checks = (ROOT / "admin/check.sql").read_text().split("-- name: ")[1:]
    assert len(checks) >= 16
    for check in checks:
        name, _, sql = check.partition("\n")
        if name in ("check_leases", "check_event_room"):
            continue  # the script holds jobs by hand, and sets the sequence
        assert database.psql(sql)[0].startswith("0|"), name
