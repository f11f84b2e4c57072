"""What a change of state brings with it: events, locks, children, transfer items (contract job-states.md)."""
from datetime import datetime

import pytest

from api import AWARE, SLOTS, Tenant, expect

STATES = ["CREATED", "AWAITING_PARENTS", "READY", "STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE", "RUN_ERROR", "RUN_TIMEOUT", "RESTART_READY", "POSTPROCESSED", "STAGED_OUT", "JOB_FINISHED", "FAILED"]
IN = {"input": {"location_alias": "lab", "path": "/in"}}
OUT = {"output": {"location_alias": "lab", "path": "/out"}}


@pytest.fixture(scope="module")
def t(api_centre):
    return Tenant(api_centre)


@pytest.fixture(scope="module")
def place(t):
    return t.site()


@pytest.fixture(scope="module")
def app(t, place):
    return t.app(place, transfers=SLOTS)


def state(t, job):
    return t.read(f"/jobs/{job['id']}")["state"]


def items(t, job):
    return {i["direction"]: i for i in t.page("/transfers/", job_id=job["id"])["results"]}


def steps(t, job):
    return [(e["from_state"], e["to_state"], e["data"]) for e in t.events(job)]


# ------------------------------------------------------------------ 2 creation

@pytest.mark.parametrize("transfers, first", [({}, "STAGED_IN"), (IN, "READY"), (OUT, "STAGED_IN"), ({**IN, **OUT}, "READY")])
def test_the_first_state_and_event_of_a_job(t, app, transfers, first):
    job = t.job(app, transfers=transfers)
    (event,) = t.events(job)
    assert job["state"] == first and (event["from_state"], event["to_state"], event["data"]) == ("CREATED", first, {})
    assert event["timestamp"] + "+00:00" == job["last_update"] == t.read(f"/jobs/{job['id']}")["last_update"], "the same microsecond"


def test_jobs_of_one_call_have_one_time(t, app):
    jobs = expect(t.post("/jobs/", [{"workdir": f"time/{i}", "app_id": app["id"]} for i in range(5)]), 201)
    stamps = {e["timestamp"] for e in t.page("/events/", *[("job_id", j["id"]) for j in jobs])["results"]}
    assert len(stamps) == 1 and stamps == {j["last_update"].removesuffix("+00:00") for j in jobs}


@pytest.mark.parametrize("parent_state", [s for s in STATES if s not in ("STAGED_OUT", "READY", "POSTPROCESSED")])
def test_a_child_waits_unless_its_parent_is_finished(t, app, parent_state):
    parent = t.job(app)
    t.set_state(parent, parent_state)
    child = t.job(app, parent_ids=[parent["id"]])
    assert child["state"] == ("STAGED_IN" if parent_state == "JOB_FINISHED" else "AWAITING_PARENTS")
    assert child["parent_ids"] == [parent["id"]]


# ------------------------------------------------------------------ 3 updates

def test_any_state_may_follow_any_other(t, app):
    job = t.job(app)
    direct = [s for s in STATES if s not in ("READY", "POSTPROCESSED", "STAGED_OUT")]
    for here in direct:
        for there in direct[::4]:
            t.set_state(job, here)
            t.set_state(job, there)
            assert state(t, job) == there


@pytest.mark.parametrize("body", [{}, {"state": None}, {"state": "STAGED_IN"}, {"state": "STAGED_IN", "num_nodes": 2, "state_data": {"x": 1}}])
def test_the_same_state_is_no_change_and_no_event(t, app, body):
    job = t.job(app)
    expect(t.put(f"/jobs/{job['id']}", body), 200, 1)
    got = t.read(f"/jobs/{job['id']}")
    assert t.history(job) == ["STAGED_IN"] and got["num_nodes"] == body.get("num_nodes", 1)
    assert got["last_update"] > job["last_update"], "every row that is named gets the time of the call"


def test_ready_without_open_stage_in_is_staged_in(t, app):
    job = t.job(app)
    t.set_state(job, "FAILED")
    t.set_state(job, "READY", state_data={"message": "mine", "other": [1]})
    assert state(t, job) == "STAGED_IN" and steps(t, job)[-1] == ("FAILED", "STAGED_IN", {"message": "Skipped stage in", "other": [1]})
    waiting = t.job(app, transfers=IN)
    t.set_state(waiting, "FAILED")
    t.set_state(waiting, "READY", state_data={"message": "mine"})
    assert steps(t, waiting)[-1] == ("FAILED", "READY", {"message": "mine"})


