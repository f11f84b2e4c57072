"""A disk is full: under PostgreSQL, under a site's outbox and log, under a service's log. Clients are told, nothing is lost, and
when there is room again all goes on by itself."""
import contextlib
import os
import pathlib
import subprocess
import time
import uuid

import psycopg2
import pytest

from centre import Centre, temporary_folder, wait_for
from mesh import Load, Writers


def mount(path, size):
    path.mkdir(parents=True, exist_ok=True)
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(path)], capture_output=True).returncode == 0


def can_mount():
    path = temporary_folder("mount")
    made = os.geteuid() == 0 and mount(path, "64k")
    if made:
        subprocess.run(["umount", str(path)], check=True)
    path.rmdir()
    return made


pytestmark = pytest.mark.skipif(not can_mount(), reason="a small file system needs root")


class Disk:
    """A file system of its own, small enough to be filled."""

    def __init__(self, path, size):
        self.path, self.size = pathlib.Path(path), size
        self.ballast = self.path / "ballast"

    def __enter__(self):
        assert mount(self.path, self.size)
        return self

    def __exit__(self, *exc):
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self):
        """Up to the last byte. Files that are there may still be written where they have their blocks."""
        with open(self.ballast, "ab", buffering=0) as f:
            for size in (1 << 20, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        f.write(b"x" * size)

    def free(self):
        self.ballast.unlink()


def test_a_full_disk_under_a_services_log_stops_nothing(mesh):
    with Disk(mesh.folder / "small", "64k") as disk:
        mesh.gateway()
        jobs = mesh.service("jobs", log_level="debug", log_path=disk.path / "jobs.log")
        mesh.everything()
        writers = Writers(mesh)
        def noise():
            """A line each: the service refuses them."""
            for _ in range(50):
                mesh.call(writers.user, "POST", "/jobs/", [{"app_id": 1234567, "workdir": "x"}])
        with Load(writers.work, clients=3, pause=0.01) as load:
            disk.fill()
            noise()
            load.more()
            disk.free()
            noise()
            wait_for(lambda: "event=log.lost" in jobs.log_path.read_text(), 15, "it says that lines are missing")
        load.check(longest=5)
        writers.check()
        lines = jobs.log_path.read_text().splitlines()
        assert len(lines) > 50
        torn = [x for x in lines if x.count(" level=") != 1 or not x.startswith("ts=")]
        assert len(torn) <= 1, f"at most the one that the disk cut off is no line: {torn}"
        jobs.leave()


@pytest.fixture(scope="module")
def centre():
    """All of it on a small disk: database, logs, what the supervisor keeps."""
    folder = temporary_folder("disk")
    with Disk(folder / "centre", "250m") as disk:
        with Centre(folder, settings={"beat": "250ms", "dead": "1500ms"}) as centre:
            centre.disk = disk
            yield centre
            for site in centre.sites:
                site.stop()


class Posts:
    """Jobs posted one by one with a key each, until they are taken."""

    def __init__(self, centre, app):
        self.centre, self.app, self.taken, self.refused = centre, app, [], []

    def work(self, n):
        body, key = [{"app_id": self.app, "workdir": uuid.uuid4().hex, "tags": {"filler": "x" * 500}} for _ in range(20)], str(uuid.uuid4())
        until = time.monotonic() + 60
        while time.monotonic() < until:
            r = self.centre.request("POST", "/jobs/", body, headers={"Idempotency-Key": key}, http=self.centre.session())
            if r.status_code == 201:
                self.taken.append(r.json()[0]["id"])
                return
            assert r.status_code in (503, 504), r.text
            assert r.status_code == 504 or "retry-after" in r.headers
            self.refused.append(r.text)
            time.sleep(0.1)
        raise AssertionError("it does not come back")


def no_room_for_wal(centre):
    """PostgreSQL needs a new segment and crashes; neither it nor its supervisor can help as long as the disk is full."""
    url = (centre.home / "secrets" / "url-abies").read_text().strip()

    def ended():
        """Its log is on the full disk, too: what it says is that it does not answer."""
        try:
            conn = psycopg2.connect(url)
            conn.autocommit = True
            conn.cursor().execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000)), pg_switch_wal()")
            conn.close()
            return False
        except psycopg2.OperationalError as error:
            return "recovery" in str(error) or "terminated" in str(error) or "connection to server" in str(error)
    wait_for(ended, 20, "PostgreSQL gives up")


@pytest.mark.parametrize("worse", [False, True], ids=["tables", "wal"])
def test_a_full_disk_under_the_database_is_503_and_over_when_there_is_room(centre, worse):
    site = centre.post("/sites/", {"name": f"disk{worse}", "path": "/disk"})["id"]
    app = centre.post("/apps/", {"site_id": site, "name": "a", "serialized_class": "", "source_code": "", "parameters": {}, "transfers": {}})["id"]
    posts = Posts(centre, app)
    with Load(posts.work, clients=2, pause=0.01, least=5) as load:
        centre.disk.fill()
        try:
            wait_for(lambda: len(posts.refused) > 3, 60, "clients are told")
            if worse:
                no_room_for_wal(centre)
        finally:
            centre.disk.free()
        load.more(10, deadline=60)
    load.check()
    assert centre.get(f"/jobs/?site_id={site}&limit=1")["count"] == 20 * len(posts.taken), "each job that was taken is there once"
    centre.ready()


def spins(pids):
    """The share of one processor that these processes use just now."""
    def used():
        total = 0
        for pid in pids:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")
    before = used()
    time.sleep(1)
    return used() - before


def jobs_of(centre, site, n):
    app = site.app("quick", "name: quick\ncommand: sh -c 'echo run >> runs'\n")
    jobs = centre.post("/jobs/", [{"app_id": app, "workdir": f"quick/{uuid.uuid4().hex}", "node_packing_count": 8} for _ in range(n)])
    return [j["id"] for j in jobs], [site.path / "data" / j["workdir"] for j in jobs]


def states(centre, ids):
    return {j["state"] for j in centre.get("/jobs/?" + "&".join(f"id={i}" for i in ids))["results"]}


def test_a_full_disk_under_a_sites_outbox_or_log_delays_its_jobs_and_loses_none(centre):
    site = centre.site("full", start=False, settings={"idle_ttl_sec": "60"})
    with Disk(site.path / "run" / "outbox", "128k") as outbox, Disk(site.path / "log", "256k") as log:
        site.start()
        site.allocate(minutes=10)
        first, _ = jobs_of(centre, site, 2)
        wait_for(lambda: states(centre, first) == {"JOB_FINISHED"}, 60, "all is well before")
        outbox.fill()
        log.fill()
        ids, folders = jobs_of(centre, site, 3)
        time.sleep(2)
        assert "FAILED" not in states(centre, ids)
        broker = site.processes("abies-site")
        assert spins(broker + site.modules()) < 1.0, "it waits for room and does not spin"
        log.free()
        outbox.free()
        wait_for(lambda: states(centre, ids) == {"JOB_FINISHED"}, 60, "they finish when there is room")
        assert site.processes("abies-site") == broker, "the same broker"
        assert [(f / "runs").read_text() for f in folders] == ["run\n"] * 3, "each ran once"
        for i in ids:
            history = [e["to_state"] for e in centre.get(f"/events/?job_id={i}&ordering=timestamp")["results"]]
            assert history == ["STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE", "POSTPROCESSED", "JOB_FINISHED"] or len(set(history)) == len(history), history
        site.stop()
