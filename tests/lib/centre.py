"""centre.py - the product as tests use it: `abies up` in a temporary folder, sites below it, nothing left behind.

    with Centre(tmp, replicas={"jobs": 2}, settings={"session_ttl": "3s"}) as centre:
        site = centre.site("alpha")
        jobs = centre.post("/jobs/", [...])

Everything goes through the command line program, HTTPS and WebSocket, as users do. On leaving, the centre is
stopped and the test fails if a process of it is left, if a sanitizer has reported, or if `abies-admin check`
finds a broken invariant.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import uuid

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ABIES_BUILD", ROOT / "build" / "asan"))
BIN = BUILD / "bin"
EXAMPLES = BUILD / "libexec" / "abies" / "examples"
RUNNING = ("READY", "STAGED_IN", "PREPROCESSED", "RUNNING")


def wait_for(condition, deadline=60.0, what="the condition", every=0.05):
    """Calls condition() until it is true; its last value is returned. A failure says what was waited for."""
    until = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {deadline} s; last seen: {value!r}")
        time.sleep(every)


def alive(pid):
    """Runs, and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_with(text):
    """Pids whose command line or environment holds the text: all that a temporary folder's name has been given to."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes() + pathlib.Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if text.encode() in line and alive(int(entry)):
            found.append(int(entry))
    return found


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(gone)"


def comm(pid):
    """The name that a process goes by."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "(gone)"


