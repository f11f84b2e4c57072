"""docker-compose.yml run without an engine: the same entry points, users, environment, volumes and health checks, as plain processes in
network namespaces, with a name server that behaves as compose's: a name has the addresses of what runs just now."""
import itertools
import json
import os
import random
import shutil
import threading
import time
import uuid

import pytest
import urllib3

from centre import temporary_folder, wait_for
from compose import Box, Network
from exposition import scrape
from netns import possible
from postgres import Postgres

pytestmark = pytest.mark.skipif(not possible(), reason="network namespaces need root")
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=0"}  # no ptrace without capabilities


class Deployment:
    """`docker compose up`: what runs, and clients of it."""

    def __init__(self, folder, network):
        self.folder, self.network = folder, network
        self.boxes, self.host_env = {}, {}

    # ------------------------------------------------------------------ containers

    def one_shot(self, service, command=None):
        Box(self.network, service, self.folder, host_env=self.host_env).start(command).finish()

    def postgres(self):
        """The image's entry point: superuser and database of that name, the password from the file."""
        box = Box(self.network, "postgres", self.folder)
        box.plug()
        self.pg = Postgres(self.folder / "postgres-data", address="0.0.0.0", prefix=box.prefix(), settings={"max_connections": "300"})
        if not self.pg.data.exists():
            self.pg.make()
            (self.pg.data / "pg_hba.conf").write_text("local all all trust\nhost all all all scram-sha-256\n")
            self.pg.start()
            password = (self.folder / "postgres-secret" / "password").read_text()
            self.pg.query(f"CREATE ROLE abies SUPERUSER LOGIN PASSWORD '{password}'")
            self.pg.query("CREATE DATABASE abies OWNER abies")
        else:
            from postgres import as_postgres
            self.pg.wrap = as_postgres(self.pg.folder)
            self.pg.start()
        self.pg_box = box

    def postgres_elsewhere(self):
        """The container is made anew on the same volume: another address."""
        self.pg.stop("immediate")
        self.pg_box.unplug()
        self.postgres()

    def scale(self, **wanted):
        """`--scale jobs=4`: the oldest ones go first."""
        fresh = []
        for service, n in wanted.items():
            rows = self.boxes.setdefault(service, [])
            while len(rows) < n:
                rows.append(Box(self.network, service, self.folder, env=SANITIZER, host_env=self.host_env).start())
                fresh.append(rows[-1])
        for box in fresh:
            box.healthy()
        for service, n in wanted.items():
            rows = self.boxes[service]
            while len(rows) > n:
                rows.pop(0).stop()

    def up(self, **wanted):
        self.scale(**{"gateway": 1, "jobs": 1, "sessions": 1, "transfers": 1, "auth": 1, **wanted})
        self.ready()

    def down(self):
        self.scale(**{service: 0 for service in self.boxes})

    def remove(self):
        for box in itertools.chain(*self.boxes.values()):
            box.remove()
        if hasattr(self, "pg"):
            self.pg.stop("immediate")
            self.pg_box.unplug()

    def replicas(self, service):
        """What each gateway sees."""
        return [scrape(f"{box.address}:9440").sum("abies_bus_replicas", service=service) for box in self.boxes["gateway"]]

    def ready(self):
        for service in ("jobs", "sessions", "transfers", "auth"):
            wait_for(lambda: self.replicas(service) == [len(self.boxes[service])] * len(self.boxes["gateway"]), 60,
                     f"every gateway to see every replica of {service}", every=0.2)
        for box in self.boxes["gateway"]:
            wait_for(lambda: self.is_ready(box), 60, "readiness", every=0.2)

    def is_ready(self, box):
        try:
            return self.call("GET", "/readyz", address=box.address, retry=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False  # it does not let anybody in yet

    # ------------------------------------------------------------------ clients

    def call(self, method, path, body=None, address=None, token=None, key=None, retry=True):
        """A client of ours: the next address of the name; another one if nobody answers there."""
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {}),
                   **({"idempotency-key": key} if key else {})}
        until = time.monotonic() + 20
        while True:
            found = self.network.addresses("gateway")
            host = address or random.choice(found)
            pool = urllib3.HTTPSConnectionPool(host, 8443, ca_certs=str(self.folder / "public" / "ca.pem"), assert_hostname="gateway",
                                               server_hostname="gateway", timeout=20, retries=False)
            try:
                with pool:
                    return pool.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
            except urllib3.exceptions.HTTPError:
                if not retry or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def user(self, name):
        assert self.call("POST", "/auth/password/register", {"username": name, "password": name + "-secret-1"}).status == 201
        r = self.call("POST", "/auth/password/login", {"username": name, "password": name + "-secret-1"})
        if r.status == 422:  # a form, as the contract has it
            pool = urllib3.HTTPSConnectionPool(self.network.addresses("gateway")[0], 8443, ca_certs=str(self.folder / "public" / "ca.pem"),
                                               assert_hostname="gateway", server_hostname="gateway", retries=False)
            r = pool.request("POST", "/auth/password/login", fields={"username": name, "password": name + "-secret-1"}, encode_multipart=False)
        assert r.status == 200, r.data
        return json.loads(r.data)["access_token"]


