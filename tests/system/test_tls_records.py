"""TLS records that come together: the gateway reads ahead, so what it has read must not wait for more to come."""
import re
import socket
import ssl
import threading

import pytest
from front import Front


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with Front(tmp_path_factory.mktemp("records"), tls=True, curve=True) as f:
        yield f


class Records:
    """A TLS client whose records go out together, in one segment, whatever their number."""

    def __init__(self, front):
        self.socket = socket.create_connection(front.address, timeout=20)
        context = ssl.create_default_context(cafile=front.tmp / "cert.pem")
        context.check_hostname = False
        self.came, self.left = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.came, self.left)
        self.until(self.tls.do_handshake)

    def flush(self):
        self.socket.sendall(self.left.read())

    def until(self, step):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.flush()
                self.came.write(self.socket.recv(65536))

    def read(self, n):
        data = b""
        while data.count(b"HTTP/1.1 ") < n or not data.endswith(b"}"):
            data += self.until(lambda: self.tls.read(65536))
        return data


@pytest.mark.parametrize("records", [2, 16, 17, 400])
def test_records_that_come_in_one_segment_are_all_read(front, records):
    client = Records(front)
    first = front.head("GET /jobs/1 HTTP/1.1")
    client.tls.write(first[:10])  # with the end of the handshake
    client.flush()
    client.tls.write(first[10:])
    for i in range(2, records + 1):
        client.tls.write(front.head(f"GET /jobs/{i} HTTP/1.1"))
    sender = threading.Thread(target=client.flush)
    sender.start()
    answers = client.read(records)
    sender.join()
    assert [int(x) for x in re.findall(rb'"id":(\d+)', answers)] == list(range(1, records + 1))


def test_what_was_read_ahead_while_a_request_is_worked_on_is_not_forgotten(front):
    """More than a connection may send meanwhile: its reading stops and goes on."""
    client = Records(front)
    n = 600
    front.script("site.get", 200, {"waited": "for"}, delay_ms=700)
    client.tls.write(front.head("GET /sites/1 HTTP/1.1"))
    for i in range(1, n + 1):
        client.tls.write(front.head(f"GET /jobs/{i} HTTP/1.1", "x-filler: " + "f" * 300))
    sender = threading.Thread(target=client.flush)
    sender.start()
    answers = client.read(n + 1)
    sender.join()
    assert [int(x) for x in re.findall(rb'"id":(\d+)', answers)] == list(range(1, n + 1))
