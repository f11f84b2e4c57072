"""Faults at a site: processes of it are frozen, run out of files, have a wrong clock or a full disk; jobs with transfers, hooks and
programs go through all of them meanwhile. None is lost, none fails for it, none runs twice, and nobody has to do anything."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import uuid

import pytest

import fakeclock
from centre import Centre, command_line, processes_with, temporary_folder, wait_for
from exposition import scrape
from fakeclock import Clock
from mesh import RARELY
from test_full_disk import Disk, can_mount, spins

WORK = """name: work
command: sh -c 'echo start >> runs; sleep 0.3; cat in.txt >/dev/null && echo stop >> runs'
transfers:
  in: {direction: in, local_path: in.txt, required: true}
hooks:
  postprocess: [sh, -c, 'echo post >> hooks']
"""
HOUR = 3600
PATH = ["READY", "STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE", "JOB_FINISHED"]


class Work:
    """Jobs that go all the way."""

    def __init__(self, centre, site):
        self.centre, self.site, self.app = centre, site, site.app("work", WORK)
        (site.beamline / "in.txt").write_text("x")
        self.jobs = {}

    def more(self, n=6):
        rows = [{"app_id": self.app, "workdir": f"w/{uuid.uuid4().hex}", "node_packing_count": 32,
                 "transfers": {"in": {"location_alias": "beamline", "path": "/in.txt"}}} for _ in range(n)]
        self.jobs.update({j["id"]: self.site.path / "data" / j["workdir"] for j in self.centre.post("/jobs/", rows)})

    def states(self):
        return {j["state"] for j in self.centre.get("/jobs/?" + "&".join(f"id={i}" for i in self.jobs))["results"]}

    def check(self, deadline=60):
        """All have finished by the one path, and each program and hook has run once."""
        wait_for(lambda: self.states() == {"JOB_FINISHED"}, deadline, "all jobs finish", every=0.2)
        for i, folder in self.jobs.items():
            history = [e["to_state"] for e in sorted(self.centre.get(f"/events/?job_id={i}")["results"], key=lambda e: e["id"])]
            assert history == PATH, (i, history)
            assert (folder / "runs").read_text() == "start\nstop\n", i
            assert (folder / "hooks").read_text() == "post\n", i


@contextlib.contextmanager
def working_site(centre, name, prefix=(), disk=None, env=None):
    """A site with a serial allocation that has begun to work. disk: an empty one, which its folder is put on. env: of its agent, which is
    then started by itself: libfaketime's processes share what the first of them has made."""
    site = centre.site(name, settings={"idle_ttl_sec": "120", "num_workers": "4"}, start=False)
    if disk:
        shutil.copytree(site.path, disk.path, dirs_exist_ok=True)
        subprocess.run(["mount", "--move", str(disk.path), str(site.path)], check=True)
        disk.path, disk.ballast = site.path, site.path / "ballast"
    path = site.path / "settings.yml"
    path.write_text(path.read_text().replace("listen: null ", "listen: 127.0.0.1:0 "))
    agent = None
    if env:
        with open(site.path / "log" / "agent.log", "ab") as log:
            agent = subprocess.Popen(["abies-site", "--site", str(site.path)], env={**centre.env, **env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for((site.path / "run/health.json").exists, 20, "it starts")
    else:
        centre.run([*prefix, "abies", "site", "start", str(site.path)])
    site.address = wait_for(lambda: json.loads((site.path / "run/health.json").read_text()).get("metrics"), 20, "the port of the site")
    site.allocate(minutes=20)
    wait_for(site.workers, 30, "its worker")
    site.work = Work(centre, site)
    yield site
    site.stop()
    assert not agent or agent.wait(20) == 0


def pid_of(site, what):
    found = {"broker": lambda: site.processes("abies-site"), "head": site.launchers, "worker": site.workers}.get(what, lambda: site.modules(what))()
    assert len(found) == 1, (what, [command_line(p) for p in found])
    return found[0]


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("sfa"), settings={"beat": "250ms", "dead": "1500ms"}, env={"ABIES_LOCAL_CPUS": "32"}) as centre:
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    with working_site(centre, "faults") as site:
        yield site


PROCESSES = ("broker", "processing", "transfer", "scheduler", "head", "worker")


@pytest.mark.parametrize("what, seconds", [(p, 3) for p in PROCESSES] + [pytest.param("broker", 20, marks=RARELY)])
def test_a_process_of_a_site_that_freezes_and_thaws_costs_time_only(site, what, seconds):
    work = Work(site.centre, site)
    pid = pid_of(site, what)
    work.more()
    time.sleep(0.7)  # some are under way
    os.kill(pid, signal.SIGSTOP)
    try:
        work.more()
        time.sleep(seconds)
        assert "FAILED" not in work.states()
    finally:
        os.kill(pid, signal.SIGCONT)
    work.more()
    work.check()
    assert pid_of(site, what) == pid, "it went on"


@RARELY
def test_a_worker_frozen_for_longer_than_its_head_waits_is_given_up_and_taken_back(site):
    work = Work(site.centre, site)
    pid = pid_of(site, "worker")
    work.more()
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(28)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: work.states() == {"JOB_FINISHED"}, 60, "they run again")