class Centre:
    def __init__(self, folder, gateways=1, replicas=None, settings=None, env=None, patient=False):
        """patient: calls are made again, under the same Idempotency-Key, while the centre is away, as every client of ours does."""
        self.patient = patient
        self.folder = pathlib.Path(folder)
        self.home = self.folder / "centre"
        self.user_home = self.folder / "home"
        self.user_home.mkdir(parents=True, exist_ok=True)
        self.gateways, self.replicas, self.settings = gateways, replicas or {}, settings or {}
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("ABIES_")}
        self.env.update(HOME=str(self.user_home), ABIES_HOME=str(self.home), PATH=f"{BIN}:{os.environ['PATH']}",
                        XDG_RUNTIME_DIR=str(self.folder / "xdg"), NO_COLOR="1", **(env or {}))
        (self.folder / "xdg").mkdir(mode=0o700, exist_ok=True)
        self.env.pop("ABIES_BUILD", None)
        self.sites = []

    # ------------------------------------------------------------------ life

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.show_logs()
        try:
            if kind is None and self.invariants:
                self.check()
        finally:
            self.stop_all()
        if kind is None:
            self.nothing_left()
            if os.environ.get("ABIES_TEST_CLEAN"):  # scripts/test; by hand one wants to look at it
                shutil.rmtree(self.folder, ignore_errors=True)

    invariants = True

    def up(self):
        args = ["up", "--port", "0", "--gateways", str(self.gateways)]
        if self.replicas:
            args += ["--replicas", ",".join(f"{k}={v}" for k, v in self.replicas.items())]
        for name, value in self.settings.items():
            args += ["--set", f"{name}={value}"]
        self.cli(*args, timeout=120)
        client = (self.user_home / ".abies" / "client.yml").read_text()
        self.root = re.search(r"^api_root: *['\"]?([^'\"\n]+)", client, re.M)[1].rstrip("/")
        self.ca = re.search(r"^ca_file: *['\"]?([^'\"\n]+)", client, re.M)[1]
        self.http = self.session()

    def session(self, token=None):
        """A requests session for a user: the local one, or the bearer of `token`."""
        if token is None:
            client = (self.user_home / ".abies" / "client.yml").read_text()
            token = re.search(r"^token: *['\"]?([^'\"\n]+)", client, re.M)[1]
        s = requests.Session()
        s.verify = self.ca
        s.trust_env = False
        s.headers["Authorization"] = f"Bearer {token}"
        if self.patient:
            again = Retry(total=40, status_forcelist=(502, 503, 504), allowed_methods=None, backoff_factor=0.05, raise_on_status=False)
            s.mount("https://", HTTPAdapter(max_retries=again))
        return s

    def stop_all(self):
        for site in self.sites:
            site.stop(check=False)
        self.cli("down", check=False, timeout=60)
        until = time.monotonic() + 10
        while (left := processes_with(str(self.folder))) and time.monotonic() < until:
            time.sleep(0.1)
        self.left = [f"{pid}: {command_line(pid)}" for pid in left]
        for _ in range(3):
            for pid in processes_with(str(self.folder)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass

    def nothing_left(self):
        assert not self.left, "left behind by `abies site stop` and `abies down`:\n" + "\n".join(self.left)
        for path in sorted(self.folder.rglob("*.log")) + sorted(self.folder.rglob("*.out")):
            text = path.read_text(errors="replace")
            for bad in ("AddressSanitizer", "LeakSanitizer", "runtime error:", "ThreadSanitizer"):
                assert bad not in text, f"{path}:\n" + text[max(0, text.index(bad) - 300):][:4000]

    def show_logs(self):
        for path in sorted(self.home.glob("log/*")) + sorted(self.folder.glob("site-*/log/*")):
            if path.is_file():
                lines = path.read_text(errors="replace").splitlines()
                bad = [x for x in lines if "level=error" in x or "level=warn" in x or "Sanitizer" in x or "runtime error" in x]
                print(f"--- {path} ({len(lines)} lines)")
                print("\n".join((bad or lines)[-25:]))

    def check(self):
        """The invariants of the database, as an operator would check them."""
        out = self.run([str(BIN / "abies-admin"), "check", "--home", str(self.home)], timeout=60)
        return out.stdout

    # ------------------------------------------------------------------ programs

    def run(self, argv, check=True, timeout=60, cwd=None, env=None, stdin=None):
        done = subprocess.run(argv, env={**self.env, **(env or {})}, cwd=cwd or self.folder, input=stdin, text=True, capture_output=True,
                              timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def cli(self, *args, check=True, timeout=60, cwd=None, env=None, stdin=None):
        return self.run([str(BIN / "abies"), *map(str, args)], check=check, timeout=timeout, cwd=cwd, env=env, stdin=stdin)

    def cli_json(self, *args, **kw):
        return json.loads(self.cli(*args, "--json", **kw).stdout)

    def processes(self, role=None):
        """[{"name": "jobs.0", "role": "jobs", "pid": ..., "health": ...}] from the run folder."""
        doc = json.loads((self.home / "run" / "centre.json").read_text())
        rows = doc["processes"]
        for row in rows:
            row.setdefault("role", row["name"].split(".")[0])
        return [r for r in rows if role is None or r["role"] == role]

    def pid(self, role, n=0):
        return wait_for(lambda: self.processes(role)[n].get("pid"), 30, f"a pid of {role}.{n}")

    def kill(self, role, n=0, sig=signal.SIGKILL):
        pid = self.pid(role, n)
        os.kill(pid, sig)
        return pid

    def ready(self, deadline=60):
        def all_ready():
            try:
                return requests.get(self.root + "/readyz", verify=self.ca, timeout=5).status_code == 200
            except requests.RequestException:
                return False
        return wait_for(all_ready, deadline, "/readyz")

    # ------------------------------------------------------------------ HTTPS

    def request(self, method, path, body=None, status=None, http=None, **kw):
        if self.patient and method != "GET":
            kw.setdefault("headers", {}).setdefault("Idempotency-Key", str(uuid.uuid4()))
        r = (http or self.http).request(method, self.root + path, json=body, timeout=kw.pop("timeout", 40), **kw)
        if status is not None:
            assert r.status_code == status, f"{method} {path}: {r.status_code} {r.text[:2000]}"
        return r

    def get(self, path, **kw):
        return self.request("GET", path, status=200, **kw).json()

    def post(self, path, body, status=201, **kw):
        return self.request("POST", path, body, status=status, **kw).json()

    def patch(self, path, body, **kw):
        return self.request("PATCH", path, body, status=200, **kw).json()

    def user(self, name):
        """A new tenant: (session, id)."""
        made = self.post("/auth/password/register", {"username": name, "password": name + "-secret-1"})
        r = requests.post(self.root + "/auth/password/login", data={"username": name, "password": name + "-secret-1"}, verify=self.ca,
                          timeout=30)
        assert r.status_code == 200, r.text
        return self.session(r.json()["access_token"]), made["id"]

    def states(self, query=""):
        """{state: number of jobs}."""
        counts = {}
        for job in self.get("/jobs/" + query)["results"]:
            counts[job["state"]] = counts.get(job["state"], 0) + 1
        return counts

    def site(self, name="one", **kw):
        site = Site(self, name, **kw)
        self.sites.append(site)
        return site


class Site:
    """A site folder below the centre's temporary folder, its agent started by `abies site start`."""

    def __init__(self, centre, name, settings=None, start=True, location="local://localhost{}", ssh_config=None):
        """location: where the folder `beamline` is found, its path put in at {}."""
        self.centre, self.name = centre, name
        self.path = centre.folder / f"site-{name}"
        self.beamline = centre.folder / f"beamline-{name}"
        self.beamline.mkdir()
        centre.cli("site", "init", "--name", name, "--location", "beamline=" + location.format(self.beamline), self.path)
        self.id = int((self.path / ".abies-site").read_text())
        text = (self.path / "settings.yml").read_text()
        for key, value in {"poll_period": "0.2", "service_period": "0.2", "sync_period": "0.3", "delay_sec": "0.2", **(settings or {})}.items():
            text, n = re.subn(rf"^(  +{key}:) .*$", rf"\1 {value}", text, flags=re.M)
            assert n, f"settings.yml has no {key}"
        if ssh_config:
            text = text.replace("\ntransfers:\n", f"\ntransfers:\n  ssh_config: {ssh_config}\n", 1)
        (self.path / "settings.yml").write_text(text)
        if start:
            self.start()

    @property
    def env(self):
        return {"ABIES_SITE_PATH": str(self.path)}

    def start(self):
        self.centre.cli("site", "start", self.path)

    def stop(self, check=True):
        return self.centre.cli("site", "stop", self.path, check=check, timeout=40)

    def app(self, name, text):
        (self.path / "apps" / f"{name}.yml").write_text(text)
        self.centre.cli("app", "sync", env=self.env)
        found = self.centre.get(f"/apps/?site_id={self.id}&name={name}")["results"]
        assert len(found) == 1, found
        return found[0]["id"]

    def example(self, example, name):
        text = (ROOT / "examples" / example / "apps" / f"{name}.yml").read_text().replace("@EXAMPLES@", str(EXAMPLES))
        return self.app(name, text)

    def allocate(self, minutes=10, mode="serial", nodes=1):
        return self.centre.post("/batch-jobs/", {"site_id": self.id, "project": "local", "queue": "local", "num_nodes": nodes,
                                                 "wall_time_min": minutes, "job_mode": mode})["id"]

    def processes(self, program):
        """Pids of this site's processes whose command line holds `program`."""
        return [p for p in processes_with(str(self.path)) if program in command_line(p)]

    def modules(self, name=""):
        """The module processes: not the batch jobs and transfers that they started."""
        return [p for p in self.processes(f"abies-module-{name}") if len(command_line(p).split()) == 1]

    def launchers(self):
        """The heads: not their guards and node workers."""
        return [p for p in self.processes("abies-launcher ") if " worker " not in command_line(p) and comm(p) == "abies-launcher"]

    def workers(self):
        return [p for p in self.processes("abies-launcher worker ") if comm(p) == "abies-launcher"]


def temporary_folder(name):
    """Short, because socket paths have 107 bytes."""
    path = pathlib.Path("/tmp") / f"ab-{os.getpid()}-{name}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    return path
