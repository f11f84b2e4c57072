"""traffic.py - clients of a deployment in containers, and jobs that they create all the time

    class Deployment(Clients): folder, doors()
    with Traffic(deployment, "somebody") as traffic:
        traffic.more()
        ...
    traffic.check()                         # no request failed, what was answered is there
"""
import json
import random
import threading
import time
import uuid

import urllib3

from centre import wait_for


class Clients:
    """folder holds `public/ca.pem`; doors() are the (host, port) that a client may know."""

    def pool(self, door=None):
        host, port = door or random.choice(self.doors())
        return urllib3.HTTPSConnectionPool(host, port, ca_certs=str(self.folder / "public" / "ca.pem"), assert_hostname="gateway",
                                           server_hostname="gateway", timeout=20, retries=False)

    def call(self, method, path, body=None, token=None, key=None, retry=True):
        """As a client of ours: once more if nobody answers."""
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {}),
                   **({"idempotency-key": key} if key else {})}
        until = time.monotonic() + 20
        while True:
            try:
                with self.pool() as pool:
                    return pool.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
            except urllib3.exceptions.HTTPError:
                if not retry or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def login(self, name):
        with self.pool() as pool:  # a form, as the contract has it
            r = pool.request("POST", "/auth/password/login", fields={"username": name, "password": name + "-secret-1"}, encode_multipart=False)
        assert r.status == 200, r.data
        return json.loads(r.data)["access_token"]

    def user(self, name):
        assert self.call("POST", "/auth/password/register", {"username": name, "password": name + "-secret-1"}).status == 201
        return self.login(name)


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
