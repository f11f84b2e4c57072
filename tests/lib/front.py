"""front.py - a real gateway with echo replicas behind it: tests of the HTTP front need no database.

    with Front(tmp) as front:
        front.get("/jobs/5")                   # requests, with a token
        raw = front.raw()                      # a bare socket, for bytes no client library would send
"""
import contextlib
import http.client
import io
import json
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import time

import requests

from centre import BUILD, wait_for

GATEWAY = BUILD / "bin" / "abies-gateway"
ECHO = BUILD / "tests" / "echo_replica"
SERVICES = ("auth", "jobs", "sessions", "transfers")
USER, SITE, READ, ADMIN = 1, 2, 4, 8


def pack(v):
    """The msgpack that tests need."""
    if v is None:
        return b"\xc0"
    if v is True or v is False:
        return b"\xc3" if v else b"\xc2"
    if isinstance(v, int):
        return struct.pack(">Bq", 0xD3, v)
    if isinstance(v, str):
        raw = v.encode()
        return struct.pack(">BI", 0xDB, len(raw)) + raw
    if isinstance(v, list):
        return struct.pack(">BI", 0xDD, len(v)) + b"".join(pack(x) for x in v)
    if isinstance(v, dict):
        return struct.pack(">BI", 0xDF, len(v)) + b"".join(pack(k) + pack(x) for k, x in v.items())
    raise TypeError(type(v))


