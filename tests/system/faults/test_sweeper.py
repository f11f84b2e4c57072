"""The sweeper: in one replica at a time, taken over when that one dies or freezes in the middle; and what a launcher is told whose
lease it has ended."""
import time
import uuid

import pytest

from centre import wait_for
from mesh import Load

PERIODS = {"sweep_period": "300ms", "session_ttl": "2s"}
ONLY_SWEEPS = {**PERIODS, "wake_period": "1h", "house_period": "1h", "figures_period": "1h"}  # so that a fault of timers is one of the sweep


@pytest.fixture
def place(mesh):
    """Everything but the sessions service; a user, a site, an app."""
    gateway = mesh.gateway(join="1s")
    others = [mesh.service(role) for role in ("auth", "jobs", "transfers")]
    for p in others:
        p.ready()
    wait_for(lambda: gateway.health("/readyz").text == "no replica of sessions\n", 10, "the others are there")
    gateway.logged("gateway.open")
    user = mesh.user()
    return user, *mesh.app(user)


def runnable(mesh, user, app, n):
    rows = [{"app_id": app, "workdir": uuid.uuid4().hex} for _ in range(n)]
    ids = [j["id"] for j in mesh.call(user, "POST", "/jobs/", rows, 201).json()]
    mesh.call(user, "PATCH", "/jobs/", [{"id": i, "state": "PREPROCESSED"} for i in ids], 200)
    return ids


def session_of(mesh, user, site, n):
    """A session with n jobs, running; (its id, [(job, lease)])."""
    session = mesh.call(user, "POST", "/sessions/", {"site_id": site}, 201).json()["id"]
    got = mesh.call(user, "POST", f"/sessions/{session}", {"max_num_jobs": n, "filter_tags": {}}, 200).json()
    assert len(got) == n
    mesh.call(user, "PATCH", "/jobs/", [{"id": j["id"], "state": "RUNNING", "lease": j["lease"]} for j in got], 200)
    return session, [(j["id"], j["lease"]) for j in got]


def history(mesh, user, job):
    return [e["to_state"] for e in mesh.call(user, "GET", f"/events/?job_id={job}&ordering=timestamp", status=200).json()["results"]]


@pytest.mark.parametrize("fault, bound", [("kill", 3), ("stop", 10)])
def test_a_sweeper_that_dies_or_freezes_in_the_middle_is_followed_by_another(mesh, place, fault, bound):
    """Its transaction ends with its connection, or, if it freezes, after idle_in_transaction_session_timeout."""
    user, site, app = place
    other = mesh.service("sessions", **{**ONLY_SWEEPS, "sweep_period": "1h"}).ready()
    (job,) = runnable(mesh, user, app, 1)
    batch = mesh.call(user, "POST", "/batch-jobs/", {"site_id": site, "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 1, "job_mode": "mpi"}, 201).json()["id"]
    session = mesh.call(user, "POST", "/sessions/", {"site_id": site, "batch_job_id": batch}, 201).json()["id"]
    (got,) = mesh.call(user, "POST", f"/sessions/{session}", {"max_num_jobs": 1, "filter_tags": {}}, 200).json()
    mesh.call(user, "PATCH", "/jobs/", [{"id": job, "state": "RUNNING", "lease": got["lease"]}], 200)
    mesh.call(user, "PUT", f"/batch-jobs/{batch}", {"state": "finished"}, 200)  # over, and nobody sweeps yet
    other.leave()
    mesh.service("sessions", **ONLY_SWEEPS, env={"ABIES_FAULT": f"timer.before_commit:{fault}:1"})
    first = mesh.of("sessions")[-1]
    wait_for(lambda: not first.alive() or "T" in open(f"/proc/{first.process.pid}/stat").read().rpartition(")")[2].split()[0], 20, "it ends in mid-sweep")
    assert history(mesh, user, job)[-1] == "RUNNING", "nothing of it has happened"
    begin = time.monotonic()
    mesh.service("sessions", **ONLY_SWEEPS).ready()
    wait_for(lambda: history(mesh, user, job)[-1] == "RESTART_READY" or "RUN_TIMEOUT" in history(mesh, user, job), 20, "another sweeps")
    assert time.monotonic() - begin < bound
    if fault == "stop":
        first.thaw()
        time.sleep(0.5)
    assert history(mesh, user, job).count("RUN_TIMEOUT") == 1


def test_requests_do_not_wait_for_the_sweeper(mesh, place):
    """It works beside them: two replicas end many sessions while calls go on at their own pace."""
    user, site, app = place
    for _ in range(2):
        mesh.service("sessions", **PERIODS).ready()
    ids = runnable(mesh, user, app, 100)
    for _ in range(20):
        session_of(mesh, user, site, 5)
    living = mesh.call(user, "POST", "/sessions/", {"site_id": site}, 201).json()["id"]
    with Load(lambda n: mesh.call(user, "PUT", f"/sessions/{living}", status=200), clients=2, pause=0.05) as load:
        wait_for(lambda: len(mesh.call(user, "GET", "/sessions/", status=200).json()["results"]) == 1, 20, "the silent ones are ended")
    load.check(longest=1.5)
    assert all(history(mesh, user, i).count("RUN_TIMEOUT") == 1 for i in ids[::10])


def test_a_report_under_a_lost_lease_is_409_and_changes_nothing(mesh, place):
    user, site, app = place
    mesh.service("sessions", **PERIODS).ready()
    runnable(mesh, user, app, 2)
    _, ((job, lease), (second, second_lease)) = session_of(mesh, user, site, 2)
    wait_for(lambda: "RUN_TIMEOUT" in history(mesh, user, job), 20, "its launcher is silent for too long")
    mesh.call(user, "PATCH", "/jobs/", [{"id": job, "state": "RESTART_READY"}], 200)
    living, ((again, fresh),) = session_of(mesh, user, site, 1)
    assert again == job and fresh > lease

    def row(i):
        return mesh.query("SELECT state, lease, session_id, last_update FROM jobs WHERE id = %s", i)[0]
    before = row(job), row(second), history(mesh, user, job), history(mesh, user, second)
    lost = mesh.call(user, "PATCH", "/jobs/", [{"id": job, "state": "RUN_DONE", "lease": lease}, {"id": second, "state": "RUN_DONE"}], 409).json()
    assert [(i["id"], i["index"]) for i in lost["items"]] == [(job, 0)], "it is named, so that the launcher drops it and sends the rest"
    assert (row(job), row(second), history(mesh, user, job), history(mesh, user, second)) == before
    mesh.call(user, "PUT", f"/jobs/{job}", {"state": "RUN_DONE", "lease": lease}, 409)
    assert row(job) == before[0]
    mesh.call(user, "PUT", f"/sessions/{living}", status=200)
    mesh.call(user, "PATCH", "/jobs/", [{"id": job, "state": "RUN_DONE", "lease": fresh}], 200)
    mesh.call(user, "PATCH", "/jobs/", [{"id": second, "state": "RUN_DONE"}], 200)  # an old client sends none: the contract takes it
    assert history(mesh, user, second)[-1] == "RUN_DONE"
