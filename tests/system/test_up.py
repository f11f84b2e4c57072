"""`abies up`: one folder, one supervisor, whatever dies comes back, and nothing is left behind."""
import json
import os
import pathlib
import signal
import stat
import subprocess
import threading

import pytest
import requests

from centre import BIN, Centre, alive, command_line, processes_with, temporary_folder, wait_for

FAST = {"beat": "250ms", "dead": "1500ms"}


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("up"), gateways=2, replicas={"jobs": 2}, settings=FAST) as centre:
        yield centre


def supervisor(centre):
    return json.loads((centre.home / "run" / "centre.json").read_text())["supervisor"]["pid"]


def all_ready(centre):
    return centre.cli("status", check=False).returncode == 0


def names(centre):
    return [p["name"] for p in centre.cli_json("status")["processes"]]


def test_up_returns_when_everything_is_ready(centre):
    status = centre.cli_json("status")
    assert status["ready"] and status["running"]
    assert [p["name"] for p in status["processes"]] == ["postgres", "gateway.0", "gateway.1", "auth.0", "jobs.0", "jobs.1", "sessions.0",
                                                        "transfers.0"]
    assert requests.get(centre.root + "/readyz", verify=centre.ca, timeout=5).status_code == 200


def test_up_again_changes_nothing(centre):
    before = {p["name"]: p["pid"] for p in centre.processes()}
    centre.cli("up")
    centre.cli("up", "--port", "0", "--gateways", "2", "--replicas", "jobs=2", "--set", "beat=250ms")
    assert {p["name"]: p["pid"] for p in centre.processes()} == before