class Traffic:
    """Jobs, created all the time by several clients; what was answered."""

    def __init__(self, centre, name, clients=3):
        self.centre, self.token = centre, centre.user(name)
        site = json.loads(self.ask("POST", "/sites/", {"name": name, "path": "/somewhere"}).data)["id"]
        self.app = json.loads(self.ask("POST", "/apps/", {"site_id": site, "name": "app", "serialized_class": "", "source_code": ""}).data)["id"]
        self.stopping, self.bad, self.created = threading.Event(), [], 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(clients)]

    def ask(self, method, path, body=None, status=201, key=None):
        r = self.centre.call(method, path, body, token=self.token, key=key)
        assert r.status == status, f"{method} {path}: {r.status} {r.data[:300]}"
        return r

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.stopping.set()
        for t in self.threads:
            t.join(60)

    def work(self, n):
        while not self.stopping.is_set():
            try:
                jobs = [{"app_id": self.app, "workdir": f"{n}/{uuid.uuid4().hex}"} for _ in range(5)]
                self.ask("POST", "/jobs/", jobs, key=str(uuid.uuid4()))
                with self.lock:
                    self.created += len(jobs)
                self.ask("GET", "/jobs/?limit=5", status=200)
            except Exception as e:  # noqa: BLE001  said by the test
                self.bad.append(repr(e)[:400])

    def more(self, n=30):
        """It goes on: so many jobs more."""
        until = self.created + n
        wait_for(lambda: self.created >= until or self.bad, 60, "requests to go on")
        assert not self.bad, self.bad[:5]

    def check(self):
        assert not self.bad, self.bad[:5]
        stored = json.loads(self.ask("GET", "/jobs/?limit=1", status=200).data)["count"]
        assert stored == self.created, f"{self.created} were answered, {stored} are there"


@pytest.fixture(scope="module")
def centre():
    folder = temporary_folder("box")
    folder.chmod(0o755)
    with Network() as network:
        centre = Deployment(folder, network)
        try:
            centre.one_shot("password")
            centre.postgres()
            centre.one_shot("init")
            centre.one_shot("init")  # a second `up`: nothing changes
            centre.up()
            yield centre
        finally:
            centre.remove()
            Box.clean()
    shutil.rmtree(folder, ignore_errors=True)


def test_services_run_as_nobody_without_capabilities_on_a_root_that_cannot_be_written(centre):
    for service, boxes in centre.boxes.items():
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{boxes[0].process.pid}/status").read().splitlines() if ":\t" in line)
        assert status["Uid"].split() == ["10001"] * 4 and status["Gid"].split() == ["10001"] * 4 and status["Groups"].strip() == "", service
        assert all(int(status[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), service
        assert status["NoNewPrivs"] == "1"
        mounts = {line.split()[4]: line.split()[5] for line in open(f"/proc/{boxes[0].process.pid}/mountinfo")}
        assert "ro" in mounts["/"].split(",") and "ro" in mounts["/keys"].split(","), service
    assert {"postgres", "gateway"} <= centre.network.asked, "names were looked up"


def test_scaling_up_and_down_under_load_fails_no_request(centre):
    with Traffic(centre, "scaler") as traffic:
        traffic.more()
        centre.scale(jobs=4, gateway=2)
        centre.ready()
        traffic.more()
        for service, name in (("gateway", "abies_http_requests_total"), ("jobs", "abies_requests_total")):
            for box in centre.boxes[service]:
                wait_for(lambda: scrape(f"{box.address}:9440").sum(name, verb="job.create", code="201"), 20, f"{box.name} gets its share")
        centre.scale(jobs=2, gateway=1)  # the gateway that all knew first is gone
        centre.ready()
        traffic.more()
    traffic.check()


def test_postgres_with_another_address_is_found_by_its_name(centre):
    with Traffic(centre, "mover") as traffic:
        traffic.more()
    traffic.check()
    centre.postgres_elsewhere()

    def works():
        r = centre.call("GET", "/jobs/?limit=1", token=traffic.token)
        return r.status == 200
    wait_for(works, 60, "the services to find it", every=0.2)
    traffic.check()


def pgbouncer(centre):
    boxes = centre.boxes.get("pgbouncer")
    return boxes[0].address if boxes else None


@pytest.mark.skipif(not shutil.which("pgbouncer") and not os.path.exists("/usr/sbin/pgbouncer"), reason="no pgbouncer")
def test_behind_pgbouncer_many_workers_share_few_connections(centre):
    centre.down()
    centre.host_env = {"ABIES_DATABASE_POOLED": "true", "ABIES_POOL_SIZE": "4"}
    centre.one_shot("init")
    centre.scale(pgbouncer=1)
    centre.up(jobs=4, gateway=1)
    with Traffic(centre, "pooled", clients=6) as traffic:
        traffic.more(150)
        rows = centre.pg.query("SELECT usename, client_addr::text, count(*) FROM pg_stat_activity WHERE usename LIKE 'abies\\_%' GROUP BY 1, 2")
        assert {r[1].split("/")[0] for r in rows} == {pgbouncer(centre)}, f"somebody goes past the pooler: {rows}"
        assert dict((r[0], r[2]) for r in rows)["abies_jobs"] <= 4, f"4 replicas of 4 workers have connections of their own: {rows}"
    traffic.check()
    other = Traffic(centre, "again")
    with other:
        other.more()
        old = centre.boxes["pgbouncer"].pop()
        old.remove()  # SIGKILL, and another one under the same name
        centre.scale(pgbouncer=1)
        other.stopping.set()
    honest = [b for b in other.bad if " 503 " not in b]
    assert not honest, honest
    wait_for(lambda: centre.call("GET", "/jobs/?limit=1", token=other.token).status == 200, 60, "the services are back", every=0.2)
    stored = json.loads(other.ask("GET", "/jobs/?limit=1", status=200).data)["count"]
    assert stored >= other.created and (stored - other.created) % 5 == 0, "all of an answered request, all or nothing of the others"


def test_everything_ends_when_it_is_told_to(centre):
    centre.down()
