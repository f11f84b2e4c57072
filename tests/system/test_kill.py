"""Nothing is lost when a process dies: the workflow runs, each process is killed in turn, the result is right.

Lease and heartbeat times are settings; here they are seconds."""
import os
import signal

import pytest

from centre import Centre, alive, processes_with, command_line, temporary_folder, wait_for
from workflow import Eigen

SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "beat": "250ms", "dead": "1500ms"}


@pytest.fixture(scope="module")
def centre():
    folder = temporary_folder("kill")
    with Centre(folder, gateways=2, replicas={"jobs": 2, "sessions": 2, "transfers": 2, "auth": 2}, settings=SETTINGS) as centre:
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
def flow(site):
    flow = Eigen(site, frames=24, order=40)
    flow.submit()
    flow.batch = site.allocate(minutes=10)
    flow.wait_until(lambda s: s.get("JOB_FINISHED", 0) >= 1)
    yield flow
    site.centre.request("PUT", f"/batch-jobs/{flow.batch}", {"state": "pending_deletion"}, status=200)


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
    program = f"abies-module-{module}"
    before = site.processes(program)
    assert before, f"{program} does not run"
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    flow.wait()
    wait_for(lambda: [p for p in site.processes(program) if p not in before], 30, f"{program} is started again")


def test_a_killed_broker_leaves_no_module_and_can_be_started_again(site, flow):
    pids = site.processes("abies-site")
    modules = site.processes("abies-module-")
    assert len(pids) == 1 and modules
    os.kill(pids[0], signal.SIGKILL)
    wait_for(lambda: not any(alive(p) for p in modules), 20, "the modules end with their broker")
    site.start()
    flow.wait()


def slow_jobs(site, n, seconds):
    app = site.app("slow", "name: slow\ncommand: sh -c 'echo start >> starts; sleep " + str(seconds) + "; echo end >> ends'\n")
    jobs = site.centre.post("/jobs/", [{"app_id": app, "workdir": f"slow/{os.urandom(4).hex()}", "node_packing_count": 8} for _ in range(n)])
    return [j["id"] for j in jobs], [site.path / "data" / j["workdir"] for j in jobs]


def finished(centre, ids):
    query = "&".join(f"id={i}" for i in ids)
    jobs = centre.get(f"/jobs/?{query}")["results"]
    assert not [j for j in jobs if j["state"] == "FAILED"], jobs
    return all(j["state"] == "JOB_FINISHED" for j in jobs)


def test_a_launcher_killed_in_mid_run_leaves_no_child_and_its_jobs_run_again(centre, site):
    ids, folders = slow_jobs(site, 2, 3)
    first = site.allocate(minutes=10)
    wait_for(lambda: all((f / "starts").exists() for f in folders), 60, "the jobs run")
    for pid in site.processes("abies-launcher"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_for(lambda: not [p for p in processes_with(str(folders[0].parent)) if "sleep" in command_line(p)], 20, "no child is left")
    wait_for(lambda: not finished(centre, ids) and site.allocate(minutes=10), 5, "another allocation")
    wait_for(lambda: finished(centre, ids), 90, "the jobs finish")
    events = centre.get(f"/events/?job_id={ids[0]}&ordering=timestamp")["results"]
    assert "RUN_TIMEOUT" in [e["to_state"] for e in events]
    assert [e["to_state"] for e in events].count("JOB_FINISHED") == 1
    centre.request("PUT", f"/batch-jobs/{first}", {"state": "pending_deletion"}, status=200)


def test_a_killed_node_worker_is_replaced(centre, site):
    ids, folders = slow_jobs(site, 2, 3)
    batch = site.allocate(minutes=10)
    wait_for(lambda: all((f / "starts").exists() for f in folders), 60, "the jobs run")
    workers = [p for p in site.processes("abies-launcher") if " worker " in command_line(p)]
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: finished(centre, ids), 90, "the jobs finish in the same allocation")
    assert centre.get(f"/jobs/{ids[0]}")["batch_job_id"] == batch
    centre.request("PUT", f"/batch-jobs/{batch}", {"state": "pending_deletion"}, status=200)


def test_a_stopped_site_gives_its_leases_back_within_ten_seconds(centre, site):
    import time
    begun = time.monotonic()
    site.stop()
    assert time.monotonic() - begun < 10
    wait_for(lambda: not site.processes("abies-module-"), 5, "no module is left")
    assert centre.get("/sessions/")["count"] == len(centre.get("/sessions/")["results"])
    held = [s for s in centre.get("/sessions/")["results"] if s["batch_job_id"] is None]
    assert not held
    site.start()
