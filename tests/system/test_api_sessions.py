"""Leases: acquiring, order, budgets, expiry (contract sessions.md)."""
import threading
from datetime import datetime

import pytest

from api import ABSENT, AWARE, NAIVE, expect, issues
from centre import wait_for
from fresh import app, place, t  # noqa: F401 (fixtures)

MISSING = ("value_error.missing", "field required")


def runnable(t, app, *shapes, state="PREPROCESSED"):
    """Jobs in that order of ids."""
    jobs = expect(t.post("/jobs/", [{"workdir": f"j/{app['id']}/{i}", "app_id": app["id"], **shape} for i, shape in enumerate(shapes)]), 201)
    t.set_state(jobs, state)
    return jobs


def acquired(t, session, **spec):
    return [j["id"] for j in t.acquire(session, **spec)]


# ------------------------------------------------------------------ 1 the object

def test_a_session_is_made_at_a_site(t, place):
    before = datetime.utcnow()
    session = t.session(place)
    assert before <= datetime.fromisoformat(session["heartbeat"]) <= datetime.utcnow() and NAIVE.match(session["heartbeat"])
    assert session == {"id": session["id"], "site_id": place["id"], "batch_job_id": None, "heartbeat": session["heartbeat"]}
    b = t.batch_job(place)
    assert t.session(place, batch_job_id=b["id"])["batch_job_id"] == b["id"]
    assert t.page("/sessions/")["count"] == 2


def test_a_batch_job_of_another_site_or_none_is_400(t, place):
    other = t.site()
    b = t.batch_job(other)
    for body in ({"site_id": place["id"], "batch_job_id": b["id"]}, {"site_id": place["id"], "batch_job_id": ABSENT}, {"site_id": ABSENT}, {"site_id": ABSENT, "batch_job_id": b["id"]}):
        assert isinstance(expect(t.post("/sessions/", body), 400)["detail"], str)
    assert issues(t.post("/sessions/", {})) == {("body", "site_id"): MISSING}
    assert t.page("/sessions/")["count"] == 0


def test_each_sign_of_life_moves_the_heartbeat(t, place):
    session = t.session(place)
    beats = [session["heartbeat"]]
    for call in (lambda: t.acquire(session), lambda: expect(t.put(f"/sessions/{session['id']}"), 200), lambda: expect(t.post(f"/sessions/{session['id']}/heartbeat", {}), 200)):
        before = datetime.utcnow()
        call()
        beats.append(t.page("/sessions/")["results"][0]["heartbeat"])
        assert before <= datetime.fromisoformat(beats[-1]) <= datetime.utcnow()
    assert beats == sorted(set(beats))


def test_our_heartbeat_tells_of_lost_and_cancelled_jobs(t, place, app):
    jobs = runnable(t, app, {}, {})
    session = t.session(place)
    t.acquire(session)
    t.set_state(jobs, "RUNNING")
    expect(t.post(f"/jobs/{jobs[0]['id']}/cancel", {}), 200)
    got = expect(t.post(f"/sessions/{session['id']}/heartbeat", {"jobs": [jobs[0]["id"], jobs[1]["id"], ABSENT]}), 200)
    assert got["cancel"] == [jobs[0]["id"]] and got["lost"] == [ABSENT] and 0 < got["expires_in_sec"] <= 5


# ------------------------------------------------------------------ 2 the request

@pytest.mark.parametrize("body, locs", [
    ({}, {("body", "max_num_jobs"), ("body", "filter_tags")}), ({"max_num_jobs": 0, "filter_tags": {}}, {("body", "max_num_jobs")}), ({"max_num_jobs": 2049, "filter_tags": {}}, {("body", "max_num_jobs")}),
    ({"max_num_jobs": 1, "filter_tags": {}, "states": ["x"]}, {("body", "states", 0)}), ({"max_num_jobs": 1, "filter_tags": {}, "max_aggregate_nodes": "x"}, {("body", "max_aggregate_nodes")}),
    ({"max_num_jobs": 1, "filter_tags": None}, {("body", "filter_tags")}), ({"max_num_jobs": 1, "filter_tags": {}, "app_ids": ["x"]}, {("body", "app_ids", 0)})])
def test_an_acquire_is_checked(t, place, body, locs):
    session = t.session(place)
    assert issues(t.post(f"/sessions/{session['id']}", body)).keys() == locs


