"""mesh.py - gateways and services as single processes, each where and as the test wants it: an address, a network namespace,
a limit, a fake clock. No supervisor: what dies stays dead until the test starts another.

    with Mesh(folder, pg) as mesh:
        gateway = mesh.gateway()
        jobs = mesh.service("jobs")
        mesh.everything()                      # one of each service that is not there yet, and all ready
        user = mesh.user("tenant")                # a requests session
        jobs.freeze(); jobs.thaw(); jobs.leave(); jobs.kill()

Names: with mesh.hosts({"gate.test": ["127.0.0.2"]}) and hosts=True a process sees these names in its /etc/hosts, which may
change while it runs. On leaving, everything is stopped, and a report of a sanitizer or a broken invariant fails the test.
"""
import contextlib
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid

import pytest
import requests

from centre import BIN, processes_with, wait_for

ROLES = ("auth", "jobs", "sessions", "transfers")
RARELY = pytest.mark.skipif(not os.environ.get("ABIES_TEST_LONG"), reason="ABIES_TEST_LONG=1 runs it: its neighbour shows nearly the same")
QUICK = {"beat": "200ms", "dead": "1500ms"}
WITH_HOSTS = ["unshare", "--mount", "sh", "-c", 'mount --bind "$HOSTS_FILE" /etc/hosts && exec "$@"', "sh"]
_names = itertools.count(1)


