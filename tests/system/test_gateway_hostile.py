"""Clients that break rules, break off, or come in crowds: the gateway stays up and keeps nothing of them."""
import base64
import json
import pathlib
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from centre import wait_for  # noqa: E402
from front import Front  # noqa: E402


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with Front(tmp_path_factory.mktemp("hostile")) as f:
        (f.folder / "events").write_text("".join(f"10 {i} 1 1 1 READY\n" for i in range(1, 1500)))
        yield f


def nothing_left(front, seconds=75):
    """No connection, no byte of a request; a body that was announced may take its time limit."""
    wait_for(lambda: front.metric("abies_gateway_connections") == 0 and front.metric("abies_gateway_request_bytes") == 0,
             seconds, "the connections to be gone", every=0.25)
    assert front.get("/jobs/5").status_code == 200


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def test_a_reset_with_a_full_pipeline_leaves_nothing(front):
    """Reading is off while requests wait: the end of the client must be noticed all the same."""
    front.script("job.get", 200, delay_ms=300)
    many = b"".join(front.head(f"GET /jobs/{i} HTTP/1.1", "X-Fill: " + "f" * 1000) for i in range(1, 200))
    for break_off in (reset, socket.socket.close):
        for _ in range(5):
            s = socket.create_connection(front.address, 10)
            s.sendall(many[:150_000])
            break_off(s)
    front.unscript("job.get")
    nothing_left(front)


def test_a_reset_in_a_long_answer_leaves_nothing(front):
    front.set_rows(50_000)
    for _ in range(5):
        s = socket.create_connection(front.address, 10)
        s.sendall(front.head("GET /jobs/ HTTP/1.1") * 3)
        s.recv(1000)
        reset(s)
    (front.folder / "rows").unlink()
    nothing_left(front)


def test_a_body_that_never_ends_is_given_up(front):
    with front.raw(30) as raw:
        raw.send(front.head("POST /sites/ HTTP/1.1", "Content-Type: application/json", "Content-Length: 100") + b"{")
        begin = time.monotonic()
        assert raw.at_end(30)
        assert 9 < time.monotonic() - begin < 15
    nothing_left(front)


def client_frame(rnd, opcode, payload, fin=True):
    head = bytes([(0x80 if fin else 0) | opcode])
    n = len(payload)
    head += bytes([0x80 | n]) if n < 126 else bytes([0xFE]) + struct.pack(">H", n)
    key = rnd.randbytes(4)
    return head + key + bytes(b ^ key[i % 4] for i, b in enumerate(payload))


