"""Every process that Abies starts has figures of its own, or its starter counts it: found among the processes that run, not in a list."""
import json
import os
import pathlib
import re
import signal
import uuid

import pytest
import requests

from centre import BIN, ROOT, Centre, comm, command_line, processes_with, temporary_folder, wait_for
from exposition import scrape

LIBEXEC = BIN.parent / "libexec" / "abies"
MODULES = ("scheduler", "queue_maintainer", "elastic_queue", "processing", "transfer", "file_cleaner")
KINDS = {"gateway", "auth", "jobs", "sessions", "transfers", "supervisor", "site", "launcher", "partitions", "node worker", "guard", "batch job",
         "transfer worker", *(f"module {m}" for m in MODULES)}
# What has no figures of its own: (why, the figure in which it is counted, with its labels)
COUNTED = {
    "guard": ("it sleeps until its launcher dies, whose figures those are", "abies_process_id", {"service": "launcher"}),
    "batch job": ("it sleeps until its script has ended", "abies_module_state", {"module": "scheduler", "name": "submitted"}),
    "transfer worker": ("it lives as long as its transfer", "abies_module_state", {"module": "transfer", "name": "done"}),
}
ONCE = {"abies-admin"}  # does one thing and ends
TOOLS = {"embed_sql"}   # of the build, not installed


def kind(pid):
    """What a process of ours is; None: a program of somebody else's."""
    try:
        exe = pathlib.Path(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None
    if exe.parent not in (BIN.resolve(), LIBEXEC.resolve()) or exe.name in ONCE:
        return None
    words = command_line(pid).split()
    if comm(pid) == "abies-guard":
        return "guard"
    if exe.name == "abies":
        return "supervisor" if "up" in words else None
    if exe.name == "abies-launcher":
        return "node worker" if "worker" in words else "partitions" if any(w.startswith(("--part", "-p")) for w in words) else "launcher"
    if exe.name.startswith("abies-module-"):
        if len(words) > 1:
            return {"job": "batch job", "run": "transfer worker"}.get(words[1], "module " + words[1])
        return "module " + exe.name[len("abies-module-"):]
    return exe.name[len("abies-"):]


def running(centre):
    found = {}
    for pid in processes_with(str(centre.folder)):
        what = kind(pid)
        if what:
            found.setdefault(what, set()).add(pid)
    return found


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("evp")) as centre:
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    site = centre.site("evp", settings={"idle_ttl_sec": "60"}, start=False)
    path = site.path / "settings.yml"
    text = path.read_text().replace("listen: null ", "listen: 127.0.0.1:0 ")
    text += "\nelastic_queue: {service_period: 3600}\nqueue_maintainer: {submit_period: 3600, submit_queue: none, num_queued_jobs: 1}\n" \
            "file_cleaner: {service_period: 30}\n"
    path.write_text(text)
    site.start()
    site.address = wait_for(lambda: json.loads((site.path / "run/health.json").read_text()).get("metrics"), 20, "the port of the site")
    return site


def everything(centre, site):
    state = json.loads((centre.home / "run/centre.json").read_text())
    addresses = [row["health"] for row in state["processes"] if row.get("health")] + [state["supervisor"]["health"], site.address]
    return [scrape(a) for a in addresses]


def ids(figures):
    return {int(v) for f in figures for (name, _), v in f.items() if name == "abies_process_id"}


@pytest.fixture(scope="module")
def busy(centre, site):
    """All kinds at work: serial, mpi and partitions, a transfer that stays."""
    (site.beamline / "in.txt").write_text("x")
    app = site.app("hold", "name: hold\ncommand: sleep 600\n")
    moved = site.app("moved", "name: moved\ncommand: cat in.txt\ntransfers:\n"
                     "  in: {direction: in, local_path: in.txt, required: true}\n")
    for job_mode, partitions in (("serial", None), ("mpi", None), ("serial", [{"job_mode": "serial", "num_nodes": 1, "filter_tags": {"no": "jobs"}}])):
        body = {"site_id": site.id, "project": "local", "queue": "local", "num_nodes": 1, "wall_time_min": 10, "job_mode": job_mode,
                "filter_tags": {"mode": job_mode}}
        centre.post("/batch-jobs/", {**body, **({"partitions": partitions} if partitions else {})})
    jobs = [{"app_id": app, "workdir": f"h/{uuid.uuid4().hex}", "node_packing_count": 8, "tags": {"mode": m}} for m in ("serial", "mpi")]
    jobs.append({"app_id": moved, "workdir": "m/1", "tags": {"mode": "serial"}, "node_packing_count": 8,
                 "transfers": {"in": {"location_alias": "beamline", "path": "/in.txt"}}})
    made = [j["id"] for j in centre.post("/jobs/", jobs)]
    query = "/jobs/?" + "&".join(f"id={i}" for i in made)
    wait_for(lambda: sorted(j["state"] for j in centre.get(query)["results"]) == ["JOB_FINISHED", "RUNNING", "RUNNING"], 60, "jobs run")
    yield made
    centre.request("POST", "/jobs/cancel?" + "&".join(f"id={i}" for i in made[:2]), status=200)