def lowest_free(pid):
    used, n = {int(f) for f in os.listdir(f"/proc/{pid}/fd")}, 0
    while n in used:
        n += 1
    return n


@contextlib.contextmanager
def no_more_files(pid):
    limit = ["prlimit", "--pid", str(pid)]
    old = subprocess.run([*limit, "--nofile", "--output", "SOFT", "--noheadings"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([*limit, f"--nofile={lowest_free(pid)}:"], check=True)
    try:
        yield
    finally:
        subprocess.run([*limit, f"--nofile={old}:"], check=True)


@pytest.mark.parametrize("what", PROCESSES)
def test_a_process_of_a_site_without_files_fails_no_job_and_spins_not(site, what):
    """As when the whole host has none left: not one more can be opened."""
    work = Work(site.centre, site)
    pid = pid_of(site, what)
    work.more()
    with no_more_files(pid):
        work.more()
        time.sleep(1.5)
        assert spins([pid]) < 0.5
        assert not {"FAILED", "RUN_ERROR"} & work.states()
    work.check()
    assert pid_of(site, what) == pid, "it went on"


FEW = ["prlimit", "--nofile=64:64"]  # hard: nobody can raise it


def limits(folder):
    """The limit of each process that runs there."""
    found = {}
    for pid in processes_with(f"={folder}"):
        with contextlib.suppress(OSError):
            line = re.search(r"^Max open files +(\d+) +(\d+)", pathlib.Path(f"/proc/{pid}/limits").read_text(), re.M)
            found[pid] = int(line[1])
    return found


def most_at_a_time(spans):
    now = most = 0
    for _, step in sorted([(begun, 1) for begun, _ in spans] + [(ended, -1) for _, ended in spans]):
        now += step
        most = max(most, now)
    return most


def test_a_site_with_64_files_works_and_bounds_how_many_jobs_run_at_a_time(centre):
    """60 jobs want to run at a time on 64 cores: the worker has files for some 20 of them, and says so."""
    with working_site(centre, "few", prefix=[*FEW, "env", "ABIES_LOCAL_CPUS=64"]) as site:
        seen = limits(site.path)
        assert len(seen) >= 7 and set(seen.values()) == {64}, {command_line(p): n for p, n in seen.items()}
        app = site.app("hold", "name: hold\ncommand: sh -c 'date +%s.%N >> runs; sleep 1.5; date +%s.%N >> runs'\n")
        jobs = centre.post("/jobs/", [{"app_id": app, "workdir": f"h/{i}", "node_packing_count": 64} for i in range(60)])
        most = []

        def done():
            figures = scrape(site.address)
            most.append((figures.sum("abies_worker_room"), figures.sum("abies_worker_waiting")))
            return centre.states(f"?app_id={app}") == {"JOB_FINISHED": 60}
        wait_for(done, 90, "all end", every=0.3)
        spans = [[float(x) for x in (site.path / "data" / job["workdir"] / "runs").read_text().split()] for job in jobs]
        assert {len(s) for s in spans} == {2}, "each ran once"
        events = centre.get(f"/events/?limit=2000&job_id={jobs[0]['id']}" + "".join(f"&job_id={j['id']}" for j in jobs[1:]))["results"]
        assert not [e for e in events if e["to_state"] in ("FAILED", "RUN_ERROR", "RUN_TIMEOUT")]
        room = max(m[0] for m in most)
        assert 5 < room < 30, most
        assert 5 < most_at_a_time(spans) <= room
        assert max(m[1] for m in most) == 0, "the head asks for no more than there is room for"
        site.work.more(30)
        site.work.check()


def test_mpi_mode_with_64_files_bounds_its_starters(centre):
    site = centre.site("mpi", settings={"idle_ttl_sec": "20"}, start=False)
    centre.run([*FEW, "env", "ABIES_LOCAL_CPUS=64", "abies", "site", "start", str(site.path)])
    app = site.app("hold", "name: hold\ncommand: sleep 0.5\n")
    centre.post("/jobs/", [{"app_id": app, "workdir": f"h/{i}", "node_packing_count": 64} for i in range(40)])
    site.allocate(mode="mpi")
    most = []

    def done():
        states = centre.states(f"?app_id={app}")
        most.append(states.get("RUNNING", 0))
        return states == {"JOB_FINISHED": 40}
    wait_for(done, 90, "all end", every=0.1)
    assert 2 < max(most) < 30, most
    site.stop()


def test_a_centre_with_64_files_serves_and_with_50_says_what_is_short():
    with Centre(temporary_folder("few")) as centre:
        centre.cli("down")
        said = centre.run(["prlimit", "--nofile=50:50", "abies", "up"], check=False)
        assert said.returncode != 0 and "insufficient file descriptors" in said.stderr and "ulimit -n" in said.stderr, said.stderr
        centre.run([*FEW, "abies", "up"])
        seen = limits(centre.home)
        assert len(seen) >= 6 and set(seen.values()) == {64}, {command_line(p): n for p, n in seen.items()}
        for i in range(3):
            centre.post("/sites/", {"name": f"s{i}", "path": f"/s{i}"})
        assert centre.get("/sites/")["count"] == 3
        assert scrape(json.loads((centre.home / "run/centre.json").read_text())["supervisor"]["health"]).sum("abies_process_max_files") == 64


@pytest.mark.parametrize("what", ["site", "launcher"])
def test_too_few_files_to_work_at_all_are_named_at_the_start(centre, what):
    site = centre.site("none-" + what, start=False)
    command = ["abies", "site", "start", str(site.path)] if what == "site" else ["abies-launcher", "-j", "serial", "-t", "5", "-s", str(site.path)]
    done = centre.run(["prlimit", "--nofile=50:50", *command], check=False, timeout=30)
    assert done.returncode != 0 and "50 files only" in done.stderr and "ulimit -n" in done.stderr, done.stdout + done.stderr


@pytest.mark.skipif(not can_mount(), reason="a small file system needs root")
def test_a_full_disk_under_the_whole_folder_of_a_site_delays_its_jobs_and_loses_none(centre):
    with Disk(centre.folder / "small", "4m") as disk, working_site(centre, "full", disk=disk) as site:
        site.work.more()
        time.sleep(0.7)
        broker = pid_of(site, "broker")
        disk.fill()
        try:
            site.work.more()
            time.sleep(3)
            assert not {"FAILED", "RUN_ERROR"} & site.work.states()
            assert spins([broker, *site.modules(), *site.launchers(), *site.workers()]) < 1.0
        finally:
            disk.free()
        wait_for(lambda: site.work.states() == {"JOB_FINISHED"}, 60, "they finish when there is room")
        site.work = Work(centre, site)
        site.work.more()
        site.work.check()
        assert pid_of(site, "broker") == broker


@pytest.mark.skipif(not fakeclock.LIBRARY, reason="the package faketime is not installed")
def test_a_site_whose_clock_jumps_works_on(centre):
    clock = Clock(centre.folder)
    with working_site(centre, "clock", env=clock.env) as site:
        pids = {p: pid_of(site, p) for p in PROCESSES}
        site.work.more()
        time.sleep(0.5)
        clock.set(HOUR)
        site.work.more()
        site.work.check()
        clock.set(-HOUR)  # the centre's certificate is younger than that
        site.work.more()
        wait_for(lambda: "certificate is not yet valid" in json.loads((site.path / "run/health.json").read_text())["uplink"]["why"], 20, "it is said")
        clock.set(0)
        site.work.more()
        site.work.check()
        assert {p: pid_of(site, p) for p in PROCESSES} == pids, "nobody was started again"