def test_postprocessed_without_open_stage_out_is_finished(t, app):
    for transfers in ({}, IN):
        job = t.job(app, transfers=transfers)
        if transfers:
            expect(t.put(f"/transfers/{items(t, job)['in']['id']}", {"state": "done"}), 200)
        t.set_state(job, "RUN_DONE")
        t.set_state(job, "POSTPROCESSED", state_data={"k": "v"})
        assert steps(t, job)[-1] == ("RUN_DONE", "JOB_FINISHED", {"k": "v", "message": "Skipped stage out"})


def test_postprocessed_releases_stage_out(t, app):
    job = t.job(app, transfers=OUT)
    assert items(t, job)["out"]["state"] == "awaiting_job"
    t.set_state(job, "POSTPROCESSED")
    assert state(t, job) == "POSTPROCESSED" and items(t, job)["out"]["state"] == "pending"
    t.set_state(job, "STAGED_OUT")
    assert state(t, job) == "JOB_FINISHED" and items(t, job)["out"]["state"] == "pending"
    assert steps(t, job)[-1] == ("POSTPROCESSED", "JOB_FINISHED", {})


def test_the_time_and_data_of_a_change_are_the_clients(t, app):
    job = t.job(app)
    past = datetime(2020, 1, 2, 3, 4, 5, 6)
    t.set_state(job, "PREPROCESSED", state_timestamp=past.isoformat(), state_data={"num_nodes": 0.5, "deep": {"x": [None]}})
    event = t.page("/events/", job_id=job["id"], to_state="PREPROCESSED")["results"][0]
    assert event["timestamp"] == "2020-01-02T03:04:05.000006" and event["data"] == {"num_nodes": 0.5, "deep": {"x": [None]}}
    assert t.history(job) == ["PREPROCESSED", "STAGED_IN"], "lists follow the time"
    got = t.read(f"/jobs/{job['id']}")
    assert "state_timestamp" not in got and "state_data" not in got
    before = datetime.utcnow()
    t.set_state(job, "RUNNING", state_data={})
    assert before <= datetime.fromisoformat(t.page("/events/", job_id=job["id"], to_state="RUNNING")["results"][0]["timestamp"]) <= datetime.utcnow()


def test_one_call_has_one_last_update(t, app):
    jobs = t.jobs(app) + t.jobs(app)
    expect(t.patch("/jobs/", [{"id": jobs[0]["id"]}, {"id": jobs[1]["id"], "state": "PREPROCESSED"}]), 200, 2)
    stamps = {t.read(f"/jobs/{j['id']}")["last_update"] for j in jobs}
    assert len(stamps) == 1 and AWARE.match(*stamps)


def test_ten_jobs_of_three_steps_have_thirty_events(fresh):
    app = fresh.app(fresh.site())
    jobs = [fresh.job(app) for _ in range(10)]
    for s in ("PREPROCESSED", "RUNNING"):
        expect(fresh.put("/jobs/", {"state": s}), 200, 10)
    assert fresh.page("/events/")["count"] == 30
    stamps = [e["timestamp"] for e in fresh.events(jobs[0])]
    assert stamps == sorted(set(stamps))


# ------------------------------------------------------------------ 4 parents and children

def test_children_start_when_their_last_parent_is_finished(t, app):
    a, b = t.job(app), t.job(app)
    both, one, wet = t.job(app, parent_ids=[a["id"], b["id"]]), t.job(app, parent_ids=[a["id"]]), t.job(app, parent_ids=[a["id"]], transfers=IN)
    t.set_state(a, "POSTPROCESSED")
    assert [state(t, j) for j in (a, both, one, wet)] == ["JOB_FINISHED", "AWAITING_PARENTS", "STAGED_IN", "READY"]
    assert steps(t, one)[-1] == ("AWAITING_PARENTS", "STAGED_IN", {"message": "Skipped stage in"})
    assert steps(t, wet)[-1] == ("AWAITING_PARENTS", "READY", {"message": "All parents finished"})
    t.set_state(b, "JOB_FINISHED")
    assert state(t, both) == "STAGED_IN"