def test_the_filters_of_an_acquire(t, place, app):
    other = t.app(place)
    a, b, c, d = runnable(t, app, {"tags": {"k": "1"}, "wall_time_min": 60}, {"num_nodes": 4}, {"ranks_per_node": 2}, {"tags": {"k": "1", "m": "2"}}, state="PREPROCESSED")
    (e,) = runnable(t, other, {}, state="RESTART_READY")
    (f,) = runnable(t, other, {}, state="STAGED_IN")
    everything = {j["id"] for j in (a, b, c, d, e)}

    def take(**spec):
        session = t.session(place)
        got = {j["id"] for j in t.acquire(session, **spec)}
        expect(t.delete(f"/sessions/{session['id']}"), 204)
        return got

    assert take() == everything == take(unknown_key=1, max_wall_time_min=0, max_nodes_per_job=0, sort_by="anything", app_ids=[])
    assert take(filter_tags={"k": 1}) == {a["id"], d["id"]} and take(filter_tags={"k": "1", "m": "2"}) == {d["id"]} and take(filter_tags={"k": "2"}) == set()
    assert take(states=[]) == set() and take(states=["STAGED_IN"]) == {f["id"]} and take(states=["STAGED_IN", "RESTART_READY"]) == {e["id"], f["id"]}
    assert take(app_ids=[other["id"]]) == {e["id"]} and take(app_ids=[ABSENT]) == set()
    assert take(max_wall_time_min=59.9) == everything - {a["id"]} and take(max_wall_time_min=60) == everything and take(max_wall_time_min=-1) == set()
    assert take(max_nodes_per_job=3) == everything - {b["id"]}
    assert take(serial_only=True) == everything - {b["id"], c["id"]}
    assert take(max_aggregate_nodes=0) == set()


def test_a_session_takes_only_jobs_of_its_site(t, place, app):
    there = t.site()
    runnable(t, app, {})
    (job,) = runnable(t, t.app(there), {})
    assert acquired(t, t.session(there)) == [job["id"]]


# ------------------------------------------------------------------ 3 selection

PROBED = [(1, 1, 5), (1, 4, 5), (1, 4, 50), (2, 1, 0), (4, 1, 100), (1, 1, 90), (2, 1, 30), (8, 1, 0)]


@pytest.mark.parametrize("spec, order", [
    ({"max_aggregate_nodes": 100}, [2, 1, 5, 0, 6, 3, 4, 7]), ({"max_aggregate_nodes": 3.5}, [2, 1, 5, 0]), ({"max_aggregate_nodes": 3.5, "sort_by": "long_large_first"}, []),
    ({"max_aggregate_nodes": 4, "sort_by": "long_large_first"}, [4]), ({"max_aggregate_nodes": 3, "max_num_jobs": 3}, [2, 1, 5]),
    ({"max_aggregate_nodes": 100, "sort_by": "long_large_first"}, [4, 5, 2, 6, 1, 0, 7, 3])])
def test_packing_takes_a_strict_prefix_in_the_contracts_order(t, place, app, spec, order):
    jobs = runnable(t, app, *[{"num_nodes": n, "node_packing_count": p, "wall_time_min": w} for n, p, w in PROBED])
    got = acquired(t, t.session(place), **spec)
    assert [next(i for i, j in enumerate(jobs) if j["id"] == x) for x in got] == order


def test_the_first_takes_two_and_the_second_the_rest(t, place, app):
    jobs = runnable(t, app, *[{"num_nodes": 3 - i % 3} for i in range(10)])
    one, two = t.session(place), t.session(place)
    first, second = acquired(t, one, max_num_jobs=2), acquired(t, two, max_num_jobs=1000)
    assert len(first) == 2 and len(second) == 8 and sorted(first + second) == [j["id"] for j in jobs]
    assert acquired(t, one, max_num_jobs=1000) == []


def test_without_a_budget_the_order_is_the_default_one_and_sort_by_has_no_effect(t, place, app):
    jobs = runnable(t, app, *[{"num_nodes": n, "node_packing_count": p, "wall_time_min": w} for n, p, w in PROBED])
    for spec in ({}, {"sort_by": "long_large_first"}):
        session = t.session(place)
        assert acquired(t, session, **spec) == [jobs[i]["id"] for i in (2, 1, 5, 0, 6, 3, 4, 7)]
        expect(t.delete(f"/sessions/{session['id']}"), 204)


def test_the_budget_of_five_nodes(t, place, app):
    jobs = runnable(t, app, *[{"num_nodes": 2}] * 4, *[{"node_packing_count": 8}] * 8)
    got = acquired(t, t.session(place), max_aggregate_nodes=5)
    assert set(got[:8]) == {j["id"] for j in jobs[4:]} and got[8:] == [j["id"] for j in jobs[:2]]
    assert len(acquired(t, t.session(place))) == 2


def test_constraints_then_wider_ones(t, place, app):
    runnable(t, app, *[{}] * 4, *[{"wall_time_min": 40}] * 4, *[{"num_nodes": 8}] * 6, *[{"wall_time_min": 41}] * 2, *[{"num_nodes": 9}] * 2)
    session = t.session(place)
    assert len(acquired(t, session, serial_only=True, max_nodes_per_job=1, max_wall_time_min=40)) == 8
    assert len(acquired(t, session, max_nodes_per_job=8, max_wall_time_min=40)) == 6


