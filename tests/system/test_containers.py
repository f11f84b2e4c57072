"""docker-compose.yml run without an engine: the same entry points, users, environment, volumes and health checks, as plain processes in
network namespaces, with a name server that behaves as compose's: a name has the addresses of what runs just now."""
import itertools
import json
import os
import shutil
import ssl

import pytest
import urllib3

import certificate
from centre import temporary_folder, wait_for
from compose import Box, Network
from exposition import scrape
from netns import possible
from postgres import Postgres
from traffic import Clients, Traffic

pytestmark = pytest.mark.skipif(not possible(), reason="network namespaces need root")
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=0"}  # no ptrace without capabilities


class Deployment(Clients):
    """`docker compose up`: what runs, and clients of it."""

    def __init__(self, folder, network):
        self.folder, self.network = folder, network
        self.boxes, self.host_env = {}, {}

    def doors(self):
        return [(address, 8443) for address in self.network.addresses("front")]

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
        self.scale(**{"front": 1, "gateway": 1, "jobs": 1, "sessions": 1, "transfers": 1, "auth": 1, "renew": 1, **wanted})
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
        wait_for(lambda: self.seen() == len(self.boxes["gateway"]), 30, "the front to know every gateway", every=0.2)

    def seen(self):
        """How many gateways the front would send somebody to."""
        return len([line for line in self.figures("haproxy_server_status") if 'state="UP"' in line and line.endswith(" 1")])

    def figures(self, name):
        """Lines of the front's own figures, which are not in our form."""
        text = urllib3.PoolManager().request("GET", f"http://{self.boxes['front'][0].address}:9440/metrics").data.decode()
        return [line for line in text.splitlines() if line.startswith(name + "{") and 'proxy="gateways"' in line]


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
        if service == "renew":  # root, with three capabilities: the keys are another's
            assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0b1011, status
        else:
            assert status["Uid"].split() == ["10001"] * 4 and status["Gid"].split() == ["10001"] * 4 and status["Groups"].strip() == "", service
            assert all(int(status[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), service
        assert status["NoNewPrivs"] == "1"
        mounts = {line.split()[4]: line.split()[5] for line in open(f"/proc/{boxes[0].process.pid}/mountinfo")}
        assert "ro" in mounts["/"].split(","), service
        assert all("ro" in mounts[point].split(",") for point in mounts if point == "/keys"), service
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


def test_the_login_of_a_client_is_recorded_with_its_own_address(centre):
    centre.user("located")
    rows = centre.pg.query("SELECT DISTINCT peer FROM audit WHERE actor = 'located' AND action = 'login.password'", database="abies")
    assert rows == [(centre.network.here,)], rows


def test_a_certificate_near_its_end_is_renewed_and_the_gateways_take_it(centre):
    tls = centre.folder / "all" / "tls"

    def seen():
        return ssl.get_server_certificate(centre.doors()[0], timeout=10)
    certificate.near_end(tls)
    shutil.copy(tls / "server.pem", centre.folder / "gateway-keys" / "tls" / "server.pem")
    near = (tls / "server.pem").read_text()
    wait_for(lambda: seen() == near, 15, "the gateway to serve what ends soon", every=0.2)
    with Traffic(centre, "renewed") as traffic:
        traffic.more()
        centre.boxes["renew"].pop().stop()
        centre.scale(renew=1)  # a day later, as it were: it looks when it starts, too
        wait_for(lambda: seen() != near, 15, "another certificate", every=0.2)
        traffic.more()
    traffic.check()
    assert seen() == (tls / "server.pem").read_text() and certificate.days_left(tls / "server.pem") > 360
    centre.boxes["renew"][0].healthy()


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