def test_both_parents_in_one_call_release_the_child_once(t, app):
    a, b = t.job(app), t.job(app)
    child = t.job(app, parent_ids=[a["id"], b["id"]])
    t.set_state([a, b], "JOB_FINISHED")
    assert t.history(child) == ["AWAITING_PARENTS", "STAGED_IN"]


def test_a_failed_parent_changes_nothing_until_it_is_repaired(t, app):
    parent = t.job(app)
    child = t.job(app, parent_ids=[parent["id"]])
    grandchild = t.job(app, parent_ids=[child["id"]])
    t.set_state(parent, "FAILED")
    assert state(t, child) == state(t, grandchild) == "AWAITING_PARENTS"
    t.set_state(parent, "JOB_FINISHED")
    assert state(t, child) == "STAGED_IN" and state(t, grandchild) == "AWAITING_PARENTS"
    t.set_state(child, "AWAITING_PARENTS")
    t.set_state(parent, "JOB_FINISHED")
    assert state(t, child) == "AWAITING_PARENTS", "no change of the parent, no look at its children"


def test_a_child_may_be_moved_by_hand(t, app):
    child = t.job(app, parent_ids=[t.job(app)["id"]])
    t.set_state(child, "PREPROCESSED")
    assert state(t, child) == "PREPROCESSED"


def test_a_deleted_parent_stays_in_the_list_and_the_child_waits(t, app):
    a, b = t.job(app), t.job(app)
    child = t.job(app, parent_ids=[a["id"], b["id"]])
    expect(t.delete(f"/jobs/{a['id']}"), 204)
    t.set_state(b, "JOB_FINISHED")
    got = t.read(f"/jobs/{child['id']}")
    assert got["state"] == "AWAITING_PARENTS" and sorted(got["parent_ids"]) == [a["id"], b["id"]]
    assert t.ids("/jobs/", parent_id=a["id"]) == [child["id"]]


# ------------------------------------------------------------------ 5 transfers move jobs

def test_the_last_stage_in_makes_a_job_staged_in(t, place):
    app = t.app(place, transfers={"a": SLOTS["input"], "b": SLOTS["input"], "c": SLOTS["output"]})
    job = t.job(app, transfers={s: {"location_alias": "lab", "path": f"/{s}"} for s in "abc"})
    a, b = [i for i in t.page("/transfers/", job_id=job["id"])["results"] if i["direction"] == "in"]
    expect(t.put(f"/transfers/{a['id']}", {"state": "done"}), 200)
    for s in ("active", "inactive", "error"):
        expect(t.put(f"/transfers/{b['id']}", {"state": s, "transfer_info": {"error": "x"}}), 200)
        assert state(t, job) == "READY"
    before = datetime.utcnow()
    expect(t.put(f"/transfers/{b['id']}", {"state": "done"}), 200)
    event = t.events(job)[-1]
    assert state(t, job) == "STAGED_IN" and (event["from_state"], event["to_state"], event["data"]) == ("READY", "STAGED_IN", {})
    assert before <= datetime.fromisoformat(event["timestamp"]) <= datetime.utcnow()
    assert t.ids("/events/", job_id=job["id"], to_state="STAGED_IN") == [event["id"]]
    expect(t.put(f"/transfers/{b['id']}", {"state": "pending"}), 200)
    assert state(t, job) == "STAGED_IN"


def test_one_patch_of_items_moves_each_job_once(t, app):
    jobs = [t.job(app, transfers=IN) for _ in range(3)]
    ids = [items(t, j)["in"]["id"] for j in jobs]
    got = expect(t.patch("/transfers/", [{"id": i, "state": "done"} for i in reversed(ids)]), 200)
    assert sorted(i["id"] for i in got) == ids and {i["state"] for i in got} == {"done"}
    assert all(t.history(j) == ["READY", "STAGED_IN"] for j in jobs)


def test_early_stage_in_is_remembered(t, app):
    parent = t.job(app)
    child = t.job(app, parent_ids=[parent["id"]], transfers=IN)
    assert items(t, child)["in"]["state"] == "pending"
    expect(t.put(f"/transfers/{items(t, child)['in']['id']}", {"state": "done"}), 200)
    assert state(t, child) == "AWAITING_PARENTS"
    t.set_state(parent, "JOB_FINISHED")
    assert steps(t, child)[-1] == ("AWAITING_PARENTS", "STAGED_IN", {"message": "Skipped stage in"})