def test_two_at_a_time_start_one_centre(centre):
    centre.cli("down")
    outputs = []
    threads = [threading.Thread(target=lambda: outputs.append(centre.cli("up", check=False, timeout=120))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [o.returncode for o in outputs] == [0, 0, 0], [o.stderr for o in outputs]
    assert len([p for p in processes_with(f"{centre.home}/run/gateway") if "abies-gateway" in command_line(p)]) == 2


def test_secrets_are_private_and_in_no_command_line(centre):
    for path in [*centre.home.glob("secrets/*"), *centre.home.glob("curve/*_secret"), *centre.home.glob("tls/*.key"),
                 centre.user_home / ".abies" / "client.yml"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(centre.home.stat().st_mode) == 0o700
    secrets = [p.read_text().strip() for p in centre.home.glob("secrets/db-*")]
    assert len(secrets) == 6
    lines = [command_line(p) for p in processes_with(str(centre.home))]
    assert len(lines) >= 9
    assert not [line for line in lines for secret in secrets if secret in line]
    for log in centre.home.glob("log/*"):
        assert not [s for s in secrets if s in log.read_text(errors="replace")], log


def test_postgres_listens_on_a_private_socket_only(centre):
    pid = centre.pid("postgres")
    sockets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    inodes = {s[8:-1] for s in sockets if s.startswith("socket:[")}
    tcp = [line for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
    assert not [line for line in tcp if line.split()[9] in inodes and line.split()[3] == "0A"]
    socket = centre.home / "run" / ".s.PGSQL.5432"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700


@pytest.mark.parametrize("role", ["gateway", "auth", "jobs", "sessions", "transfers", "postgres"])
def test_a_killed_process_comes_back(centre, role):
    wait_for(lambda: all_ready(centre), 60, "all ready")
    old = centre.kill(role)
    wait_for(lambda: centre.processes(role)[0]["pid"] not in (0, old), 30, f"a new {role}")
    wait_for(lambda: all_ready(centre), 60, "all ready again")
    assert centre.processes(role)[0]["restarts"] >= 1
    assert centre.get("/jobs/?limit=1")["count"] == 0


def test_a_dead_supervisor_is_noticed_and_replaced(centre):
    wait_for(lambda: all_ready(centre), 60, "all ready")
    old = {p["name"]: p["pid"] for p in centre.processes()}
    pid = supervisor(centre)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), 10, "the supervisor is gone")
    done = centre.cli("status", check=False)
    assert done.returncode == 1 and "the supervisor is gone" in done.stdout
    assert centre.get("/jobs/?limit=1")["count"] == 0  # the others go on
    centre.cli("up", timeout=120)
    new = {p["name"]: p["pid"] for p in centre.processes()}
    assert new.keys() == old.keys() and not set(new.values()) & set(old.values())
    assert not [pid for pid in old.values() if alive(pid)]


def test_down_ends_what_a_dead_supervisor_left(centre):
    old = [p["pid"] for p in centre.processes()]
    os.kill(supervisor(centre), signal.SIGKILL)
    assert centre.cli("down").stdout == "stopped\n"
    assert not [pid for pid in old if alive(pid)]
    done = centre.cli("down")
    assert "no centre runs" in done.stdout
    assert centre.cli("status", check=False).returncode == 1
    centre.cli("up", timeout=120)


def test_a_wrong_setting_is_refused_before_anything_stops(centre):
    before = {p["name"]: p["pid"] for p in centre.processes()}
    for setting, text in (("sesion_ttl=3s", "did you mean `session_ttl`?"), ("beat=4", "a duration such as"), ("listen=x", "--host")):
        done = centre.cli("up", "--set", setting, check=False)
        assert done.returncode == 1 and text in done.stderr, done.stderr
    assert centre.cli("up", "--replicas", "jbos=2", check=False).returncode == 1
    assert {p["name"]: p["pid"] for p in centre.processes()} == before
    assert "sesion" not in (centre.home / "centre.yml").read_text()


def test_other_options_restart_it_and_are_kept(centre):
    gateway = centre.pid("gateway")
    centre.cli("up", "--gateways", "1", "--replicas", "sessions=2", "--set", "log_level=debug", timeout=120)
    assert centre.pid("gateway") != gateway
    assert names(centre).count("gateway.1") == 0 and "sessions.1" in names(centre)
    assert b"ABIES_LOG_LEVEL=debug" in pathlib.Path(f"/proc/{centre.pid('jobs')}/environ").read_bytes().split(b"\0")
    centre.cli("down")
    centre.cli("up", timeout=120)
    assert "sessions.1" in names(centre)
    assert centre.root == centre.cli_json("status")["url"]  # ports stay


def test_data_and_logins_survive_down_and_up(centre):
    site = centre.post("/sites/", {"name": "kept", "path": "/kept"})["id"]
    centre.cli("down")
    centre.cli("up", timeout=120)
    assert centre.get(f"/sites/{site}")["name"] == "kept"
    assert "logged in as" in centre.cli("whoami").stdout


def test_a_client_file_of_another_centre_is_left_alone(centre):
    path = centre.folder / "other.yml"
    path.touch(mode=0o600)
    path.write_text("api_root: https://abies.example.org:8443\n")
    done = centre.cli("up", env={"ABIES_CLIENT_PATH": str(path)})
    assert "was left alone" in done.stderr
    assert path.read_text() == "api_root: https://abies.example.org:8443\n"


def test_logs_show_the_last_lines_and_go_on(centre):
    done = centre.cli("logs", "-n", "1")
    assert [line.split()[0] for line in done.stdout.splitlines()] == sorted(names(centre) + ["gateway.1", "supervisor"])
    assert centre.cli("logs", "no-such", check=False).returncode == 1
    line = json.loads(centre.cli("logs", "jobs.0", "-n", "1", "--json").stdout)
    assert line["process"] == "jobs.0" and "svc=jobs" in line["line"]
    follower = subprocess.Popen([BIN / "abies", "logs", "-f", "-n", "1", "supervisor"], env=centre.env, stdout=subprocess.PIPE, text=True)
    enough = threading.Timer(60, follower.kill)
    enough.start()
    try:
        follower.stdout.readline()  # the last one that was there: from here on it follows
        centre.kill("transfers")
        assert any("ward.ended name=transfers.0" in line for line in follower.stdout), "the end of transfers.0 was not told within a minute"
    finally:
        enough.cancel()
        follower.kill()
        follower.wait()
        follower.stdout.close()
    wait_for(lambda: all_ready(centre), 60, "all ready again")


def test_in_the_foreground_it_ends_with_its_signal(centre):
    centre.cli("down")
    process = subprocess.Popen([BIN / "abies", "up", "--foreground"], env=centre.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: all_ready(centre), 60, "all ready")
    pids = [p["pid"] for p in centre.processes()]
    assert centre.cli("up", "--foreground", check=False).returncode == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0
    assert not [pid for pid in pids if alive(pid)]
    centre.cli("up", timeout=120)


def test_a_failed_start_says_why_and_leaves_nothing():
    folder = temporary_folder("up-bad")
    centre = Centre(folder)
    try:
        (centre.home / "pg").mkdir(parents=True, mode=0o700)
        (centre.home / "pg" / "PG_VERSION").write_text("7\n")
        done = centre.cli("up", "--port", "0", check=False)
        assert done.returncode == 1 and "made by PostgreSQL 7, which is not installed" in done.stderr
        (centre.home / "pg" / "PG_VERSION").unlink()
        (centre.home / "pg").rmdir()
        centre.cli("up", "--port", "0", timeout=120)
        centre.cli("down")
        control = centre.home / "pg" / "global" / "pg_control"
        control.write_bytes(b"")
        done = centre.cli("up", check=False, timeout=120)
        assert done.returncode == 1 and "PostgreSQL does not start" in done.stderr, done.stderr
        assert not processes_with(str(folder))
    finally:
        centre.stop_all()


def test_a_deep_folder_gets_its_socket_elsewhere():
    folder = temporary_folder("up-deep")
    centre = Centre(folder)
    centre.home = folder / ("a-folder-with-a-rather-long-name-" * 3) / "centre"
    centre.env["ABIES_HOME"] = str(centre.home)
    try:
        centre.up()
        state = json.loads((centre.home / "run" / "centre.json").read_text())
        assert len(state["socket_dir"]) < 90 and state["socket_dir"].startswith(str(folder / "xdg"))
        assert centre.get("/sites/")["count"] == 0
    finally:
        centre.stop_all()
    assert not processes_with(str(folder))
