"""A balancer in front of the gateway says first who the client is (`proxy_protocol`): who says so is believed, others are let go."""
import http.client
import pathlib
import socket
import ssl
import time

import pytest

from centre import wait_for
from front import Front

LINE = b"PROXY TCP4 %s 192.0.2.1 51234 8443\r\n"


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with Front(tmp_path_factory.mktemp("relay"), tls=True, settings={"proxy_protocol": "true", "max_per_address": "1"}) as front:
        yield front


def knock(front):
    s = socket.create_connection(front.address, timeout=20)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def status(front, s):
    """TLS over what is open, and one request."""
    with ssl.create_default_context(cafile=front.tmp / "cert.pem").wrap_socket(s, server_hostname="localhost") as tls:
        tls.sendall(b"GET /auth/how HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        r = http.client.HTTPResponse(tls)
        r.begin()
        r.read()
        return r.status


def gone(s):
    try:
        return s.recv(100) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("line", [LINE % b"198.51.100.1", b"PROXY TCP6 2001:db8::7 2001:db8::1 51234 8443\r\n", b"PROXY UNKNOWN\r\n"])
def test_behind_the_line_everything_is_as_ever(front, line):
    s = knock(front)
    s.sendall(line)
    assert status(front, s) == 200


def test_the_line_may_come_in_any_pieces(front):
    s = knock(front)
    for byte in LINE % b"198.51.100.2":
        s.sendall(bytes([byte]))
        time.sleep(0.002)
    assert status(front, s) == 200


def test_the_line_and_the_handshake_may_come_together(front):
    s = knock(front)
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context(cafile=front.tmp / "cert.pem").wrap_bio(into, out, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    s.sendall(LINE % b"198.51.100.3" + out.read())
    while True:
        into.write(s.recv(10000))
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            continue
    tls.write(b"GET /auth/how HTTP/1.1\r\nHost: localhost\r\n\r\n")
    s.sendall(out.read())
    into.write(s.recv(10000))  # session tickets, then the answer
    answer = b""
    while b"200 OK" not in answer:
        try:
            answer += tls.read(10000)
        except ssl.SSLWantReadError:
            into.write(s.recv(10000))


def test_limits_are_those_of_the_client_and_not_of_the_balancer(front):
    held = knock(front)
    held.sendall(LINE % b"198.51.100.10")
    context = ssl.create_default_context(cafile=front.tmp / "cert.pem")
    with context.wrap_socket(held, server_hostname="localhost"):
        same = knock(front)
        same.sendall(LINE % b"198.51.100.10")
        assert gone(same), "one of an address"
        other = knock(front)
        other.sendall(LINE % b"198.51.100.11")
        assert status(front, other) == 200


@pytest.mark.parametrize("wrong", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 nobody 192.0.2.1 1 2\r\n", b"\r\n", b"PROXY " + 200 * b"x",
                                   b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", b"PROXY TCP4 192.0.2.7\0 192.0.2.1 1 2\r\n"])
def test_who_says_anything_else_is_let_go(front, wrong):
    before = front.metric("abies_gateway_refused_total")
    s = knock(front)
    s.sendall(wrong)
    assert gone(s)
    wait_for(lambda: front.metric("abies_gateway_refused_total") > before, 10, "it to be counted")


def cpu(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_half_a_line_costs_nothing_and_ends_in_time(front):
    held = [knock(front) for _ in range(200)]
    for i, s in enumerate(held):
        if i % 2:
            s.sendall(b"PROXY TCP4 192.")
    s = knock(front)
    s.sendall(LINE % b"198.51.100.20")
    assert status(front, s) == 200, "others go on"
    before, start = cpu(front.gateway.pid), time.monotonic()
    assert all(gone(s) for s in held)
    assert 5 < time.monotonic() - start < 15, "ten seconds for everything up to the head"
    assert cpu(front.gateway.pid) - before < 300, "it does not spin on what it has seen"


def test_who_only_looks_whether_we_are_there_may_leave(front):
    for _ in range(20):
        knock(front).close()
    s = knock(front)
    s.sendall(LINE % b"198.51.100.21")
    assert status(front, s) == 200


def test_a_gateway_ends_with_some_who_have_said_nothing(tmp_path):
    with Front(tmp_path, settings={"proxy_protocol": "true", "drain": "1s"}) as front:
        held = [knock(front) for _ in range(20)]
        held[0].sendall(b"PROXY ")
        held[1].sendall(LINE % b"198.51.100.30")
        assert front.stop_gateway() in (0, None)
        assert front.gateway.returncode == 0, front.gateway_log()
        assert all(gone(s) for s in held)
