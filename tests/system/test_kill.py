"""Nothing is lost when a process dies: the workflow runs, each process is killed in turn, the result is right.

Lease and heartbeat times are settings; here they are seconds."""
import os
import signal
import time

import pytest

from centre import Centre, alive, processes_with, command_line, temporary_folder, wait_for
from workflow import Eigen

INTERRUPTED = ["RUNNING", "RUN_TIMEOUT", "RESTART_READY", "RUNNING", "RUN_DONE", "JOB_FINISHED"]
SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "beat": "250ms", "dead": "1500ms"}


@pytest.fixture(scope="module")
def centre():
    folder = temporary_folder("kill")
    with Centre(folder, gateways=2, replicas={"jobs": 2, "sessions": 2, "transfers": 2, "auth": 2}, settings=SETTINGS, patient=True) as centre:
        yield centre
        for site in centre.sites:
            site.stop()
        centre.check()
        # What belongs to the centre is named in its run folder; anything else that carries the folder's name has been left behind.
        ours = {row["pid"] for row in centre.processes()}
        left = [p for p in processes_with(str(folder / "site-")) if p not in ours]
        assert not left, [command_line(p) for p in left]


@pytest.fixture(scope="module")
def site(centre):
    return centre.site("kill", settings={"idle_ttl_sec": "30"})


@pytest.fixture
def allocate(centre, site):
    """site.allocate for one test: its launchers are gone when the next one begins."""
    made = []

    def allocate(**kw):
        made.append(site.allocate(**kw))
        return made[-1]
    yield allocate
    for batch in made:
        if centre.get(f"/batch-jobs/{batch}")["state"] != "finished":
            centre.request("PUT", f"/batch-jobs/{batch}", {"state": "pending_deletion"}, status=200)
    for batch in made:
        wait_for(lambda: centre.get(f"/batch-jobs/{batch}")["state"] == "finished", 30, "the batch job is over")


@pytest.fixture
def flow(site, allocate):
    """A workflow whose jobs run just now; the last one, at least, is still to come."""
    flow = Eigen(site, frames=40, order=40)
    flow.submit()
    allocate(minutes=10)
    seen = flow.wait_until(lambda s: any(s.get(x) for x in ("RUNNING", "RUN_DONE", "POSTPROCESSED", "JOB_FINISHED")) and s)
    assert seen.get("JOB_FINISHED", 0) <= flow.frames, "there is no work left that a kill could harm"
    return flow


@pytest.mark.parametrize("role", ["jobs", "sessions", "transfers", "auth", "gateway"])
def test_a_killed_replica_costs_nothing(centre, flow, role):
    pid = centre.kill(role, 0)
    flow.wait()
    wait_for(lambda: not alive(pid) and centre.pid(role, 0) != pid, 30, f"{role} is started again")
    centre.ready()


def test_postgres_restarts_under_load(centre, flow):
    centre.kill("postgres", 0, signal.SIGINT)
    flow.wait()


def test_postgres_is_killed_under_load(centre, flow):
    pid = centre.kill("postgres", 0, signal.SIGKILL)
    flow.wait()
    assert not alive(pid)


@pytest.mark.parametrize("module", ["processing", "transfer", "scheduler"])
def test_a_killed_site_module_is_started_again(site, flow, module):
    before = site.modules(module)
    assert before, f"{module} does not run"
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    flow.wait()
    wait_for(lambda: [p for p in site.modules(module) if p not in before], 30, f"{module} is started again")


def test_a_killed_transfer_worker_costs_nothing(site, flow):
    """The process that moves the files of one task, not the module."""
    worker = wait_for(lambda: [p for p in site.processes("abies-module-transfer run ")], 30, "a transfer runs", every=0)
    for pid in worker:
        kill(pid)
    flow.wait()


def test_a_killed_broker_leaves_no_module_and_can_be_started_again(site, flow):
    pids, modules = site.processes("abies-site"), site.modules()
    assert len(pids) == 1 and modules
    os.kill(pids[0], signal.SIGKILL)
    wait_for(lambda: not any(alive(p) for p in modules), 20, "the modules end with their broker")
    site.start()
    flow.wait()


def test_the_centre_goes_away_for_seconds_while_the_site_works(centre, site, flow):
    """The launcher runs what it has, the outbox keeps what is to be said, and both go on when the centre is back."""
    ids, folders = slow_jobs(site, 2, 2)
    running(centre, ids, folders)
    broker, heads = site.processes("abies-site"), site.launchers()
    centre.cli("down")
    wait_for(lambda: all((f / "ends").exists() for f in folders), 30, "the jobs end, although the centre is away")
    centre.up()
    wait_for(lambda: finished(centre, ids), 60, "the jobs finish")
    flow.wait()
    assert site.processes("abies-site") == broker and site.launchers() == heads, "the same processes carried on"
    assert [(f / "starts").read_text() for f in folders] == ["start\n"] * 2, "no job runs twice"


def slow_jobs(site, n, seconds):
    app = site.app("slow", "name: slow\ncommand: sh -c 'echo start >> starts; sleep " + str(seconds) + "; echo end >> ends'\n")
    jobs = site.centre.post("/jobs/", [{"app_id": app, "workdir": f"slow/{os.urandom(4).hex()}", "node_packing_count": 8} for _ in range(n)])
    return [j["id"] for j in jobs], [site.path / "data" / j["workdir"] for j in jobs]


