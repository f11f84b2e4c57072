"""The gateway when its services die, freeze, leave or are too busy, and when it is told to stop itself."""
import concurrent.futures
import pathlib
import signal
import sys
import threading
import time

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from centre import wait_for  # noqa: E402
from front import Front  # noqa: E402

BEAT, DEAD = 0.25, 1.5


@pytest.fixture
def front(tmp_path):
    with Front(tmp_path, curve=True, settings={"beat": "250ms", "dead": "1500ms", "deadline": "10s"}) as f:
        yield f


class Load:
    """Closed-loop clients: every answer's status and time."""

    def __init__(self, front, clients=8, path="/jobs/5"):
        self.front, self.path = front, path
        self.stop, self.answers, self.lock = threading.Event(), [], threading.Lock()
        self.threads = [threading.Thread(target=self.client) for _ in range(clients)]

    def client(self):
        session = requests.Session()
        while not self.stop.is_set():
            begin = time.monotonic()
            try:
                status = session.get(self.front.url + self.path, headers=self.front.auth, timeout=20).status_code
            except requests.RequestException as error:
                status = repr(error)
            with self.lock:
                self.answers.append((status, time.monotonic() - begin))

    def __enter__(self):
        self.front.auth  # made once, before the threads
        for t in self.threads:
            t.start()
        wait_for(lambda: len(self.answers) > 50, 20, "the load")
        return self

    def __exit__(self, *exc):
        count = len(self.answers)
        if exc[0] is None:  # it goes on after whatever happened
            wait_for(lambda: len(self.answers) > count + 50, 30, "answers after the fault")
        self.stop.set()
        for t in self.threads:
            t.join()

    def check(self, longest):
        bad = [a for a in self.answers if a[0] != 200]
        assert not bad, f"{len(bad)} of {len(self.answers)}: {bad[:5]}"
        slowest = max(a[1] for a in self.answers)
        assert slowest < longest, f"the slowest of {len(self.answers)} took {slowest:.2f} s"


def slow_jobs(front):
    front.script("job.get", 200, delay_ms=2)
    front.replica("jobs").stop()
    front.replicas = [r for r in front.replicas if r.service != "jobs"]
    options = {"workers": 4, "beat": 250, "dead": 1500}
    pair = [front.add("jobs", **options), front.add("jobs", **options)]
    wait_for(lambda: front.metric('abies_bus_replicas{service="jobs"}') == 2, 20, "two replicas of jobs")
    return pair


def test_a_killed_replica_costs_no_error_and_one_beat(front):
    first, _ = slow_jobs(front)
    with Load(front) as load:
        first.kill()
    load.check(longest=BEAT + 2.0)  # with a sanitizer and neighbours: the beat and some air


def test_a_frozen_replica_costs_no_error_and_the_time_of_silence(front):
    first, _ = slow_jobs(front)
    with Load(front) as load:
        first.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: front.metric('abies_bus_replicas{service="jobs"}') == 1, 20, "the frozen one to be given up")
        first.process.send_signal(signal.SIGCONT)
        wait_for(lambda: front.metric('abies_bus_replicas{service="jobs"}') == 2, 20, "its return")
    load.check(longest=DEAD + BEAT + 2.0)


def test_a_leaving_replica_costs_nothing(front):
    first, _ = slow_jobs(front)
    with Load(front) as load:
        first.stop()
    load.check(longest=2.0)


def test_a_request_is_sent_again_with_the_same_identity(front):
    front.script("job.update", 200, delay_ms=3000)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(front.call, "PUT", "/jobs/5", json={"num_nodes": 1}, headers={"Idempotency-Key": "k1"})
        wait_for(lambda: front.seen("job.update"), 5, "the request at a replica")
        front.script("job.update", 200)
        front.add("jobs")
        wait_for(lambda: front.metric('abies_bus_replicas{service="jobs"}') == 2, 10, "a second replica")
        victim = front.seen("job.update")[0]["instance"]
        next(r for r in front.replicas if r.instance == victim).kill()
        answer = waiting.result(10)
    assert answer.status_code == 200 and answer.json()["instance"] != victim and answer.json()["try"] == 1
    seen = front.seen("job.update")
    assert len(seen) == 2 and seen[0]["uuid"] == seen[1]["uuid"] and seen[1]["key"] == "k1"
    assert answer.headers["x-request-id"] == seen[0]["uuid"]


