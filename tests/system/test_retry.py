"""A job with a retry policy at a real site: agent, launcher, processes that fail, nodes that are lost."""
import os
import signal

import pytest

from centre import Centre, alive, temporary_folder, wait_for

SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "wake_period": "200ms", "beat": "250ms", "dead": "1500ms"}

FLAKY = """
name: flaky
command: [./flaky.sh, "{{way}}", "{{until}}"]
parameters:
  way: {default: exit}
  until: {type: int, default: 3}
hooks:
  handle_error: [./asked.sh]
  handle_timeout: [./asked.sh]
"""

FED = """
name: fed
command: cat in.txt
transfers:
  input: {direction: in, local_path: in.txt}
"""

# Succeeds at its nth attempt. What it was told of the attempt is left in a file for each.
SCRIPT = """#!/bin/sh
echo "$ABIES_ATTEMPT" > "attempt-$ABIES_ATTEMPT"
[ "$(ls attempt-* | wc -l)" -ge "$2" ] && exit 0
case $1 in
    exit) exit 3 ;;
    signal) kill -9 $$ ;;
    hang) exec sleep 600 ;;
esac
"""

ASKED = """#!/bin/sh
touch asked
"""

DEADLY = """
name: deadly
command: [./deadly.sh]
"""

# Takes its node down, for the launcher: everything of it above this process, the head first.
KILL_NODE = """#!/bin/sh
echo "$ABIES_ATTEMPT" >> runs
victims= pid=$$
while [ "$pid" -gt 1 ]; do
    set -- $(cat "/proc/$pid/stat")
    [ "$2" != "(abies-launcher)" ] || victims="$1 $victims"
    pid=$4
done
kill -9 $victims
sleep 60
"""


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("retry"), settings=SETTINGS) as centre:
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    site = centre.site("retry", settings={"idle_ttl_sec": "60"})
    for name, text in (("flaky.sh", SCRIPT), ("asked.sh", ASKED), ("deadly.sh", KILL_NODE)):
        (site.path / "apps" / name).write_text(text)
        (site.path / "apps" / name).chmod(0o755)
    site.flaky = site.app("flaky", FLAKY)
    site.fed = site.app("fed", FED)
    site.deadly = site.app("deadly", DEADLY)
    site.allocate(minutes=20)
    yield site


def run(centre, site, way, retry, until=3):
    (job,) = centre.post("/jobs/", [{"app_id": site.flaky, "workdir": f"{way}-{os.urandom(3).hex()}", "retry": retry,
                                     "parameters": {"way": way, "until": until}}])
    return job, site.path / "data" / job["workdir"]


def end_of(centre, job, deadline=90):
    return wait_for(lambda: (s := centre.get(f"/jobs/{job['id']}")["state"]) in ("JOB_FINISHED", "FAILED") and s, deadline, "the job ends")


def history(centre, job):
    return [(e["to_state"], e["data"].get("cause")) for e in centre.get(f"/events/?job_id={job['id']}&ordering=timestamp")["results"]]


@pytest.mark.parametrize("way", ["exit", "signal"])
def test_a_process_that_fails_is_run_again_and_no_hook_is_asked(centre, site, way):
    job, folder = run(centre, site, way, {"max_attempts": 3, "backoff_sec": 1})
    assert end_of(centre, job) == "JOB_FINISHED"
    steps = history(centre, job)
    assert [s for s in steps if s[0] in ("RUN_ERROR", "RESTART_READY")] == 2 * [("RUN_ERROR", None), ("RESTART_READY", way)]
    assert centre.get(f"/jobs/{job['id']}")["attempts"] == 3
    assert not (folder / "asked").exists()
    assert len(list(folder.glob("attempt-*"))) == 3


def test_a_process_that_always_fails_ends_with_the_reason(centre, site):
    job, folder = run(centre, site, "exit", {"max_attempts": 2}, until=99)
    assert end_of(centre, job) == "FAILED"
    assert history(centre, job)[-2:] == [("RUN_ERROR", None), ("FAILED", "exit")]
    reasons = centre.get(f"/jobs/{job['id']}/explain")["reasons"]
    assert reasons[0]["code"] == "done" and "attempt 2 of 2 ended (exit): none is left" in reasons[0]["text"]
    assert not (folder / "asked").exists()


def test_other_causes_are_left_to_the_hooks(centre, site):
    job, folder = run(centre, site, "signal", {"max_attempts": 3, "on": ["exit"]}, until=99)
    assert end_of(centre, job) == "FAILED"
    assert (folder / "asked").exists()


