"""compose.py - docker-compose.yml without an engine: checked against what the Compose specification allows, and run as plain processes

    with Network() as net:                       # a bridge, and a name server with compose's behaviour: a name has the addresses
        box = Box(net, "jobs", env={...})        #   of all containers of its service that run just now
        box.start(); box.healthy(); box.stop()

A Box is a network namespace and a mount namespace with the image's entry point, environment, user and health check, the service's
volumes, a read-only root, no capabilities and no new privileges. Needs root.
"""
import itertools
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading

import yaml

from centre import BIN, ROOT, wait_for
from netns import ip

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()

# ---------------------------------------------------------------------- the specification, as far as one may want it here

DURATION = re.compile(r"(\d+(\.\d+)?(us|ms|s|m|h))+")


def text(v):
    return isinstance(v, str)


def texts(v):
    return isinstance(v, list) and all(map(text, v))


def command(v):
    return text(v) or texts(v)


def flag(v):
    return isinstance(v, bool)


def duration(v):
    return text(v) and DURATION.fullmatch(v) is not None


def whole(v):
    return isinstance(v, int) and not flag(v)


def one_of(*values):
    return lambda v: v in values


def scalar(v):
    return v is None or isinstance(v, (str, int, float)) and not flag(v)  # a bare true is refused by the specification


def mapping(check):
    return lambda v: isinstance(v, dict) and all(text(k) and check(x) for k, x in v.items())


def keys(**checks):
    def check(v):
        assert isinstance(v, dict), f"a mapping is wanted, not {v!r}"
        for key, value in v.items():
            if key.startswith("x-"):
                continue
            assert key in checks, f"`{key}` is not in the specification ({', '.join(checks)})"
            assert checks[key](value), f"{key}: {value!r}"
        return True
    return check


HEALTH = keys(test=command, interval=duration, timeout=duration, retries=whole, start_period=duration, start_interval=duration, disable=flag)
SERVICE = keys(
    build=keys(context=text, dockerfile=text, target=text, args=mapping(scalar)), image=text, command=command, entrypoint=command,
    environment=mapping(scalar), env_file=command, ports=texts, expose=texts, volumes=texts, networks=texts, user=text, working_dir=text,
    depends_on=mapping(keys(condition=one_of("service_started", "service_healthy", "service_completed_successfully"), restart=flag, required=flag)),
    restart=lambda v: text(v) and re.fullmatch(r"no|always|on-failure(:\d+)?|unless-stopped", v), read_only=flag, cap_drop=texts, cap_add=texts,
    security_opt=texts, healthcheck=HEALTH, profiles=texts, stop_grace_period=duration, stop_signal=text, init=flag, tmpfs=command,
    deploy=keys(replicas=whole), scale=whole, container_name=text, labels=mapping(scalar), hostname=text, secrets=texts, logging=keys(
        driver=text, options=mapping(scalar)), ulimits=mapping(whole), sysctls=mapping(scalar), shm_size=text, privileged=flag)
VOLUME = keys(driver=text, external=flag, name=text, labels=mapping(scalar))
NETWORK = keys(driver=text, internal=flag, external=flag, name=text, attachable=flag, labels=mapping(scalar))
FILE = keys(name=lambda v: text(v) and re.fullmatch(r"[a-z0-9][a-z0-9_-]*", v), services=mapping(SERVICE), volumes=mapping(VOLUME),
            networks=mapping(NETWORK), secrets=mapping(keys(file=text, environment=text)), configs=mapping(keys(file=text)), version=text)