def running(centre, ids, folders):
    """They do, and the centre has been told."""
    wait_for(lambda: all((f / "starts").exists() for f in folders), 60, "the jobs run")
    wait_for(lambda: all(centre.get(f"/jobs/{i}")["state"] == "RUNNING" for i in ids), 10, "it is said so")


def finished(centre, ids):
    query = "&".join(f"id={i}" for i in ids)
    jobs = centre.get(f"/jobs/?{query}")["results"]
    assert not [j for j in jobs if j["state"] == "FAILED"], jobs
    return all(j["state"] == "JOB_FINISHED" for j in jobs)


def history(centre, job):
    return [e["to_state"] for e in centre.get(f"/events/?job_id={job}&ordering=timestamp")["results"]]


def sleepers(folders):
    """Programs of slow jobs that run, wherever they were started from."""
    return [p for p in processes_with(str(folders[0].parent)) if command_line(p).startswith(("sleep ", "sh "))]


def kill(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


@pytest.mark.parametrize("mode", ["serial", "mpi"])
def test_a_launcher_killed_in_mid_run_leaves_no_child_and_its_jobs_run_again(centre, site, allocate, mode):
    ids, folders = slow_jobs(site, 2, 3)
    first = allocate(minutes=10, mode=mode)
    running(centre, ids, folders)
    heads = site.launchers()
    assert len(heads) == 1
    kill(heads[0])
    wait_for(lambda: not sleepers(folders), 20, "no child is left")
    assert not [f for f in folders if (f / "ends").exists()]
    wait_for(lambda: not site.processes("abies-launcher") and not site.processes("mpiexec"), 20, "no worker is left")
    second = allocate(minutes=10, mode=mode)
    wait_for(lambda: finished(centre, ids), 60, "the jobs finish")
    for job, folder in zip(ids, folders):
        assert history(centre, job) == ["STAGED_IN", "PREPROCESSED", *INTERRUPTED]
        assert centre.get(f"/jobs/{job}")["batch_job_id"] == second
        assert (folder / "starts").read_text() == "start\nstart\n" and (folder / "ends").read_text() == "end\n"
    wait_for(lambda: centre.get(f"/batch-jobs/{first}")["state"] == "finished", 30, "the first batch job is over")


def test_a_killed_node_worker_is_replaced(centre, site, allocate):
    ids, folders = slow_jobs(site, 2, 3)
    batch = allocate(minutes=10)
    running(centre, ids, folders)
    workers = site.workers()
    assert len(workers) == 1
    kill(workers[0])
    wait_for(lambda: finished(centre, ids), 90, "the jobs finish in the same allocation")
    assert [centre.get(f"/jobs/{i}")["batch_job_id"] for i in ids] == [batch] * 2
    assert [history(centre, i).count("RUN_TIMEOUT") for i in ids] == [1, 1]
    assert [(f / "ends").read_text() for f in folders] == ["end\n"] * 2


@pytest.mark.parametrize("seconds", [1, 8], ids=["its-copy-has-ended", "its-copy-still-runs"])
def test_a_launcher_that_slept_through_its_session_changes_nothing_any_more(centre, site, allocate, seconds):
    """Stopped for longer than its session lives, as a suspended machine is: the job is another launcher's by then."""
    ids, folders = slow_jobs(site, 1, seconds)
    first = allocate(minutes=10)
    running(centre, ids, folders)
    sleeping, copy = site.launchers(), sleepers(folders)
    assert len(sleeping) == 1 and copy
    kill(sleeping[0], signal.SIGSTOP)
    wait_for(lambda: "RESTART_READY" in history(centre, ids[0]), 30, "the sweeper gives the job back")
    second = allocate(minutes=10)
    wait_for(lambda: (folders[0] / "starts").read_text().count("start") == 2, 30, "the job runs again, elsewhere")
    kill(sleeping[0], signal.SIGCONT)
    wait_for(lambda: not [p for p in copy if alive(p)], 10, "the launcher that woke up kills its copy")
    wait_for(lambda: finished(centre, ids), 60, "the job finishes")
    job = centre.get(f"/jobs/{ids[0]}")
    assert job["batch_job_id"] == second and job["return_code"] == 0
    assert history(centre, ids[0])[2:] == INTERRUPTED
    assert alive(sleeping[0]), "the launcher that woke up is of use again"
    assert "event=session.gone" in (site.path / "qsubmit" / f"job-{first:05}.output").read_text()


def test_a_stopped_site_gives_its_leases_back_within_ten_seconds(centre, site, allocate):
    """With jobs in mid-run that do not listen to SIGTERM."""
    app = site.app("deaf", "name: deaf\ncommand: sh -c 'trap \"\" TERM; echo start >> starts; while true; do sleep 0.5; done'\n")
    job = centre.post("/jobs/", [{"app_id": app, "workdir": "slow/deaf"}])[0]["id"]
    folder = site.path / "data" / "slow" / "deaf"
    batch = allocate(minutes=10)
    running(centre, [job], [folder])
    begun = time.monotonic()
    site.stop()
    assert time.monotonic() - begun < 10
    assert centre.get("/sessions/") == {"count": 0, "results": []}
    assert centre.get(f"/jobs/{job}")["state"] == "RUN_TIMEOUT"
    left = site.processes("")
    assert not left, [command_line(p) for p in left]
    site.start()
    wait_for(lambda: centre.get(f"/batch-jobs/{batch}")["state"] == "finished", 30, "the batch job is over")
    centre.request("DELETE", f"/jobs/{job}", status=204)