def corpus(front, rnd):
    def body(line, text, kind="application/json"):
        return front.head(line, f"Content-Type: {kind}", f"Content-Length: {len(text)}") + text

    jobs = json.dumps([{"workdir": f"r/{i}", "app_id": 1} for i in range(1500)]).encode()
    upgrade = front.head("GET /events/stream?since=10-1&state=READY HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket",
                         "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + base64.b64encode(bytes(16)).decode())
    return [front.head(), front.head("GET /jobs/?id=1&tags=a:b&limit=3 HTTP/1.1"), front.head("DELETE /jobs/5 HTTP/1.1"),
            front.head("HEAD / HTTP/1.1"), front.head("OPTIONS /jobs/%35 HTTP/1.1"), b"GET / HTTP/1.0\r\n\r\n",
            front.head("GET /openapi.json HTTP/1.1"), body("POST /jobs/ HTTP/1.1", b'[{"workdir":"a","app_id":1}]'),
            body("POST /jobs/ HTTP/1.1", jobs), body("PUT /jobs/5 HTTP/1.1", b'{"tags":{"a":1.5,"b":true}}'),
            body("POST /auth/password/login HTTP/1.1", b"username=a&password=%62", "application/x-www-form-urlencoded"),
            front.head("POST /sites/ HTTP/1.1", "Expect: 100-continue", "Content-Length: 2") + b"{}",
            upgrade, upgrade + client_frame(rnd, 9, b"x") + client_frame(rnd, 1, b"hi"),
            upgrade + client_frame(rnd, 8, b"\x03\xe8"),
            upgrade + client_frame(rnd, 1, b"a", False) + client_frame(rnd, 0, b"b")]


def mutated(rnd, data):
    b = bytearray(data)
    for _ in range(rnd.choice([0, 0, 1, 1, 2, 5])):
        if not b:
            break
        i = rnd.randrange(len(b))
        what = rnd.randrange(6)
        if what == 0:
            b[i] = rnd.randrange(256)
        elif what == 1:
            del b[i:i + rnd.randrange(1, 20)]
        elif what == 2:
            b[i:i] = rnd.randbytes(rnd.randrange(1, 8))
        elif what == 3:
            b[i:i] = b[max(0, i - rnd.randrange(1, 200)):i]
        elif what == 4:
            b[i:i + 1] = rnd.choice([b"\r\n", b"\0", b"%", b"&", b": ", b"99999", b"\xff"])
        else:
            b = b[:i]
    return bytes(b)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mutated_requests_in_any_pieces_do_no_harm(front, seed):
    rnd = random.Random(seed)
    requests_ = corpus(front, rnd)
    front.set_rows(3000)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        data = b"".join(mutated(rnd, rnd.choice(requests_)) for _ in range(rnd.choice([1, 1, 2, 4])))
        s = socket.create_connection(front.address, 10)
        s.settimeout(0.05)
        try:
            at = 0
            while at < len(data):
                step = rnd.choice([1, 7, 100]) if rnd.random() < 0.2 else len(data)
                s.sendall(data[at:at + step])
                at += step
            for _ in range(rnd.randrange(4)):
                if not s.recv(65536):
                    break
        except OSError:
            pass
        (reset if rnd.random() < 0.2 else socket.socket.close)(s)
        assert front.gateway.poll() is None, front.gateway_log()
    (front.folder / "rows").unlink()
    nothing_left(front)


def test_a_crowd_of_connections_comes_and_goes(front):
    crowd = [socket.create_connection(front.address, 10) for _ in range(500)]
    for s in crowd:
        s.sendall(front.head())
    for s in crowd:
        assert s.recv(12) == b"HTTP/1.1 200"
        s.close()
    nothing_left(front)


# ---- TLS

@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with Front(tmp_path_factory.mktemp("secure"), tls=True) as f:
        yield f


def context(front, **versions):
    c = ssl.create_default_context(cafile=str(front.tmp / "cert.pem"))
    c.set_alpn_protocols(["h2", "http/1.1"])
    for name, value in versions.items():
        setattr(c, name, value)
    return c


def test_tls_1_2_and_1_3_are_spoken_and_alpn_says_http_1_1(secure):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        c = context(secure, minimum_version=version, maximum_version=version)
        with c.wrap_socket(socket.create_connection(secure.address, 10), server_hostname="localhost") as s:
            assert s.selected_alpn_protocol() == "http/1.1"
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert s.recv(12) == b"HTTP/1.1 200"


def test_a_tls_connection_outlives_the_limit_of_its_handshake(secure):
    with secure.raw(30) as raw:
        for _ in range(3):
            raw.send(secure.head())
            assert raw.answer().status == 200
            time.sleep(6)  # idle, as clients are
        raw.send(secure.head())
        assert raw.answer().status == 200


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_1_1_is_refused(secure):
    c = context(secure)
    c.set_ciphers("ALL:@SECLEVEL=0")
    c.minimum_version = c.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        c.wrap_socket(socket.create_connection(secure.address, 10), server_hostname="localhost")


def test_plain_http_and_garbage_on_the_tls_port_do_no_harm(secure):
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 500, bytes(100), b"\x80" * 3):
        s = socket.create_connection(secure.address, 15)
        try:
            s.sendall(data)
            while s.recv(4096):
                pass
        except OSError:
            pass
        s.close()
    assert secure.get("/jobs/5").status_code == 200


def test_tls_connections_broken_off_leave_nothing(secure):
    secure.set_rows(20_000)
    for i in range(20):
        raw = secure.raw()
        raw.send(secure.head("GET /jobs/ HTTP/1.1"))
        if i % 2:
            raw.file.read(1000)
        raw.file.close()
        reset(raw.socket)
    (secure.folder / "rows").unlink()
    nothing_left(secure)


# ---- two gateways, one port

def test_two_gateways_share_a_port(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    with Front(tmp_path / "a") as one, Front(tmp_path / "b", settings={"listen": one.run["listen"]}) as two:
        assert one.address == two.address
        for _ in range(200):
            with one.raw() as raw:
                raw.send(b"GET /auth/how HTTP/1.1\r\nHost: x\r\n\r\n")
                assert raw.answer().status == 200

        def counts():
            return [f.metric("abies_gateway_requests_total") for f in (one, two)]

        wait_for(lambda: sum(counts()) >= 200, 5, "the figures")
        assert min(counts()) > 20, counts()


@pytest.mark.parametrize("flags,words", [
    ({"plain_http": "false"}, "tls_cert"), ({"plain_bus": "false"}, "curve_dir"), ({"listen": "nonsense"}, "HOST:PORT"),
    ({"log_level": "loud"}, "log_level"), ({"max_connections": "0"}, "max_connections"), ({"no_such": "1"}, "no")])
def test_wrong_settings_stop_the_start_with_a_reason(tmp_path, flags, words):
    from front import GATEWAY
    settings = {"listen": "127.0.0.1:0", "bus_listen": "tcp://127.0.0.1:*", "plain_http": "true", "plain_bus": "true", **flags}
    command = [str(GATEWAY)] + [x for k, v in settings.items() for x in (f"--{k.replace('_', '-')}", v)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode in (1, 2) and words in done.stderr, done.stderr
    assert "Sanitizer" not in done.stderr


def test_help_names_every_setting():
    from front import GATEWAY
    text = subprocess.run([str(GATEWAY), "--help"], capture_output=True, text=True, timeout=20).stdout
    for name in ("listen", "tls-cert", "bus-listen", "curve-dir", "beat", "dead", "deadline", "drain", "run-file"):
        assert f"--{name}" in text
