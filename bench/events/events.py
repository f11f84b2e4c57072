"""events.py - see run"""
import argparse
import bisect
import json
import os
import pathlib
import select
import statistics
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "lib"))
sys.path.insert(0, str(HERE.parent / "api"))
import psycopg2  # noqa: E402
from bench import Client, Cpu, jobs_body  # noqa: E402
from centre import BIN, Centre, temporary_folder, wait_for  # noqa: E402

NOTE = struct.Struct("<IIqQQ")  # of sink.c
SECTIONS = ("latency", "fanout", "filters", "memory")
STATES = ("RUNNING", "RUN_TIMEOUT")


class Sink:
    """N subscribers, in a process of their own. Afterwards `frames`: by subscriber, [(came, place), ...], in order."""

    def __init__(self, bench, n, query=""):
        at = urllib.parse.urlsplit(bench.centre.root)
        self.path = bench.centre.folder / "notes"
        token = bench.centre.folder / "token"
        token.touch(mode=0o600)
        token.write_text(bench.token)
        self.process = subprocess.Popen([str(BIN / "eventsink"), "127.0.0.1", str(at.port), bench.centre.ca, str(token), str(n), str(self.path), query],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", "the subscribers did not get their first frames"

    def stop(self):
        self.process.stdin.close()
        self.counted = self.process.stdout.readline().split()
        assert self.process.wait(60) == 0
        self.frames = {}
        for subscriber, _, came, xid, number in NOTE.iter_unpack(self.path.read_bytes()):
            self.frames.setdefault(subscriber, []).append((came, (xid, number)))


class Peer(threading.Thread):
    """One client of LISTEN, and a trigger that notifies of each event."""

    def __init__(self, bench):
        super().__init__()
        self.bench, self.came, self.over = bench, [], False
        bench.psql("CREATE OR REPLACE FUNCTION bench_tell() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
                   " PERFORM pg_notify('bench_events', row_to_json(NEW)::text); RETURN NULL; END $$",
                   "CREATE OR REPLACE TRIGGER bench_tell AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION bench_tell()")
        self.db = psycopg2.connect(f"{bench.pg} dbname=abies")
        self.db.autocommit = True
        self.db.cursor().execute("LISTEN bench_events")
        self.start()

    def run(self):
        while not self.over:
            if select.select([self.db], [], [], 0.2)[0]:
                self.db.poll()
                now = int(time.time() * 1e6)
                self.came += [(now, n.payload) for n in self.db.notifies]
                self.db.notifies.clear()

    def stop(self):
        self.over = True
        self.join()
        self.db.close()
        self.bench.psql("DROP TRIGGER bench_tell ON events", "DROP FUNCTION bench_tell")


class Bench:
    def __init__(self, centre, options):
        self.centre, self.seconds, self.rounds = centre, options.seconds, options.rounds
        self.token = centre.http.headers["Authorization"].split()[1]
        info = json.loads((centre.home / "run" / "centre.json").read_text())
        self.pg = f"host={info['socket_dir']} user=abies password={(centre.home / 'secrets' / 'db-abies').read_text().strip()}"
        self.client = self.connect()
        site = json.loads(self.client.call("POST", "/sites/", json.dumps({"name": "bench", "path": "/bench"})))["id"]
        app = json.loads(self.client.call("POST", "/apps/", json.dumps({"site_id": site, "name": "a", "serialized_class": "", "source_code": ""})))["id"]
        self.jobs = [j["id"] for j in json.loads(self.client.call("POST", "/jobs/", jobs_body(app, 1000)))]
        self.at = [0, 0]  # of each writer: how many states it has changed

    def connect(self):
        return Client(self.centre.root, self.centre.ca, self.token)

    def psql(self, *commands):
        args = [x for c in commands for x in ("-c", c)]
        return subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", f"{self.pg} dbname=abies", *args], check=True, capture_output=True, text=True).stdout

    # ------------------------------------------------------------------ load

    def write(self, requests_a_second, events_a_request, seconds=None):
        """Changes of state at this pace, by two clients. Returns how many a second there really were."""
        seconds = seconds or self.seconds
        half = len(self.jobs) // 2
        counts = [0, 0]

        def writer(no):
            client, mine, step = self.connect(), self.jobs[no * half:(no + 1) * half], 2 / requests_a_second
            begun = time.perf_counter() + no * step / 2
            for turn in range(int(seconds / step)):
                left = begun + turn * step - time.perf_counter()
                if left > 0:
                    time.sleep(left)
                elif left < -seconds:
                    break
                which = range(self.at[no], self.at[no] + events_a_request)  # each time round the other state, so that each is a change
                self.at[no] += events_a_request
                client.call("PATCH", "/jobs/", json.dumps([{"id": mine[i % half], "state": STATES[i // half % 2]} for i in which]).encode())
                counts[no] += events_a_request

        threads = [threading.Thread(target=writer, args=(no,)) for no in (0, 1)]
        begun = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return sum(counts) / (time.perf_counter() - begun), sum(counts)

    def place(self):
        return tuple(map(int, self.psql("SELECT xid || ' ' || id FROM events ORDER BY xid DESC, id DESC LIMIT 1").split()))

    def log(self, behind):
        """[(place, time of the commit in us)] of what came since."""
        rows = self.psql(f"SELECT xid, id, (extract(epoch FROM pg_xact_commit_timestamp(xid::xid)) * 1e6)::bigint FROM events WHERE (xid, id) > ('{behind[0]}', {behind[1]})"
                         " ORDER BY xid, id")
        return [((int(x), int(i)), int(t)) for x, i, t in (line.split("|") for line in rows.splitlines())]

    def stream_round(self, subscribers, pace, per, query="", most=50):
        """One load with subscribers: ([latency in us, of some of them], events a second, cpu, deliveries)."""
        sink = Sink(self, subscribers, query)
        behind = self.place()
        with Cpu(self.centre) as cpu:
            rate, n = self.write(pace, per)
            time.sleep(0.5)
        sink.stop()
        log, took = self.log(behind), []
        places, last = [p for p, _ in log], log[-1][0]
        for subscriber, frames in sink.frames.items():
            if not query:
                assert frames[-1][1] == last, f"subscriber {subscriber} ended at {frames[-1][1]}, the log at {last}"
            if subscriber % max(1, subscribers // most):
                continue
            at = bisect.bisect_right(places, max(behind, frames[0][1]))
            for came, place in frames[1:]:
                end = bisect.bisect_right(places, place)
                took += [came - log[i][1] for i in range(at, end)]
                at = end
        assert len(sink.frames) == subscribers
        return took, rate, cpu.used, n

    def peer_round(self, pace, per):
        peer, behind = Peer(self), self.place()
        rate, n = self.write(pace, per)
        time.sleep(0.5)
        peer.stop()
        times = dict(self.log(behind))
        rows = [(now, json.loads(text)) for now, text in peer.came]
        took = [now - times[(int(row["xid"]), row["id"])] for now, row in rows]
        assert len(took) == n, (len(took), n)
        return took, rate

    # ------------------------------------------------------------------ sections

    def latency(self):
        for pace, per in ((100, 1), (100, 20)):
            ours, theirs, rates = [], [], []
            for _ in range(self.rounds):
                took, rate, _, _ = self.stream_round(1, pace, per)
                other, _ = self.peer_round(pace, per)
                ours.append(percentiles(took))
                theirs.append(percentiles(other))
                rates.append(rate)
            self.line(f"1 subscriber, {pace * per:,} events/s", ours, rates, theirs)

    def fanout(self):
        for subscribers, pace, per in ((1000, 20, 5), (1000, 100, 1), (1000, 100, 20), (3000, 20, 5)):
            ours, rates, costs = [], [], []
            for _ in range(max(1, self.rounds - 1)):
                with Cpu(self.centre) as idle:
                    _, n = self.write(pace, per)
                    time.sleep(0.5)
                took, rate, used, n = self.stream_round(subscribers, pace, per)
                ours.append(percentiles(took))
                rates.append(rate)
                costs.append((used["gateway"] - idle.used["gateway"]) / (n * subscribers) * 1e6)
                busy = used["gateway"] / (self.seconds + 0.5)
            self.line(f"{subscribers:,} subscribers, {pace} commits/s of {per}", ours, rates)
            print(f"    gateway {statistics.median(costs):.2f} us a delivered event, {busy * 100:.0f} % of a core; {self.memory('gateway'):.1f} MB after it")

    def filters(self):
        assert self.jobs[0] == 1, "a job's number is a subscriber's"
        for name, query in (("a job of its own each", "?job_id=#"), ("same state", "?state=RUNNING"), ("same tags", "?tags=experiment:e1"), ("500 jobs each", "?" + "&".join(f"job_id={j}" for j in self.jobs[:500:2])[:3500])):
            took, rate, used, n = self.stream_round(1000, 20, 20, query)
            print(f"1,000 subscribers with {name}: {rate:,.0f} events/s, gateway {used['gateway'] / (n * 1000) * 1e6:.2f} us an event and subscriber")

    def memory(self, role):
        pid = self.centre.pid(role)
        return int(next(x for x in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")).split()[1]) / 1024

    def sizes(self):
        rest = {role: self.memory(role) for role in ("gateway", "jobs", "sessions", "transfers", "auth")}
        print("memory at rest: " + ", ".join(f"{role} {mb:.1f} MB" for role, mb in rest.items()) + " (aim 20)")
        for n in (1000, 3000):
            sink = Sink(self, n)
            time.sleep(1)
            print(f"gateway with {n:,} subscribers: {self.memory('gateway'):.1f} MB" + (" (aim 60)" if n == 1000 else ""))
            sink.stop()
            wait_for(lambda: self.connections() < 10, 30, "their connections to end")

    def connections(self):
        import requests
        text = requests.get(f"http://{self.centre.processes('gateway')[0]['health']}/metrics", timeout=5).text
        return float(next(x for x in text.splitlines() if x.startswith("abies_gateway_connections ")).split()[1])

    def line(self, what, ours, rates, theirs=None):
        p50, p99 = (statistics.median(x[i] for x in ours) / 1e3 for i in (0, 1))
        text = f"{what} ({statistics.median(rates):,.0f} reached): p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        if theirs:
            q50, q99 = (statistics.median(x[i] for x in theirs) / 1e3 for i in (0, 1))
            text += f" = {p50 / q50:.2f} and {p99 / q99:.2f} of LISTEN/NOTIFY's ({q50:.1f}, {q99:.1f})"
        print(text, flush=True)


def percentiles(took):
    took = sorted(took)
    return took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=int, default=6)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", action="append", choices=SECTIONS)
    o = p.parse_args()
    with Centre(temporary_folder("bench-events"), settings={"max_websockets_per_user": 4096}) as centre:
        centre.invariants = False
        with open(centre.home / "pg" / "postgresql.conf", "a") as conf:
            conf.write("track_commit_timestamp = on\n")
        centre.cli("down")
        centre.up()
        b = Bench(centre, o)
        for section in o.only or SECTIONS:
            (b.sizes if section == "memory" else getattr(b, section))()


if __name__ == "__main__":
    main()