def test_a_job_of_a_killed_launcher_runs_again_in_the_next_one(centre, site):
    job, folder = run(centre, site, "hang", {"max_attempts": 2, "on": ["node_loss"]}, until=2)
    wait_for(lambda: centre.get(f"/jobs/{job['id']}")["state"] == "RUNNING", 60, "the job runs")
    for pid in site.launchers():
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda p=pid: not alive(p), 20, "the launcher is dead")
    site.allocate(minutes=20)
    assert end_of(centre, job) == "JOB_FINISHED"
    assert ("RESTART_READY", "node_loss") in history(centre, job)
    assert not (folder / "asked").exists()


def no_launcher(site):
    for pid in site.launchers():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not site.launchers(), 20, "no launcher is left")


def deadly(centre, site, retry, mode):
    no_launcher(site)
    (job,) = centre.post("/jobs/", [{"app_id": site.deadly, "workdir": f"deadly-{os.urandom(3).hex()}", "retry": retry}])
    wait_for(lambda: centre.get(f"/jobs/{job['id']}")["state"] == "PREPROCESSED", 30, "the job is ready")
    runs = site.path / "data" / job["workdir"] / "runs"

    def kill_a_node(n):
        site.allocate(minutes=20, mode=mode)
        wait_for(lambda: runs.exists() and len(runs.read_text().split()) == n and not site.launchers(), 60, f"the job takes launcher {n} down")
        wait_for(lambda: not [s for s in centre.get("/sessions/")["results"] if s["batch_job_id"]], 30, "its session is over")
    return job, runs, kill_a_node


@pytest.mark.parametrize("mode", ["serial", "mpi"])
def test_a_job_that_kills_its_launcher_at_once_ends_when_its_attempts_are_used(centre, site, mode):
    job, runs, kill_a_node = deadly(centre, site, {"max_attempts": 2, "on": ["node_loss"]}, mode)
    kill_a_node(1)
    assert centre.get(f"/jobs/{job['id']}")["state"] == "RESTART_READY"
    kill_a_node(2)
    assert end_of(centre, job) == "FAILED"
    assert runs.read_text().split() == ["1", "2"]
    assert centre.get(f"/jobs/{job['id']}")["attempts"] == 2
    assert [s for s in history(centre, job) if s[0] in ("RUNNING", "RESTART_READY", "FAILED")] == [
        ("RUNNING", None), ("RESTART_READY", "node_loss"), ("RUNNING", None), ("FAILED", "node_loss")]
    reasons = centre.get(f"/jobs/{job['id']}/explain")["reasons"]
    assert reasons[0]["code"] == "done" and "attempt 2 of 2 ended (node_loss): none is left" in reasons[0]["text"]


def test_a_job_without_a_policy_runs_again_as_the_contract_has_it(centre, site):
    job, runs, kill_a_node = deadly(centre, site, None, "serial")
    kill_a_node(1)
    kill_a_node(2)
    wait_for(lambda: centre.get(f"/jobs/{job['id']}")["state"] in ("PREPROCESSED", "RESTART_READY"), 30, "it is runnable again")
    centre.post(f"/jobs/{job['id']}/cancel", {}, status=200)
    site.allocate(minutes=20)


def test_a_file_that_comes_late_is_asked_for_again(centre, site):
    (job,) = centre.post("/jobs/", [{"app_id": site.fed, "workdir": f"fed-{os.urandom(3).hex()}", "retry": {"max_attempts": 50, "on": ["stage_in"], "backoff_sec": 1},
                                     "transfers": {"input": {"location_alias": "beamline", "path": "/late.txt"}}}])
    wait_for(lambda: ("READY", "stage_in") in history(centre, job), 30, "the file is missed")
    reasons = wait_for(lambda: [r["code"] for r in centre.get(f"/jobs/{job['id']}/explain")["reasons"] if r["code"] == "retry_wait"], 30, "it says that it waits")
    assert reasons == ["retry_wait"]
    (site.beamline / "late.txt").write_text("here at last")
    assert end_of(centre, job) == "JOB_FINISHED"


def test_a_file_that_never_comes_fails_the_job(centre, site):
    (job,) = centre.post("/jobs/", [{"app_id": site.fed, "workdir": f"fed-{os.urandom(3).hex()}", "retry": {"max_attempts": 2, "on": ["stage_in"]},
                                     "transfers": {"input": {"location_alias": "beamline", "path": "/never.txt"}}}])
    assert end_of(centre, job) == "FAILED"
    assert history(centre, job) == [("READY", None), ("READY", "stage_in"), ("FAILED", "stage_in")]
    (item,) = centre.get(f"/transfers/?job_id={job['id']}")["results"]
    assert item["state"] == "error" and item["transfer_info"]["error"]
