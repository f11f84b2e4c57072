"""Tokens of a site in mid-run: a launcher whose agent is stopped renews them itself, and nobody uses one twice."""
import os
import re
import signal
import time

import pytest
import requests

from centre import BIN, Centre, temporary_folder, wait_for

TOKEN_SEC = 4
GRACE_SEC = 2
SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "beat": "250ms", "dead": "1500ms", "short_token_ttl": f"{TOKEN_SEC}s",
            "refresh_grace": f"{GRACE_SEC}s"}

HELD = """
name: held
command: [./held.sh]
"""

SCRIPT = """#!/bin/sh
echo run >> runs
until [ -e go ]; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("renewal"), settings=SETTINGS) as centre:
        form = {"username": centre.cli_json("whoami")["username"], "password": (centre.home / "secrets" / "local-user").read_text().strip()}
        r = requests.post(centre.root + "/auth/password/login", data=form, verify=centre.ca, timeout=30)
        centre.http = centre.session(r.json()["access_token"])  # ours must last
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    site = centre.site("renewal", settings={"idle_ttl_sec": "60"})
    (site.path / "apps" / "held.sh").write_text(SCRIPT)
    (site.path / "apps" / "held.sh").chmod(0o755)
    site.held = site.app("held", HELD)
    yield site


@pytest.fixture
def frozen(site):
    """The agent and its modules, stopped: not dead, so nobody starts them again."""
    pids = site.processes("abies-site") + site.modules()
    assert len(pids) >= 4, pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    thaw = lambda: [os.kill(pid, signal.SIGCONT) for pid in pids]
    yield thaw
    thaw()


@pytest.fixture
def job(centre, site):
    """A job that runs until told to end."""
    (job,) = centre.post("/jobs/", [{"app_id": site.held, "workdir": f"held-{os.urandom(3).hex()}"}])
    site.allocate(minutes=20)
    wait_for(lambda: state(centre, job) == "RUNNING", 60, "the job runs")
    return job


def state(centre, job):
    return centre.get(f"/jobs/{job['id']}")["state"]


def refresh_token(site):
    return [line for line in (site.path / "client.yml").read_text().splitlines() if line.startswith("refresh_token")][0]


def launcher_session(centre):
    (session,) = [s for s in centre.get("/sessions/")["results"] if s["batch_job_id"]]
    return session["id"]


def test_a_launcher_goes_on_while_its_agent_is_stopped_for_longer_than_a_token_lives(centre, site, job, frozen):
    session, before, seen = launcher_session(centre), refresh_token(site), set()
    end = time.monotonic() + 2.5 * TOKEN_SEC
    while time.monotonic() < end:
        assert state(centre, job) == "RUNNING"
        assert launcher_session(centre) == session
        seen.add(refresh_token(site))
        time.sleep(0.2)
    assert len(seen - {before}) >= 2, "nobody renewed"
    folder = site.path / "data" / job["workdir"]
    (folder / "go").touch()
    wait_for(lambda: state(centre, job) == "RUN_DONE", 30, "its end is reported")
    frozen()
    wait_for(lambda: state(centre, job) == "JOB_FINISHED", 30, "the agent goes on")
    steps = [e["to_state"] for e in centre.get(f"/events/?job_id={job['id']}&ordering=timestamp")["results"]]
    assert steps == ["STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE", "JOB_FINISHED"]
    assert (folder / "runs").read_text() == "run\n"


def test_agent_and_launcher_never_use_a_token_twice(centre, site, job):
    """Stopped and woken at times that no renewal knows of, several generations long."""
    pids = site.processes("abies-site")
    end = time.monotonic() + 3 * TOKEN_SEC
    while time.monotonic() < end:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.3)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.4)
    (site.path / "data" / job["workdir"] / "go").touch()
    wait_for(lambda: state(centre, job) == "JOB_FINISHED", 30, "the job ends")
    audit = centre.run([BIN / "abies-admin", "audit", "--json", "--home", centre.home]).stdout
    assert "token.reuse" not in audit


# ------------------------------------------------------------------ a renewer that dies

@pytest.mark.parametrize("point", ["ask", "answered", "saved"])
def test_a_program_that_is_killed_in_mid_renewal_costs_no_log_in(centre, tmp_path, point):
    """At each of its fault points; the next program comes when the moment of grace is long over, and its access token as well."""
    made = centre.post("/auth/tokens", {"name": f"killed-{point}", "scope": "user"})
    client = tmp_path / "client.yml"
    client.write_text(f"api_root: {centre.root}\nca_file: {centre.ca}\ntoken: {made['access_token']}\n"
                      f"token_expiry: 2020-01-01T00:00:00\nrefresh_token: {made['refresh_token']}\n")
    client.chmod(0o600)
    env = {"ABIES_CLIENT_PATH": str(client)}
    killed = centre.cli("whoami", check=False, env={**env, "ABIES_FAULT": f"renewal.{point}:kill:1"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (made["refresh_token"] in client.read_text()) == (point != "saved")
    assert (tmp_path / "client.yml.renewal").exists()
    time.sleep(GRACE_SEC + 1 if point != "answered" else TOKEN_SEC + 1)
    for _ in range(2):  # the second one uses what the first one was given
        client.write_text(re.sub("token_expiry: .*", "token_expiry: 2020-01-01T00:00:00", client.read_text()))
        assert centre.cli_json("whoami", env=env)["username"]
    assert not (tmp_path / "client.yml.renewal").exists()
    audit = centre.run([BIN / "abies-admin", "audit", "--json", "--home", centre.home]).stdout
    assert "token.reuse" not in audit


def test_who_copied_the_file_is_found_out_all_the_same(centre, tmp_path):
    made = centre.post("/auth/tokens", {"name": "copied", "scope": "user"})
    renew = lambda token, key: requests.post(centre.root + "/auth/token/refresh", json={"refresh_token": token}, headers={"Idempotency-Key": key}, verify=centre.ca, timeout=30)
    mine = "rn-" + os.urandom(20).hex()
    next_token = renew(made["refresh_token"], mine).json()["refresh_token"]
    time.sleep(GRACE_SEC + 0.5)
    assert renew(made["refresh_token"], mine).json()["refresh_token"] == next_token
    assert renew(made["refresh_token"], "rn-" + os.urandom(20).hex()).status_code == 401
    assert renew(next_token, mine).status_code == 401
    audit = centre.run([BIN / "abies-admin", "audit", "--json", "--home", centre.home]).stdout
    assert "token.reuse" in audit