def check(document):
    """Against the forms above, then what the forms do not say: that what is named is there, and a start has an order."""
    FILE(document)
    services = document["services"]
    for name, service in services.items():
        assert re.fullmatch(r"[a-zA-Z0-9._-]+", name)
        assert "image" in service or "build" in service, f"{name}: neither image nor build"
        for other in service.get("depends_on", {}):
            assert other in services, f"{name} depends on {other}, which is no service"
            if service["depends_on"][other]["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}, which has no check"
            assert not services[other].get("profiles"), f"{name} depends on {other}, which is in a profile"
        for network in service.get("networks", []):
            assert network in document["networks"], f"{name}: network {network}"
        for volume in service.get("volumes", []):
            assert re.fullmatch(r"[a-z0-9-]+:/[\w/.-]+(:ro|:rw)?", volume), f"{name}: {volume}"
            assert volume.split(":")[0] in document["volumes"], f"{name}: volume {volume}"
        for port in service.get("ports", []):
            port = interpolate(port, {})
            assert re.fullmatch(r"(\d+(-\d+)?:)?\d+(-\d+)?(/tcp|/udp)?", port), f"{name}: {port}"
    seen = set()
    while len(seen) < len(services):
        ready = {n for n, s in services.items() if n not in seen and set(s.get("depends_on", {})) <= seen}
        assert ready, f"these wait for each other: {set(services) - seen}"
        seen |= ready


def interpolate(value, env):
    """${NAME:-default} of the compose file."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: env.get(m[1]) or m[2], value)


# ---------------------------------------------------------------------- the images

class Image:
    """A target of the Dockerfile with what it has from the targets it is made from."""

    def __init__(self, target):
        self.env, self.user, self.health, self.command = {}, "root", None, None
        self.files = {}  # {path in /opt/abies: where it comes from}
        parts = re.split(r"^FROM ", DOCKERFILE.replace("\\\n", " "), flags=re.M)[1:]
        stages = {m[2]: (m[1], part) for part in parts if (m := re.match(r"(\S+) AS (\S+)", part))}
        chain = []
        while target in stages:
            chain.append(stages[target][1])
            target = stages[target][0]
        for part in reversed(chain):
            self.read(part)

    def read(self, part):
        for line in part.splitlines():
            word, _, rest = line.partition(" ")
            if word == "ENV":
                self.env.update(item.split("=", 1) for item in shlex.split(rest))
            elif word == "USER":
                self.user = rest
            elif word == "CMD":
                self.command = yaml.safe_load(rest)
            elif word == "COPY":
                *options, source, to = rest.split()
                if to.startswith("/opt/abies/"):
                    to += pathlib.Path(source).name if to.endswith("/") else ""
                    self.files[to.removeprefix("/opt/abies/")] = BIN / pathlib.Path(source).name if options else ROOT / source
            elif word == "HEALTHCHECK":
                self.health = yaml.safe_load(rest.split("CMD ", 1)[1]) if "CMD " in rest else None


    def unpack(self, folder):
        """Its /opt/abies: only what was copied there."""
        for name, source in self.files.items():
            if not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / name)
                (folder / name).chmod(0o755)
        return folder


# ---------------------------------------------------------------------- the network

class Network:
    numbers = itertools.count(2)

    def __init__(self):
        self.bridge, self.net = f"abbr{os.getpid()}"[:15], f"10.98.{os.getpid() % 250}"
        self.here = f"{self.net}.1"
        self.lock, self.names, self.asked = threading.Lock(), {}, set()

    def __enter__(self):
        ip("link", "add", "name", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.here}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((self.here, 53))
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.socket.close()
        ip("link", "del", self.bridge, check=False)

    def join(self, name, address):
        with self.lock:
            self.names.setdefault(name, []).append(address)

    def leave(self, name, address):
        with self.lock:
            self.names[name].remove(address)

    def addresses(self, name):
        with self.lock:
            return list(self.names.get(name, []))

    def serve(self):
        while True:
            try:
                query, peer = self.socket.recvfrom(1024)
                self.socket.sendto(self.answer(query), peer)
            except OSError:
                return
            except (IndexError, struct.error, UnicodeDecodeError):
                continue  # no question

    def answer(self, query):
        """A records of 0 s, in turn; a name that nobody has is NXDOMAIN; other types of one that is there: none."""
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += query[at] + 1
        kind = struct.unpack(">H", query[at + 1:at + 3])[0]
        name = ".".join(labels)
        found = self.addresses(name)
        with self.lock:
            self.asked.add(name)
            if found:
                self.names[name].append(self.names[name].pop(0))
        rows = found if kind == 1 else []
        head = query[:2] + struct.pack(">HHHHH", 0x8580 if found else 0x8583, 1, len(rows), 0, 0)
        return head + query[12:at + 5] + b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(a) for a in rows)


# ---------------------------------------------------------------------- a container

INSIDE = r"""
set -euf
mount --make-rprivate /
mount --bind "$OPT" /opt/abies
mount -t tmpfs none /run/abies
while read -r from to mode; do
    [ -n "$from" ] || continue
    mkdir -p "$to"
    mount --bind "$from" "$to"
    [ "$mode" != ro ] || mount -o remount,bind,ro "$to"
done <<EOF
$VOLUMES
EOF
[ "$READ_ONLY" != yes ] || mount -o remount,bind,ro /
cd /
exec $WRAP env -i $ENVIRONMENT "$@"
"""


class Box:
    POINTS = ("/keys", "/opt/abies", "/run/abies")  # where something is mounted: made on the host, removed by clean()

    def __init__(self, network, service, folder, env=None, host_env=None):
        """folder: of all volumes. env: more of it. host_env: what `docker compose` would find in its environment."""
        self.network, self.service, self.folder = network, service, pathlib.Path(folder)
        self.number = next(Network.numbers)
        self.name, self.address = f"ab{os.getpid()}-{service}-{self.number}", f"{network.net}.{self.number}"
        self.spec = COMPOSE["services"][service]
        self.image = Image(self.spec["build"]["target"]) if "build" in self.spec else None
        own = {k: interpolate(str(v), host_env or {}) for k, v in self.spec.get("environment", {}).items()}
        self.env = {**(self.image.env if self.image else {}), **own, **(env or {})}
        self.process = None

    def plug(self):
        ip("netns", "add", self.name)
        ip("link", "add", f"v{self.number}-{os.getpid()}"[:15], "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", f"v{self.number}-{os.getpid()}"[:15], "master", self.network.bridge, "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.name, "link", "set", device, "up")
        etc = pathlib.Path("/etc/netns") / self.name  # `ip netns exec` mounts what is there over /etc
        etc.mkdir(parents=True)
        (etc / "resolv.conf").write_text(f"nameserver {self.network.here}\noptions ndots:0 timeout:2 attempts:2\n")
        self.network.join(self.service, self.address)

    def unplug(self):
        if self.address in self.network.addresses(self.service):
            self.network.leave(self.service, self.address)
        ip("netns", "del", self.name, check=False)
        shutil.rmtree(pathlib.Path("/etc/netns") / self.name, ignore_errors=True)

    def prefix(self):
        return ["ip", "netns", "exec", self.name]

    def mounts(self):
        rows = []
        for volume in self.spec.get("volumes", []):
            name, to, *mode = volume.split(":")
            (self.folder / name).mkdir(exist_ok=True)
            rows.append(f"{self.folder / name} {to} {(mode or ['rw'])[0]}")
        return "\n".join(rows)

    def start(self, command=None):
        """The image's user, with what the service allows. Returns at once."""
        for point in self.POINTS:
            pathlib.Path(point).mkdir(parents=True, exist_ok=True)
        self.plug()
        wrap = []
        if self.image.user != "root":
            assert self.image.user == "abies" and "useradd --system --uid 10001" in DOCKERFILE
            wrap += ["--reuid=10001", "--regid=10001", "--clear-groups"]
        if self.spec.get("cap_drop") == ["ALL"]:
            wrap.append("--bounding-set=" + ",".join(["-all", *("+" + c.lower() for c in self.spec.get("cap_add", []))]))
            wrap += ["--inh-caps=-all", "--ambient-caps=-all"]
        if "no-new-privileges:true" in self.spec.get("security_opt", []):
            wrap.append("--no-new-privs")
        env = {"PATH": "$PATH", **self.env}
        env["PATH"] = env["PATH"].replace("$PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        assert not [v for v in env.values() if re.search(r"\s", v)], "INSIDE cuts words at spaces"
        self.log = open(self.folder / f"{self.name}.log", "ab")
        self.process = subprocess.Popen(
            [*self.prefix(), "sh", "-c", INSIDE, "box", *(command or self.spec.get("command") or self.image.command)], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log, cwd="/",
            env={"PATH": os.environ["PATH"], "OPT": str(self.image.unpack(self.folder / ("opt-" + self.spec["build"]["target"]))), "VOLUMES": self.mounts(), "WRAP": " ".join(["setpriv", *wrap] if wrap else []), "ENVIRONMENT": " ".join(f"{k}={v}" for k, v in env.items()),
                 "READ_ONLY": "yes" if self.spec.get("read_only") else "no"})
        return self

    def said(self):
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    def inside(self, *words, timeout=20):
        """As `docker exec`, but as root."""
        return subprocess.run(["nsenter", "-t", str(self.process.pid), "-n", "-m", *words], capture_output=True, text=True, timeout=timeout)

    def healthy(self, deadline=60):
        """The image's own check."""
        def well():
            assert self.process.poll() is None, f"{self.service} ended with {self.process.returncode}:\n{self.said()[-3000:]}"
            return self.inside(*(self.spec.get("healthcheck", {}).get("test", [0])[1:] or self.image.health)).returncode == 0
        wait_for(well, deadline, f"the health of {self.service}", every=0.2)
        return self

    def finish(self, deadline=60):
        """A one-shot container."""
        code = self.process.wait(deadline)
        self.unplug()
        assert code == 0, f"{self.service}: {self.said()[-3000:]}"

    def stop(self, deadline=50):
        """As compose does: out of the name, its signal, and it must end by itself."""
        self.network.leave(self.service, self.address)
        self.process.send_signal(getattr(signal, self.spec.get("stop_signal", "SIGTERM")))
        code = self.process.wait(deadline)
        self.unplug()
        assert code == 0, f"{self.service} ended with {code}: {self.said()[-3000:]}"
        for bad in ("AddressSanitizer", "LeakSanitizer", "runtime error:"):
            assert bad not in self.said(), self.said()[-4000:]

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)
        self.unplug()

    @classmethod
    def clean(cls):
        for point in cls.POINTS:
            for path in (pathlib.Path(point), *pathlib.Path(point).parents):
                if len(path.parts) > 2 or path.name in ("keys",):
                    try:
                        path.rmdir()
                    except OSError:
                        break
