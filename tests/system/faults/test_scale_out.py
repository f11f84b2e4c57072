"""Gateways behind one name and replicas of every service come and go under load, and no client notices."""
import os
import random
import signal
import socket
import subprocess
import threading

import pytest
import requests

from centre import wait_for
from mesh import ROLES, Load

NAME = "abies.test"


@pytest.fixture
def name(monkeypatch):
    """A name with several addresses, as clients of these tests resolve it: the list may be changed."""
    addresses, real = [], socket.getaddrinfo

    def resolve(host, port, *args, **kw):
        if host != NAME:
            return real(host, port, *args, **kw)
        now = random.sample(addresses, len(addresses))
        return [entry for a in now for entry in real(a, port, *args, **kw)]
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return addresses


@pytest.fixture
def certificate(tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=abies",
                    "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    return {"plain_http": "false", "tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}


class Clients:
    """What users do: some on one connection each, some on a new one for each call. The number of jobs asked for is kept."""

    def __init__(self, mesh, user, verify):
        self.mesh, self.user, self.verify = mesh, user, verify
        self.site, self.app = mesh.app(user)
        self.local, self.lock, self.jobs = threading.local(), threading.Lock(), 0
        self.user_auth = {"Authorization": f"Bearer {user.token}"}

    def session(self, n):
        if n % 2:  # a fresh connection
            session = requests.Session()
        else:
            session = self.local.__dict__.setdefault("session", requests.Session())
        session.trust_env, session.verify = False, self.verify
        session.headers.update(self.user_auth)
        session.url = self.user.url
        return session

    def work(self, n):
        session, call = self.session(n), self.mesh.call
        kind = random.randrange(5)
        if kind == 0:
            rows = [{"app_id": self.app, "workdir": f"w{os.urandom(6).hex()}"} for _ in range(5)]
            call(session, "POST", "/jobs/", rows, 201)
            with self.lock:
                self.jobs += len(rows)
        elif kind == 1:
            call(session, "GET", f"/jobs/?site_id={self.site}&limit=20", status=200)
        elif kind == 2:
            made = call(session, "POST", "/sessions/", {"site_id": self.site}, 201).json()["id"]
            call(session, "DELETE", f"/sessions/{made}", status=204)
        elif kind == 3:
            call(session, "GET", "/transfers/", status=200)
        else:
            call(session, "GET", "/auth/password/me", status=200)
        if n % 2:
            session.close()

    def check(self):
        count = self.mesh.query("SELECT count(*) FROM jobs j JOIN sites s ON s.id = j.site_id WHERE s.id = %s", self.site)[0][0]
        assert count == self.jobs, "each job that was asked for is there once"


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace for /etc/hosts needs root")
def test_gateways_and_replicas_come_and_go_under_load_without_a_failed_request(mesh, name, certificate):
    port = mesh.free_port()

    def gateway(i):
        mesh.hosts({"gateways.test": [f"127.0.1.{k}" for k in sorted({i, *here})]})
        here[i] = mesh.gateway(host=f"127.0.1.{i}", port=port, bus=f"tcp://127.0.1.{i}:{port + 1}", **certificate)
        return here[i]

    def service(role):
        return mesh.service(role, gateways=f"tcp://gateways.test:{port + 1}", hosts=True)

    here = {}
    for i in (1, 2):
        gateway(i)
    first = [service(role) for role in ROLES]
    for p in (*first, *here.values()):
        p.ready()
    name[:] = ["127.0.1.1", "127.0.1.2"]
    url, verify = f"https://{NAME}:{port}", str(certificate["tls_cert"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REQUESTS_CA_BUNDLE", verify)
        user = mesh.user("tenant", url)
        user.verify = verify
        clients = Clients(mesh, user, verify)
    with Load(clients.work, clients=6) as load:
        # Two more of everything, then the first ones leave, one after the other.
        new = [gateway(3), gateway(4), *[service(role) for role in ROLES]]
        name[:] = [f"127.0.1.{i}" for i in here]  # known before they are ready: clients are refused there and go on
        for p in new:
            p.ready()
        load.more()
        for p in first:
            p.leave()
            load.more(10)
        for i in (1, 2):
            here[i].signal(signal.SIGTERM)  # its address is still in the name
            load.more(10)
            assert here[i].process.wait(15) == 0
        del here[1], here[2]
        name[:] = [f"127.0.1.{i}" for i in here]
        load.more()
    load.check(longest=10)
    clients.check()


def test_gateways_on_one_port_change_places_under_load(mesh, certificate):
    """SO_REUSEPORT, as `abies up --gateways 2` has it: the kernel shares out connections, also to who is about to leave."""
    port, buses = mesh.free_port(), [mesh.free_port() for _ in range(4)]
    listed = ",".join(f"tcp://127.0.0.1:{b}" for b in buses)

    def gateway(i):
        return mesh.gateway(port=port, bus=f"tcp://127.0.0.1:{buses[i]}", hint_listen=f"tcp://127.0.0.1:{buses[i] + 1}")

    old = gateway(0)
    for role in ROLES:
        mesh.service(role, gateways=listed)
    mesh.everything()
    user = mesh.user(url=old.url)
    clients = Clients(mesh, user, None)
    with Load(clients.work, clients=6) as load:
        for i in (1, 2, 3):
            new = gateway(i).ready()
            wait_for(lambda: new.logged("gateway.open"), 10, "the new one takes connections")
            load.more(10)
            old.leave()
            old = new
    load.check(longest=10)
    clients.check()