class Replica:
    def __init__(self, front, service, instance, **options):
        self.instance = instance
        self.log = open(front.tmp / f"{instance}.log", "wb")
        command = [str(ECHO), "run", service, instance, front.run["bus"], str(front.folder)]
        command += [f"{k}={v}" for k, v in options.items()]
        if front.curve:
            command.append(f"curve={front.curve}")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self.log, stderr=self.log)

    def say(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def stop(self):
        """As a service does at SIGTERM."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self.log.close()


class Front:
    def __init__(self, tmp, tls=False, curve=False, services=SERVICES, settings=None, limits=None):
        self.tmp = pathlib.Path(tmp)
        self.folder = self.tmp / "scripts"
        self.tls, self.curve = tls, self.tmp / "curve" if curve else None
        self.services = services
        self.settings = {"beat": "100ms", "dead": "1s", "deadline": "5s", "drain": "5s", **(settings or {})}
        self.limits = limits
        self.replicas = []
        self.number = 0

    # ---- start and stop

    def __enter__(self):
        self.folder.mkdir(parents=True)
        if self.curve:
            subprocess.run([str(ECHO), "keys", str(self.curve), "gateway", *SERVICES], check=True)
        try:
            self.start_gateway()
            for service in self.services:
                self.add(service)
            if set(self.services) == set(SERVICES):
                self.wait_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def start_gateway(self):
        run_file = self.tmp / "run.json"
        run_file.unlink(missing_ok=True)
        flags = {"listen": "127.0.0.1:0", "bus_listen": "tcp://127.0.0.1:*", "run_file": run_file, **self.settings}
        if self.tls:
            self.make_certificate()
            flags.update(tls_cert=self.tmp / "cert.pem", tls_key=self.tmp / "key.pem")
        else:
            flags["plain_http"] = "true"
        flags.update({"curve_dir": self.curve} if self.curve else {"plain_bus": "true"})
        command = [str(GATEWAY)]
        for name, value in flags.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        if self.limits:
            command = ["bash", "-c", f'{self.limits}; exec "$@"', "bash", *command]
        self.log = open(self.tmp / "gateway.log", "ab")
        self.gateway = subprocess.Popen(command, stdout=self.log, stderr=self.log)

        def up():
            if self.gateway.poll() is not None:
                raise AssertionError(f"the gateway did not start:\n{self.gateway_log()}")
            return run_file.exists()

        wait_for(up, 20, "the gateway")
        self.run = json.loads(run_file.read_text())
        host, port = self.run["listen"].rsplit(":", 1)
        self.address = (host, int(port))
        self.url = f"{'https' if self.tls else 'http'}://{self.run['listen']}"
        self.ws_url = self.url.replace("http", "ws", 1)
        self.health = f"http://{self.run['health']}"

    def make_certificate(self):
        if (self.tmp / "cert.pem").exists():
            return
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
                        "-keyout", str(self.tmp / "key.pem"), "-out", str(self.tmp / "cert.pem")],
                       check=True, capture_output=True)

    def wait_ready(self):
        wait_for(lambda: requests.get(self.health + "/readyz", timeout=5).status_code == 200, 20, "/readyz")

    def stop_gateway(self, seconds=15):
        self.gateway.terminate()
        code = self.gateway.wait(seconds)
        self.log.close()
        return code

    def __exit__(self, *exc):
        code = 0
        try:
            if getattr(self, "gateway", None):
                if self.gateway.poll() is None:
                    try:
                        code = self.stop_gateway()
                    except subprocess.TimeoutExpired:
                        self.gateway.kill()
                        self.gateway.wait()
                        raise AssertionError("the gateway did not end after SIGTERM")
                else:
                    code = self.gateway.returncode
        finally:
            for replica in self.replicas:
                replica.stop()
        text = self.gateway_log()
        assert "ERROR: AddressSanitizer" not in text and "runtime error:" not in text and \
            "LeakSanitizer" not in text, text
        if exc and exc[0] is None:
            assert code in (0, -9), f"the gateway ended with {code}:\n{text}"

    def gateway_log(self):
        return (self.tmp / "gateway.log").read_text(errors="replace")

    # ---- replicas and their scripts

    def add(self, service, **options):
        self.number += 1
        replica = Replica(self, service, f"{service}-{self.number}", **options)
        replica.service = service
        self.replicas.append(replica)
        return replica

    def replica(self, service):
        return next(r for r in self.replicas if r.service == service and r.process.poll() is None)

    def script(self, verb, status=200, body=None, delay_ms=0):
        text = f"{status} {delay_ms}\n".encode() + (b"" if body is None else pack(body))
        temporary = self.folder / f".{verb}"
        temporary.write_bytes(text)
        temporary.rename(self.folder / verb)

    def unscript(self, verb):
        (self.folder / verb).unlink(missing_ok=True)

    def set_rows(self, n):
        (self.folder / "rows").write_text(str(n))

    def seen(self, verb):
        path = self.folder / "seen"
        lines = path.read_text().splitlines() if path.exists() else []
        return [dict(zip(("verb", "instance", "try", "uuid", "key"), x.split())) for x in lines if x.split()[0] == verb]

    def metric(self, name):
        text = requests.get(self.health + "/metrics", timeout=5).text
        for line in text.splitlines():
            if line.rsplit(" ", 1)[0] == name:
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no {name} in\n{text}")

    # ---- clients

    def token(self, user=7, scopes=USER, seconds=3600, **options):
        command = [str(ECHO), "token", str(self.folder), str(user), str(scopes), str(seconds)]
        command += [f"{k}={v}" for k, v in options.items()]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    @property
    def auth(self):
        if not hasattr(self, "_token"):
            self._token = self.token()
        return {"Authorization": f"Bearer {self._token}"}

    def call(self, method, path, **options):
        headers = {**self.auth, **options.pop("headers", {})}
        verify = str(self.tmp / "cert.pem") if self.tls else None
        return requests.request(method, self.url + path, headers=headers, timeout=options.pop("timeout", 20),
                                verify=verify, **options)

    def get(self, path, **options):
        return self.call("GET", path, **options)

    def raw(self, timeout=15, window=None):
        """window: bytes the kernel takes for a client that does not read."""
        return Raw(self, timeout, window)

    def head(self, line="GET /jobs/5 HTTP/1.1", *lines):
        """The bytes of a request's head, with Host and a good token."""
        headers = ["Host: test", *[f"{k}: {v}" for k, v in self.auth.items()], *lines]
        return "\r\n".join([line, *headers, "", ""]).encode()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Raw:
    """A bare connection: bytes out, answers in."""

    def __init__(self, front, timeout, window=None):
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if window:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.connect(front.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if front.tls:
            context = ssl.create_default_context(cafile=str(front.tmp / "cert.pem"))
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def answer(self, method="GET"):
        """One answer. EOF before its first byte: None."""
        line = self.file.readline()
        if not line:
            return None
        status = int(line.split()[1])
        headers = {k.lower(): v for k, v in http.client.parse_headers(self.file).items()}
        if status == 204 or status < 200 or method == "HEAD":
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = self.chunks()
        elif "content-length" in headers:
            body = self.file.read(int(headers["content-length"]))
        else:
            body = self.file.read()
        return Answer(status, headers, body)

    def chunks(self):
        out = io.BytesIO()
        while True:
            size = self.file.readline()
            if not size:
                raise EOFError("the connection ended before the last chunk")
            n = int(size, 16)
            out.write(self.file.read(n))
            assert self.file.readline() == b"\r\n"
            if n == 0:
                return out.getvalue()

    def at_end(self, seconds=15):
        """The peer has closed, in order or by reset, and nothing is left to read."""
        self.socket.settimeout(seconds)
        try:
            return self.file.read(1) == b""
        except (ConnectionResetError, ssl.SSLError):
            return True