class Process:
    def __init__(self, mesh, role, settings, prefix=(), limits=None, env=None, program=None, log_path=None):
        self.mesh, self.role = mesh, role
        self.name = f"{role}-{next(_names)}"
        self.run_file = mesh.folder / f"{self.name}.json"
        self.log_path = log_path or mesh.folder / f"{self.name}.log"
        settings = {"run_file": self.run_file, "health_listen": "127.0.0.1:0", **settings}
        command = [str(program or BIN / f"abies-{role}")]
        env = {**mesh.env, **{f"ABIES_{k.upper()}": str(v) for k, v in settings.items()}, **(env or {})}
        if limits:
            command = ["bash", "-c", f'{limits} && exec "$@"', "bash", *command]
        self.log = open(self.log_path, "ab")
        self.process = subprocess.Popen([*prefix, *command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=mesh.folder, env=env)
        mesh.processes.append(self)

    def started(self, deadline=30):
        """Its run file is there: it has begun to work."""
        def there():
            assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.tail()}"
            return self.run_file.exists()
        wait_for(there, deadline, f"{self.name} starts")
        self.run = json.loads(self.run_file.read_text())
        self.pid = self.run["pid"]
        return self

    def ready(self, deadline=30):
        self.started(deadline)
        wait_for(self.is_ready, deadline, f"{self.name} is ready")
        return self

    def is_ready(self):
        try:
            return self.health("/readyz").status_code == 200
        except requests.RequestException:
            return False

    def health(self, path):
        return requests.get(f"http://{self.run['health']}{path}", timeout=5)

    def metric(self, name):
        for line in self.health("/metrics").text.splitlines():
            if line.rsplit(" ", 1)[0] == name:
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def tail(self, n=3000):
        return self.log_path.read_text(errors="replace")[-n:]

    def logged(self, text, deadline=15):
        return wait_for(lambda: [x for x in self.log_path.read_text(errors="replace").splitlines() if text in x], deadline, f"`{text}` in the log of {self.name}")

    def signal(self, number):
        os.kill(getattr(self, "pid", self.process.pid), number)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def leave(self, seconds=20):
        """SIGTERM, and it ends in order."""
        self.signal(signal.SIGTERM)
        assert self.process.wait(seconds) == 0, self.tail()

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait(10)

    def alive(self):
        return self.process.poll() is None

    def cpu(self):
        """Seconds of processor time so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def busy(self, seconds):
        """The share of one processor that it uses for so long."""
        before = self.cpu()
        time.sleep(seconds)
        return (self.cpu() - before) / seconds


class Mesh:
    def __init__(self, folder, pg, settings=None, database=None, database_url=None, fill=None):
        """database_url: what services use instead of the socket of pg; {role} is put in. fill(mesh): what is in the database already, and
        in the folder of secrets, when it is made ready."""
        self.folder, self.pg = pathlib.Path(folder), pg
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings = {**QUICK, **(settings or {})}
        self.database = database or f"mesh_{os.getpid()}_{next(_names)}"
        self.database_url = database_url or pg.url("abies_{role}", self.database)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("ABIES_", "PG"))}
        self.env.update(HOME=str(self.folder), HOSTS_FILE=str(self.folder / "hosts"))
        self.processes, self.bus, self.fill = [], [], fill
        self.hosts({})

    def __enter__(self):
        """As `abies-admin init` makes it; done once for each PostgreSQL, and copied."""
        template = None if self.fill else getattr(self.pg, "template", None)
        self.pg.query(f"CREATE DATABASE {self.database}" + (f" TEMPLATE {template[0]}" if template else ""))
        if template:
            for name in ("secrets", "curve"):
                shutil.copytree(template[1] / name, self.folder / name)
        else:
            if self.fill:
                self.fill(self)
            self.admin("init", "--secrets", self.folder / "secrets", "--curve-dir", self.folder / "curve")
        return self

    @staticmethod
    def prepare(pg):
        """For a PostgreSQL that many use."""
        with Mesh(pg.folder / "template", pg, database="template_mesh") as mesh:
            pg.template = mesh.database, mesh.folder

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.check()
            else:
                self.show()
        finally:
            self.stop()
        if kind is None:
            for path in self.folder.glob("*.log"):
                text = path.read_text(errors="replace")
                for bad in ("AddressSanitizer", "LeakSanitizer", "runtime error:"):
                    assert bad not in text, f"{path}:\n" + text[max(0, text.index(bad) - 300):][:4000]

    def stop(self):
        for p in self.processes:
            if p.alive():
                p.thaw()
                p.process.send_signal(signal.SIGTERM)
                if p.role == "gateway":
                    p.process.send_signal(signal.SIGINT)  # the second one: at once, whoever is still connected
        until = time.monotonic() + 15
        for p in self.processes:
            try:
                p.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                p.process.kill()
                p.process.wait()
            p.log.close()
        for pid in processes_with(str(self.folder / "curve")):
            os.kill(pid, signal.SIGKILL)

    def show(self):
        for p in self.processes:
            print(f"--- {p.name} ({'runs' if p.alive() else p.process.returncode})\n{p.tail(2500)}")

    def admin(self, *words):
        done = subprocess.run([str(BIN / "abies-admin"), *map(str, words)], env={**self.env, "ABIES_DATABASE_URL": self.pg.url(database=self.database)},
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check(self):
        """The invariants of the database."""
        self.admin("check")

    def query(self, text, *args):
        return self.pg.query(text, *args, database=self.database)

    def hosts(self, names):
        """{name: [addresses]} for processes that were started with hosts=True; in place, since the file is mounted."""
        lines = ["127.0.0.1 localhost"] + [f"{a} {name}" for name, addresses in names.items() for a in addresses]
        with open(self.folder / "hosts", "w") as f:
            f.write("\n".join(lines) + "\n")

    # ------------------------------------------------------------------ processes

    def gateway(self, host="127.0.0.1", port=0, bus="tcp://127.0.0.1:*", hosts=False, prefix=(), limits=None, env=None, program=None, **settings):
        settings = {**self.settings, "listen": f"{host}:{port}", "bus_listen": bus, "plain_http": "true", "curve_dir": self.folder / "curve", **settings}
        p = Process(self, "gateway", settings, [*prefix, *(WITH_HOSTS if hosts else [])], limits, env, program).started()
        p.url = f"http://{p.run['listen']}"
        self.bus.append(p.run["bus"])
        return p

    def service(self, role, gateways=None, hosts=False, prefix=(), limits=None, env=None, program=None, log_path=None, **settings):
        settings = {**self.settings, "gateways": gateways or ",".join(self.bus), "curve_dir": self.folder / "curve", "workers": 2,
                    "database_url": self.database_url.format(role=role), **settings}
        if role == "auth":
            settings = {"seal_key": self.folder / "secrets" / "seal.key", "login_limit_address": "100000", "login_hold": "20ms", **settings}
        return Process(self, role, settings, [*prefix, *(WITH_HOSTS if hosts else [])], limits, env, program, log_path)

    def of(self, role):
        return [p for p in self.processes if p.role == role and p.alive()]

    def everything(self, **kw):
        """One of each service, a gateway if there is none, all ready."""
        if not self.of("gateway"):
            self.gateway()
        for role in ROLES:
            if not self.of(role):
                self.service(role, **kw)
        for p in self.processes:
            if p.alive():
                p.ready()

    @staticmethod
    def free_port():
        """It and its neighbour are free, and no outgoing connection will take them."""
        while True:
            port = random.randrange(15000, 32000, 2)
            with contextlib.suppress(OSError), socket.socket() as first, socket.socket() as second:
                first.bind(("0.0.0.0", port))
                second.bind(("0.0.0.0", port + 1))
                return port

    def calm(self, seconds=0.3):
        """Nothing is asked of them, and at some time within a while none of them uses more than a little: nothing spins."""
        def quiet():
            running = [p for p in self.processes if p.alive()]
            before = [p.cpu() for p in running]
            time.sleep(seconds)
            return all(p.cpu() - b < seconds / 2 for p, b in zip(running, before))
        wait_for(quiet, 10, "a calm moment")

    # ------------------------------------------------------------------ clients

    @property
    def url(self):
        return self.of("gateway")[0].url

    def user(self, name=None, url=None):
        """A registered user's session; its `url` is where it speaks to."""
        name = name or f"user{next(_names)}"
        url = url or self.url
        form = {"username": name, "password": name + "-secret-1"}
        made = requests.post(url + "/auth/password/register", json=form, timeout=40)
        assert made.status_code == 201, made.text
        r = requests.post(url + "/auth/password/login", data=form, timeout=40)
        assert r.status_code == 200, r.text
        return self.session(r.json()["access_token"], url)

    @staticmethod
    def session(token, url):
        s = requests.Session()
        s.trust_env = False
        s.headers["Authorization"] = f"Bearer {token}"
        s.token, s.url = token, url
        return s

    @staticmethod
    def call(session, method, path, body=None, status=None, timeout=40, **kw):
        r = session.request(method, session.url + path, json=body, timeout=timeout, **kw)
        if status is not None:
            assert r.status_code == status, f"{method} {path}: {r.status_code} {r.text[:1000]}"
        return r

    def app(self, session):
        """A site and an app of this user: the app's id."""
        name = f"n{next(_names)}"
        site = self.call(session, "POST", "/sites/", {"name": name, "path": f"/{name}"}, 201).json()["id"]
        app = self.call(session, "POST", "/apps/", {"site_id": site, "name": name, "serialized_class": "", "source_code": "", "parameters": {}, "transfers": {}}, 201)
        return site, app.json()["id"]


