"""The workflow of the quickstart: through every process of the design, to a result that is checked."""
import base64
import codecs
import os
import pickle
import subprocess

import pytest

from centre import ROOT, Centre, temporary_folder, wait_for
from workflow import Eigen


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("flow"), replicas={"jobs": 2}) as centre:
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    return centre.site("flow")


def test_a_hundred_matrices_end_correct(site):
    flow = Eigen(site, frames=100, order=60)
    flow.submit()
    site.allocate(minutes=10)
    flow.wait()


def test_a_finished_job_has_the_whole_history_and_its_output(centre, site):
    flow = Eigen(site, frames=1, order=10)
    flow.submit()
    site.allocate(minutes=10)
    flow.wait()
    job = centre.get(f"/jobs/{flow.ids[0]}")
    assert job["state"] == "JOB_FINISHED" and job["return_code"] == 0 and job["batch_job_id"]
    events = centre.get(f"/events/?job_id={flow.ids[0]}&ordering=timestamp")["results"]
    assert [e["to_state"] for e in events] == ["READY", "STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE", "POSTPROCESSED", "JOB_FINISHED"]
    assert [e["from_state"] for e in events][1:] == [e["to_state"] for e in events][:-1]
    assert "num_nodes" in events[3]["data"]
    out = (site.path / "data" / job["workdir"] / "job.out").read_text()
    assert "10 eigenvalues" in out


def test_an_mpi_program_runs_in_mpi_mode(centre, site):
    app = site.example("mpi", "pi")
    job = centre.post("/jobs/", [{"app_id": app, "workdir": "pi", "ranks_per_node": 2, "parameters": {"intervals": 10000}}])[0]["id"]
    site.allocate(minutes=5, mode="mpi")
    wait_for(lambda: centre.get(f"/jobs/{job}")["state"] in ("JOB_FINISHED", "FAILED"), 90, "the MPI job")
    assert centre.get(f"/jobs/{job}")["state"] == "JOB_FINISHED"
    assert ", 2 ranks" in (site.path / "data" / "pi" / "job.out").read_text()


def test_a_failing_program_ends_failed_with_its_last_words(centre, site):
    app = site.app("crash", "name: crash\ncommand: sh -c 'echo about to fail; exit 7'\n")
    job = centre.post("/jobs/", [{"app_id": app, "workdir": "crash"}])[0]["id"]
    site.allocate(minutes=5)
    wait_for(lambda: centre.get(f"/jobs/{job}")["state"] == "FAILED", 60, "the failing job")
    assert centre.get(f"/jobs/{job}")["return_code"] == 7
    error = centre.get(f"/events/?job_id={job}&to_state=RUN_ERROR")["results"][0]["data"]
    assert error["returncode"] == 7 and "about to fail" in error["error"]


def test_parameters_never_become_syntax(centre, site):
    app = site.app("say", "name: say\ncommand: echo {{text}}\nparameters:\n  text: {type: string}\n")
    evil = "a b; touch pwned $(touch pwned) `touch pwned` 'x' \"y\" | cat > pwned"
    job = centre.post("/jobs/", [{"app_id": app, "workdir": "say", "parameters": {"text": evil}}])[0]["id"]
    site.allocate(minutes=5)
    wait_for(lambda: centre.get(f"/jobs/{job}")["state"] in ("JOB_FINISHED", "FAILED"), 60, "the job")
    assert (site.path / "data" / "say" / "job.out").read_text() == evil + "\n"
    assert not list(site.path.rglob("pwned"))


@pytest.mark.parametrize("pickler", [pickle.dumps, lambda v: pickle.dumps(v, 0), pickle._dumps], ids=["default", "oldest", "python"])
def test_values_that_an_old_client_pickled_reach_the_program(centre, site, pickler):
    app = site.app("tell", "name: tell\ncommand: [echo, '{{text}}', '{{n}}', '{{real}}', '{{flag}}', '{{left}}']\n"
                           "parameters: {text: {}, n: {type: int}, real: {type: float}, flag: {type: bool}, left: {default: out}}\n")
    evil = "a b; touch pwned $(touch pwned) 'x' €"
    pickled = codecs.encode(pickler({"text": evil, "n": 2**40, "real": 0.1, "flag": True, "left": None}), "base64").decode()
    jobs = centre.post("/jobs/", [{"app_id": app, "workdir": f"tell-{os.urandom(3).hex()}", "serialized_parameters": pickled, **more}
                                  for more in ({}, {"parameters": {"text": "mine", "n": 1, "real": 2.5, "flag": False}})])
    site.allocate(minutes=5)
    wait_for(lambda: all(centre.get(f"/jobs/{j['id']}")["state"] in ("JOB_FINISHED", "FAILED") for j in jobs), 60, "the jobs")
    said = [(site.path / "data" / j["workdir"] / "job.out").read_text() for j in jobs]
    assert said == [f"{evil} {2**40} 0.1 true out\n", "mine 1 2.5 false out\n"]
    assert not list(site.path.rglob("pwned"))


def test_a_pickle_with_more_than_plain_data_fails_its_job_and_runs_nothing(centre, site):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {site.path}/pwned",)
    app = site.app("tell", "name: tell\ncommand: [echo, '{{text}}']\nparameters: {text: {}}\n")
    job = centre.post("/jobs/", [{"app_id": app, "workdir": "evil", "serialized_parameters": base64.b64encode(pickle.dumps({"text": Evil()})).decode()}])[0]["id"]
    site.allocate(minutes=5)
    wait_for(lambda: centre.get(f"/jobs/{job}")["state"] == "FAILED", 60, "the job fails")
    why = centre.get(f"/events/?job_id={job}&to_state=FAILED")["results"][0]["data"]["message"]
    assert "serialized_parameters: names the Python object posix.system (STACK_GLOBAL" in why and "send `parameters` as JSON" in why
    assert not (site.path / "pwned").exists() and not (site.path / "data" / "evil" / "job.out").exists()


@pytest.fixture
def sshd(centre):
    """ssh_config of a throw-away sshd on loopback; its host is called ci."""
    folder = centre.folder / "sshd"
    subprocess.run([ROOT / "tests" / "lib" / "sshd.sh", folder, "start"], check=True)
    yield folder / "ssh_config"
    subprocess.run([ROOT / "tests" / "lib" / "sshd.sh", folder, "stop"], check=True)


def test_files_come_and_go_by_rsync_over_ssh(centre, sshd):
    site = centre.site("ssh", location="rsync://ci{}", ssh_config=sshd)
    flow = Eigen(site, frames=6, order=20)
    flow.submit()
    site.allocate(minutes=10)
    flow.wait()
    items = [t for job in flow.ids for t in centre.get(f"/transfers/?job_id={job}")["results"]]
    assert len(items) == 15 and {t["state"] for t in items} == {"done"}
    assert {t["task_id"].split(":")[0] for t in items} == {"rsync"}