def test_the_last_stage_out_finishes_the_job_and_releases_its_children(t, app):
    job = t.job(app, transfers=OUT)
    child = t.job(app, parent_ids=[job["id"]])
    t.set_state(job, "POSTPROCESSED")
    expect(t.put(f"/transfers/{items(t, job)['out']['id']}", {"state": "done"}), 200)
    assert steps(t, job)[-1] == ("POSTPROCESSED", "JOB_FINISHED", {})
    assert state(t, child) == "STAGED_IN"


@pytest.mark.parametrize("here", ["PREPROCESSED", "RUNNING", "FAILED", "AWAITING_PARENTS"])
def test_items_do_not_move_jobs_of_other_states(t, app, here):
    job = t.job(app, transfers=IN)
    t.set_state(job, here)
    expect(t.put(f"/transfers/{items(t, job)['in']['id']}", {"state": "done"}), 200)
    assert state(t, job) == here


# ------------------------------------------------------------------ 7, 9 sessions and jobs

def test_running_keeps_the_lock_and_the_end_of_the_run_frees_it(t, place, app):
    app = t.app(place)
    job = t.job(app)
    t.set_state(job, "PREPROCESSED")
    b = t.batch_job(place)
    session = t.session(place, batch_job_id=b["id"])
    assert [j["id"] for j in t.acquire(session, app_ids=[app["id"]], filter_tags={}, max_num_jobs=1)] == [job["id"]]
    got = []
    for s in ("RUNNING", "RUNNING", "RUN_DONE"):
        t.set_state(job, s)
        row = t.read(f"/jobs/{job['id']}")
        got.append((row["session_id"], row["batch_job_id"]))
    assert got == [(session["id"], b["id"])] * 2 + [(None, b["id"])]
    assert t.history(job) == ["STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE"], "acquiring writes no event"
    expect(t.put(f"/batch-jobs/{b['id']}", {"scheduler_id": 424242}), 200)
    assert len(t.ids("/events/", scheduler_id=424242)) == len(t.ids("/events/", batch_job_id=b["id"])) == 4
    expect(t.delete(f"/sessions/{session['id']}"), 204)


def test_the_end_of_a_session_times_out_what_runs_and_frees_the_rest(t, place, app):
    app = t.app(place)
    running, held = t.job(app), t.job(app)
    t.set_state([running, held], "RESTART_READY")
    session = t.session(place)
    assert {j["id"] for j in t.acquire(session, states=["RESTART_READY"], app_ids=[app["id"]])} == {running["id"], held["id"]}
    t.set_state(running, "RUNNING")
    before = t.read(f"/jobs/{held['id']}")["last_update"]
    expect(t.delete(f"/sessions/{session['id']}"), 204)
    r, h = (t.read(f"/jobs/{j['id']}") for j in (running, held))
    assert (r["state"], r["session_id"], h["state"], h["session_id"]) == ("RUN_TIMEOUT", None, "RESTART_READY", None)
    assert h["last_update"] == before and len(t.events(held)) == 2
    event = t.events(running)[-1]
    assert (event["from_state"], event["to_state"]) == ("RUNNING", "RUN_TIMEOUT") and isinstance(event["data"]["message"], str)
    t.set_state(running, "RUN_DONE")
    assert t.history(running)[-2:] == ["RUN_TIMEOUT", "RUN_DONE"], "a late report is accepted"


def test_a_lost_lease_can_be_asked_for(t, place, app):
    """Ours: `lease` in an update refuses it when another lease is current."""
    app = t.app(place)
    job = t.job(app)
    t.set_state(job, "PREPROCESSED")
    session = t.session(place)
    (got,) = t.acquire(session, app_ids=[app["id"]])
    expect(t.patch("/jobs/", [{"id": job["id"], "state": "RUNNING", "lease": got["lease"]}]), 200, 1)
    body = expect(t.patch("/jobs/", [{"id": job["id"], "state": "RUN_DONE", "lease": got["lease"] + 1}]), 409)
    assert body["items"][0]["id"] == job["id"] and state(t, job) == "RUNNING"
    expect(t.delete(f"/sessions/{session['id']}"), 204)