class Load:
    """Closed-loop clients in threads: each calls `work` again as soon as it returns; what it raises is a failure.

    work(client number) -> anything; the times of all calls are kept."""

    def __init__(self, work, clients=4, pause=0.0, least=20):
        self.work, self.pause, self.least = work, pause, least
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.done, self.failures = [], []
        self.threads = [threading.Thread(target=self.client, args=(n,)) for n in range(clients)]

    def client(self, n):
        while not self.stop.is_set():
            begin = time.monotonic()
            try:
                result = self.work(n)
            except Exception as error:  # whatever it is: it is what a client would have seen
                with self.lock:
                    self.failures.append((time.monotonic(), repr(error)[:600]))
                self.stop.wait(0.05)
                continue
            with self.lock:
                self.done.append((time.monotonic() - begin, result))
            if self.pause:
                self.stop.wait(self.pause)

    def more(self, n=None, deadline=40):
        """n more answers have come: it goes on."""
        n = n or self.least
        until = len(self.done) + n
        wait_for(lambda: len(self.done) >= until or len(self.failures) > 100, deadline, f"{n} more answers")
        assert len(self.failures) <= 100, self.failures[-1:]

    def __enter__(self):
        for t in self.threads:
            t.start()
        try:
            self.more()
        except BaseException:
            self.stop.set()
            raise
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.more()
        finally:
            self.stop.set()
            for t in self.threads:
                t.join(60)

    def check(self, longest=None):
        assert not self.failures, f"{len(self.failures)} of {len(self.failures) + len(self.done)} calls failed: {self.failures[:5]}"
        slowest = max(d[0] for d in self.done)
        assert longest is None or slowest < longest, f"the slowest of {len(self.done)} calls took {slowest:.2f} s"
        return slowest


class Writers:
    """The work of clients that repeat what was refused, under its Idempotency-Key; every refusal must be 503 with Retry-After, in time."""

    def __init__(self, mesh, patience=60):
        self.mesh, self.patience = mesh, patience
        self.user = mesh.user()
        self.site, self.app = mesh.app(self.user)
        self.asked, self.refused, self.lock = 0, [], threading.Lock()

    def work(self, n, session=None):
        rows = [{"app_id": self.app, "workdir": f"w{uuid.uuid4().hex}"} for _ in range(3)]
        headers, until = {"Idempotency-Key": str(uuid.uuid4())}, time.monotonic() + self.patience
        while True:
            begin = time.monotonic()
            r = self.mesh.call(session or self.user, "POST", "/jobs/", rows, headers=headers)
            took = time.monotonic() - begin
            assert took < 12, f"an answer after {took:.1f} s"
            if r.status_code == 201:
                assert [j["workdir"] for j in r.json()] == [row["workdir"] for row in rows], "the answer to this request and no other"
                with self.lock:
                    self.asked += len(rows)
                return r.status_code
            assert r.status_code in (503, 504) and (r.status_code == 504 or "retry-after" in r.headers), (r.status_code, r.headers, r.text)
            self.refused.append((r.status_code, r.json()["detail"]))
            assert time.monotonic() < until, "it does not come back"
            time.sleep(0.1)

    def check(self):
        """Each job that was asked for is there once."""
        assert self.mesh.query("SELECT count(*) FROM jobs WHERE site_id = %s", self.site)[0][0] == self.asked