def test_what_an_acquire_does_to_the_rows(t, place, app):
    (job,) = runnable(t, app, {})
    before = t.read(f"/jobs/{job['id']}")
    b = t.batch_job(place)
    with_batch, without = t.session(place, batch_job_id=b["id"]), t.session(place)
    (got,) = t.acquire(with_batch)
    assert got["session_id"] == with_batch["id"] and got["batch_job_id"] == b["id"] and got["state"] == "PREPROCESSED" and AWARE.match(got["last_update"])
    assert got["last_update"] == before["last_update"], "the answer has the old one"
    row = t.read(f"/jobs/{job['id']}")
    assert row["last_update"] > before["last_update"] and row["session_id"] == with_batch["id"] and t.history(job) == ["STAGED_IN", "PREPROCESSED"]
    assert {**got, "last_update": 0} == {**row, "last_update": 0}
    t.set_state(job, "RUN_DONE")
    (again,) = t.acquire(without, states=["RUN_DONE"])
    assert again["batch_job_id"] == b["id"], "a session without batch job leaves the last one"
    assert t.read(f"/jobs/{job['id']}")["session_id"] == without["id"]


def test_a_hook_that_changes_nothing_leaves_the_job_held(t, place, app):
    (job,) = runnable(t, app, {}, state="STAGED_IN")
    session = t.session(place)
    assert acquired(t, session, states=["STAGED_IN", "RUN_DONE", "RUN_ERROR", "RUN_TIMEOUT"]) == [job["id"]]
    expect(t.put(f"/jobs/{job['id']}", {"data": {"x": 1}, "state": "STAGED_IN"}), 200)
    assert t.read(f"/jobs/{job['id']}")["session_id"] == session["id"]
    t.set_state(job, "PREPROCESSED")
    assert t.read(f"/jobs/{job['id']}")["session_id"] is None


def test_two_acquirers_never_get_the_same_job(t, place, app):
    jobs = runnable(t, app, *[{}] * 200)
    others = [t.twin() for _ in range(4)]
    got = [[] for _ in others]

    def work(n):
        session = others[n].session(place)
        while ids := acquired(others[n], session, max_num_jobs=7, **({"max_aggregate_nodes": 5} if n % 2 else {})):
            got[n] += ids

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(others))]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    assert sorted(sum(got, [])) == [j["id"] for j in jobs]


def test_jobs_are_there_again_after_the_session_is_deleted(t, place, app):
    jobs = runnable(t, app, {}, {}, {})
    for _ in range(2):
        session = t.session(place)
        assert acquired(t, session, app_ids=[app["id"]]) == [j["id"] for j in jobs]
        expect(t.delete(f"/sessions/{session['id']}"), 204)
        expect(t.put(f"/sessions/{session['id']}"), 404)


# ------------------------------------------------------------------ 5 staleness (the test centre ends sessions after 5 s)

def test_a_silent_session_ends_and_its_jobs_are_free(t, place, app):
    running, held = runnable(t, app, {}, {})
    silent, lively = t.session(place), t.session(place)
    assert len(t.acquire(silent)) == 2
    t.set_state(running, "RUNNING")

    def gone():
        assert t.put(f"/sessions/{lively['id']}").status_code == 200
        return t.put(f"/sessions/{silent['id']}/", timeout=10).status_code == 404 if t.page("/sessions/")["count"] == 1 else False

    wait_for(gone, 20, "the end of the silent session", every=0.2)
    assert t.ids("/sessions/") == [lively["id"]]
    assert [t.read(f"/jobs/{j['id']}")["state"] for j in (running, held)] == ["RUN_TIMEOUT", "PREPROCESSED"]
    assert all(t.read(f"/jobs/{j['id']}")["session_id"] is None for j in (running, held))
    assert "session" in t.events(running)[-1]["data"]["message"].lower()


def test_a_session_ends_when_its_batch_job_is_finished(t, place, app):
    (job,) = runnable(t, app, {})
    b, other = t.batch_job(place), t.batch_job(place)
    expect(t.put(f"/batch-jobs/{other['id']}", {"state": "submit_failed"}), 200)
    session, kept = t.session(place, batch_job_id=b["id"]), t.session(place, batch_job_id=other["id"])
    t.acquire(session)
    t.set_state(job, "RUNNING")
    expect(t.put(f"/batch-jobs/{b['id']}", {"state": "finished"}), 200)

    def gone():
        expect(t.put(f"/sessions/{kept['id']}"), 200)
        t.put(f"/sessions/{session['id']}")  # signs of life do not help it
        return t.ids("/sessions/") == [kept["id"]]

    wait_for(gone, 20, "the end of the session", every=0.2)
    got = t.read(f"/jobs/{job['id']}")
    assert (got["state"], got["session_id"], got["batch_job_id"]) == ("RUN_TIMEOUT", None, b["id"])
