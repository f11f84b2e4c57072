"""common/client/events against a real gateway: it resumes by itself, and nothing is lost or said twice."""
import json
import pathlib
import queue
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from centre import BUILD, wait_for  # noqa: E402
from front import Front  # noqa: E402


class Client:
    def __init__(self, front, query="-", since="-", seconds=60, token=None, ca=True):
        self.path = front.tmp / f"client-{time.monotonic_ns()}.yml"
        lines = [f"api_root: {front.url}", f"token: {token or front.token()}"]
        if front.tls and ca:
            lines.append(f"ca_file: {front.tmp / 'cert.pem'}")
        self.write(lines)
        command = [str(BUILD / "tests" / "event_client"), str(self.path), query, since, str(seconds)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def write(self, lines):
        self.path.touch(mode=0o600)
        self.path.write_text("\n".join(lines) + "\n")

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def line(self, seconds=15):
        return self.lines.get(timeout=seconds)

    def frame(self, seconds=15):
        line = self.line(seconds)
        assert not line.startswith("error"), line
        return json.loads(line)

    def events(self, n, seconds=20):
        got, until = [], time.monotonic() + seconds
        while len(got) < n:
            got += self.frame(until - time.monotonic())["events"]
        return got

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.reader.join()
        text = self.process.stderr.read()
        assert "Sanitizer" not in text and "runtime error" not in text, text


@pytest.fixture(params=["plain", "tls"])
def front(request, tmp_path):
    secure = request.param == "tls"
    with Front(tmp_path, tls=secure) as f:
        f.place = 1
        (f.folder / "events").write_text("10 1 1 1 1 READY\n")
        yield f
        

@pytest.fixture
def client(front):
    made = []

    def make(**options):
        made.append(Client(front, **options))
        return made[-1]
    yield make
    for c in made:
        c.close()


def write(front, n, hint=True):
    with open(front.folder / "events", "a") as f:
        for _ in range(n):
            front.place += 1
            f.write(f"10 {front.place} 1 1 1 RUNNING\n")
    if hint:
        front.replica("jobs").say("hint e 7")


def test_frames_come_and_go_on_over_a_restart_of_the_gateway(front, client):
    c = client()
    assert c.frame()["events"] == []
    write(front, 3)
    assert [e["id"] for e in c.events(3)] == [2, 3, 4]
    ports = {"listen": front.run["listen"], "bus_listen": front.run["bus"], "hint_listen": front.run["hint"]}
    front.gateway.kill()
    front.gateway.wait()
    write(front, 3, hint=False)
    front.settings.update(ports)
    front.start_gateway()
    front.wait_ready()
    assert [e["id"] for e in c.events(3, 30)] == [5, 6, 7]


def test_a_cursor_and_filters_are_used(front, client):
    write(front, 1200, hint=False)
    c = client(query="job_id=1&state=RUNNING", since="10-1")
    assert [e["id"] for e in c.events(1200)] == list(range(2, 1202))


def test_a_large_frame_arrives_whole(front, client):
    (front.folder / "data").write_text(json.dumps({"filler": "é" * 100_000}))
    c = client()
    assert c.frame()["events"] == []
    write(front, 5)
    got = c.events(5)
    assert all(e["data"]["filler"] == "é" * 100_000 for e in got)


def test_a_refused_token_ends_it_with_a_remedy(front, client):
    line = client(token="x.y.z").line()
    assert line.startswith("error 401 ") and "log in" in line


def test_a_wrong_filter_ends_it(front, client):
    assert client(query="site_id=abc").line().startswith("error 422 ")


def test_a_token_renewed_in_the_file_is_taken_up(front, client):
    c = client(token=front.token(seconds=3))
    assert c.frame()["events"] == []
    c.write([f"api_root: {front.url}", f"token: {front.token()}",
             *([f"ca_file: {front.tmp / 'cert.pem'}"] if front.tls else [])])
    time.sleep(3.5)  # the first token's life
    write(front, 2)
    assert [e["id"] for e in c.events(2)] == [2, 3]


def test_an_unknown_certificate_is_not_trusted(front, client):
    if not front.tls:
        pytest.skip("needs TLS")
    c = client(ca=False, seconds=3)
    with pytest.raises(queue.Empty):
        c.frame(4)
