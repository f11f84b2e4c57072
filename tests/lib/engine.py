"""engine.py - docker-compose.yml in a real container engine

    ABIES_ENGINE="docker compose" pytest tests/system/test_engine.py

with Engine(folder) as engine:              # built, `up --wait`, a project of its own name on a port of its own
    engine.compose("ps"), engine.containers("jobs"), engine.call("GET", "/sites/")

Needs root on the engine's host: processes in containers are killed and looked at from outside. What can be had without an engine is in
compose.py.
"""
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess

from centre import ROOT, Centre, wait_for
from traffic import Clients

ENGINE = shlex.split(os.environ.get("ABIES_ENGINE", ""))
SERVICES = ("gateway", "jobs", "sessions", "transfers", "auth")


def run(*words, env=None, check=True, timeout=600, text=True, stdin=None):
    done = subprocess.run([*map(str, words)], input=stdin, env={**os.environ, **(env or {})}, capture_output=True, text=text, timeout=timeout, cwd=ROOT)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Container:
    def __init__(self, name):
        self.name = name
        self.about = json.loads(run(ENGINE[0], "inspect", name).stdout)[0]

    pid = property(lambda self: self.about["State"]["Pid"])
    health = property(lambda self: self.about["State"].get("Health", {}).get("Status"))
    addresses = property(lambda self: [n["IPAddress"] for n in self.about["NetworkSettings"]["Networks"].values()])

    def again(self):
        return Container(self.name)

    def kill(self, sig=signal.SIGKILL):
        """As a crash: a kill by the engine's own command would count as wanted."""
        os.kill(self.pid, sig)

    def status(self):
        rows = pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in rows if ":\t" in line)


class Engine(Clients):
    def __init__(self, folder):
        self.folder, self.project, self.port = pathlib.Path(folder), f"abies-test-{os.getpid()}", free_port()
        self.env = {"ABIES_PORT": str(self.port), "ABIES_DATABASE_POOLED": "false"}
        (self.folder / "public").mkdir()

    def doors(self):
        return [("127.0.0.1", self.port)]

    def compose(self, *words, **kw):
        return run(*ENGINE, "-p", self.project, *words, env=self.env, **kw).stdout

    def __enter__(self):
        try:
            self.compose("--profile", "pgbouncer", "build", timeout=1800)
            self.up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        self.compose("--profile", "pgbouncer", "down", "-v", "--rmi", "local", "--remove-orphans", check=False)

    def up(self, *words, profile=(), **scale):
        """Until everything is healthy and the way in is open."""
        flags = [word for name, n in scale.items() for word in ("--scale", f"{name}={n}")]
        self.compose(*profile, "up", "-d", "--wait", *words, *flags)
        ca = self.compose("exec", "-T", "renew", "cat", "/run/abies/all/tls/ca.pem")
        (self.folder / "public" / "ca.pem").write_text(ca)
        wait_for(lambda: self.call("GET", "/readyz").status == 200, 30, "/readyz", every=0.2)

    def containers(self, service):
        return [Container(name) for name in self.compose("ps", "-a", "-q", service).split()]

    def figures(self, container, name):
        """Sum of the samples of that name."""
        text = run(ENGINE[0], "exec", container.name, "curl", "-fsS", "http://127.0.0.1:9440/metrics").stdout
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((name + "{", name + " ")))

    def query(self, statement):
        return self.compose("exec", "-T", "postgres", "psql", "-U", "abies", "-Atc", statement).splitlines()

    def volume_files(self, *paths):
        """What is in the volume that holds every secret."""
        return {path: self.compose("exec", "-T", "renew", "cat", "/run/abies/all/" + path) for path in paths}

    def image_bytes(self, service):
        """All layers and the description of an image, as one piece."""
        image = self.containers(service)[0].about["Image"]
        return run(ENGINE[0], "save", image, text=False).stdout


class Account(Centre):
    """A user of a deployment that is there already, and sites of that user: `with Account(folder, engine, "name")`."""

    invariants = False  # of the engine

    def __init__(self, folder, engine, name):
        super().__init__(folder)
        self.engine, self.name = engine, name

    def up(self):
        self.root, self.ca = f"https://localhost:{self.engine.port}", str(self.folder / "ca.pem")
        shutil.copy(self.engine.folder / "public" / "ca.pem", self.ca)
        self.cli("register", "--url", self.root, "--username", self.name, "--password-file", "-", "--ca-file", self.ca, stdin=self.name + "-secret-1\n")
        self.http = self.session()