def test_every_process_that_runs_has_figures_or_is_counted(centre, site, busy):
    def all_known():
        """Every process of ours, by the number that its own figures say."""
        known = ids(everything(centre, site))
        return {f"{what} {pid}: {command_line(pid)}" for what, pids in running(centre).items() if what not in COUNTED for pid in pids - known} or "none"
    wait_for(lambda: all_known() == "none", 30, "figures of every process", every=0.5)
    seen = set(running(centre))
    missing = KINDS - seen - {"transfer worker"}  # that one is mostly gone by now
    assert not missing, "the test is to have every kind of process"
    assert seen <= KINDS, "a new kind of process: give it figures, and name it here"
    figures = everything(centre, site)
    for what, (_, name, labels) in COUNTED.items():
        labels = {k: v for k, v in labels.items() if k != "service"}
        assert sum(f.sum(name, **labels) for f in figures) > 0, what


def test_no_program_is_left_out(centre, site, busy):
    """What is built and installed is among the kinds above."""
    programs = {p.name for folder in (BIN, LIBEXEC) for p in folder.iterdir() if p.is_file() and os.access(p, os.X_OK)} - TOOLS - ONCE
    of_kinds = {"abies", "abies-site", "abies-launcher", *(f"abies-{k}" for k in ("gateway", "auth", "jobs", "sessions", "transfers")),
                *(f"abies-module-{m}" for m in MODULES)}
    assert programs == of_kinds


def test_the_figures_of_every_process_say_what_it_uses(centre, site, busy):
    figures = everything(centre, site)
    for name, least in (("resident_bytes", 1 << 20), ("cpu_seconds_total", 0.001), ("open_files", 4), ("max_files", 64), ("start_seconds", 1e9)):
        values = [v for f in figures for (n, _), v in f.items() if n == f"abies_process_{name}"]
        assert len(values) >= 14 and min(values) >= least, (name, values)
    mine = [f for f in figures if f.sum("abies_worker_up")][0]
    for (name, labels), pid in mine.items():
        if name == "abies_process_id" and "worker" in dict(labels):
            files = len(os.listdir(f"/proc/{int(pid)}/fd"))
            assert abs(mine[("abies_process_open_files", labels)] - files) <= 6
    text = (ROOT / "docs" / "operations.md").read_text()
    assert not {family for f in figures for family in f.families if f"`{family}" not in text}


def test_a_node_worker_says_what_runs_on_its_node(centre, site, busy):
    def sums(f):
        return {n: f.sum(f"abies_{n}") for n in ("worker_up", "worker_running", "worker_waiting", "worker_started_total", "node_cores_used", "launcher_running")}
    f = wait_for(lambda: (f := scrape(site.address)).sum("abies_worker_running") == 1 and f, 20, "a job at the worker")
    assert f.sum("abies_launcher_running") == 2, "the other is the head's of the mpi mode"
    assert f.sum("abies_worker_up") == 2 and f.sum("abies_worker_waiting") == 0, sums(f)
    assert f.sum("abies_node_cores_used") == 2 and f.sum("abies_node_cores") == 3 * len(os.sched_getaffinity(0))
    assert f.sum("abies_worker_room") > 20 and f.sum("abies_worker_messages_total") >= 2
    assert f.sum("abies_launcher_spawn_seconds_count") == 3
    assert f.sum("abies_launcher_parts") == 1


def test_a_worker_that_is_killed_is_counted_by_cause(centre, site, busy):
    before = {name: scrape(site.address).sum(f"abies_{name}_restarts_total", cause="signal") for name in ("worker", "site_module")}
    os.kill(site.workers()[0], signal.SIGKILL)
    os.kill(site.modules("file_cleaner")[0], signal.SIGKILL)
    for name, old in before.items():
        wait_for(lambda: scrape(site.address).sum(f"abies_{name}_restarts_total", cause="signal") == old + 1, 20, name)
    wait_for(lambda: scrape(site.address).sum("abies_worker_up") == 2, 20, "it is there again")


def supervisor(centre):
    return json.loads((centre.home / "run/centre.json").read_text())["supervisor"]["health"]


def test_the_supervisor_counts_restarts_by_cause_and_says_who_waits(centre, busy):
    address = supervisor(centre)
    first = scrape(address)
    assert first.labels("abies_centre_process_up", "process") == {"postgres", "gateway.0", "auth.0", "jobs.0", "sessions.0", "transfers.0"}
    assert first.sum("abies_centre_process_up") == 6 and first.sum("abies_centre_process_uptime_seconds", process="jobs.0") > 0
    assert requests.get(f"http://{address}/readyz", timeout=5).status_code == 200
    for _ in range(3):  # each wait is twice the one before
        pid = centre.kill("jobs")
        wait_for(lambda: centre.processes("jobs")[0]["pid"] not in (0, pid), 20, "it is started again")
    wait_for(lambda: scrape(address).sum("abies_centre_process_restarts_total", process="jobs.0", cause="signal") == 3, 10, "counted")
    centre.kill("jobs")
    waiting = wait_for(lambda: (f := scrape(address)).sum("abies_centre_process_backoff_seconds", process="jobs.0") > 0 and f, 5, "it waits", every=0.02)
    assert waiting.sum("abies_centre_process_up", process="jobs.0") == 0
    said = requests.get(f"http://{address}/readyz", timeout=5)
    assert said.status_code == 503 and re.search(r"^jobs\.0 does not run; its last exit was -9", said.text, re.M)
    wait_for(lambda: requests.get(f"http://{address}/readyz", timeout=5).status_code == 200, 20, "it is back")
    centre.ready()
    shown = json.loads(wait_for(lambda: (s := centre.cli("status", "--json", check=False)).returncode == 0 and s.stdout, 20, "all is well"))
    assert shown["supervisor_health"] == address and address in centre.cli("status").stdout