def test_without_any_replica_it_is_503_soon_and_works_again_later(front):
    front.replica("jobs").kill()
    begin = time.monotonic()
    got = front.get("/jobs/5")
    assert got.status_code == 503 and "retry-after" in got.headers and "detail" in got.json()
    assert time.monotonic() - begin < 6
    assert requests.get(front.health + "/readyz", timeout=5).status_code == 503
    assert "jobs" in requests.get(front.health + "/readyz", timeout=5).text
    assert front.get("/sessions/").status_code == 200  # the others go on
    front.add("jobs")
    wait_for(lambda: front.get("/jobs/5").status_code == 200, 10, "jobs to be back")
    front.wait_ready()


def test_a_slow_service_is_504_at_the_deadline(tmp_path):
    with Front(tmp_path, settings={"deadline": "1s"}) as front:
        front.script("job.get", 200, delay_ms=3000)
        begin = time.monotonic()
        got = front.get("/jobs/5")
        assert got.status_code == 504 and 0.8 < time.monotonic() - begin < 2.5
        assert front.get("/jobs/").status_code == 200


def test_a_full_queue_is_503_at_once(tmp_path):
    with Front(tmp_path, settings={"queue_limit": "4"}, services=("auth", "sessions", "transfers")) as front:
        front.add("jobs", workers=1, capacity=1)
        front.wait_ready()
        front.script("job.get", 200, delay_ms=500)
        front.auth
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            def timed(_):
                begin = time.monotonic()
                return front.get("/jobs/5").status_code, time.monotonic() - begin

            got = list(pool.map(timed, range(16)))
        served, refused = [g for g in got if g[0] == 200], [g for g in got if g[0] == 503]
        assert len(served) + len(refused) == 16 and 5 <= len(served) <= 7, got
        assert min(t for _, t in refused) < 0.4


def test_sigterm_finishes_what_was_begun_and_closes_the_rest(front):
    front.script("job.get", 200, delay_ms=4000)
    idle = front.raw()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(front.get, "/jobs/5")
        wait_for(lambda: front.seen("job.get"), 5, "the request at its replica")
        front.gateway.send_signal(signal.SIGTERM)
        assert idle.at_end(5)
        answer = waiting.result(10)
    assert answer.status_code == 200 and answer.headers["connection"] == "close"
    assert front.gateway.wait(5) == 0
    with pytest.raises(requests.ConnectionError):
        front.get("/jobs/5")


def test_replicas_find_a_gateway_that_was_killed_and_came_back(front):
    ports = {"listen": front.run["listen"], "bus_listen": front.run["bus"], "hint_listen": front.run["hint"]}
    front.gateway.kill()
    front.gateway.wait()
    front.settings.update(ports)
    front.start_gateway()
    front.wait_ready()
    assert front.get("/jobs/5").status_code == 200


def test_few_descriptors_are_survived(tmp_path):
    with Front(tmp_path, limits="ulimit -n 160") as front:
        many = []  # more than it has descriptors for
        try:
            for _ in range(300):
                try:
                    many.append(front.raw(2))
                except OSError:
                    break
        finally:
            for raw in many:
                raw.close()
        def served():
            try:
                return front.get("/jobs/5").status_code == 200
            except requests.RequestException:
                return False  # while the flood drains connections are still refused
        wait_for(served, 20, "service after the flood")


def test_connections_over_the_limit_are_refused_and_counted(tmp_path):
    with Front(tmp_path, settings={"max_connections": "10"}) as front:
        many = [front.raw() for _ in range(20)]
        wait_for(lambda: front.metric("abies_gateway_refused_total") >= 10, 5, "the refusals")
        for raw in many:
            raw.close()
        wait_for(lambda: front.metric("abies_gateway_connections") == 0, 5, "the end of the others")
        assert front.get("/jobs/5").status_code == 200


def test_large_requests_are_bounded_in_bytes(front):
    """256 MiB of requests may be held; what comes on top is told so before it is read."""
    size = 60 << 20
    holders = [front.raw(60) for _ in range(6)]
    answers = []
    try:
        for raw in holders:
            raw.send(front.head("POST /jobs/ HTTP/1.1", f"Content-Length: {size}", "Expect: 100-continue"))
        answers = [raw.answer().status for raw in holders]
        assert answers.count(100) == 4 and answers.count(503) == 2, answers
        assert front.get("/jobs/5").status_code == 200
    finally:
        for raw in holders:
            raw.close()
    wait_for(lambda: front.metric("abies_gateway_request_bytes") == 0, 10, "the bytes to be given back")
