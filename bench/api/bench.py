"""bench.py - see run"""
import argparse
import http.client
import json
import multiprocessing
import os
import pathlib
import re
import ssl
import statistics
import subprocess
import sys
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lib"))
from centre import BIN, Centre, temporary_folder  # noqa: E402

HERTZ = os.sysconf("SC_CLK_TCK")


class Client:
    """One keep-alive connection; bodies are made beforehand, so that the client is not what is measured."""

    def __init__(self, root, ca, token):
        url = urllib.parse.urlsplit(root)
        self.http = http.client.HTTPSConnection(url.hostname, url.port, context=ssl.create_default_context(cafile=ca), timeout=60)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method, path, body=None):
        self.http.request(method, path, body, self.headers)
        reply = self.http.getresponse()
        data = reply.read()
        if reply.status >= 300:
            raise SystemExit(f"{method} {path}: {reply.status} {data[:500]!r}")
        return data


def jobs_body(app, n=1000):
    return json.dumps([{"workdir": f"campaign/run-{i}", "app_id": app, "tags": {"experiment": f"e{i % 10}", "sample": f"s{i}"},
                        "parameters": {"n": "17"}, "data": {"retries": 0}} for i in range(n)]).encode()


def repeat(call, seconds, least=5):
    """Durations in seconds of call() for about so many seconds."""
    took, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(took) < least:
        begun = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun)
    return took


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HERTZ


def children(pid):
    found, todo = [], [pid]
    while todo:
        p = todo.pop()
        found.append(p)
        try:
            todo += [int(c) for c in pathlib.Path(f"/proc/{p}/task/{p}/children").read_text().split()]
        except OSError:
            pass
    return found


class Cpu:
    """CPU of gateway, services and database over a section."""

    def __init__(self, centre):
        self.pids = {}
        for row in centre.processes():
            role = {"gateway": "gateway", "postgres": "database"}.get(row["role"], "service")
            self.pids.setdefault(role, []).append(row["pid"])

    def read(self):
        spent = {}
        for role, pids in self.pids.items():
            for pid in [p for pid in pids for p in children(pid)]:
                try:
                    spent[role, pid] = cpu_of(pid)
                except OSError:
                    pass
        return spent

    def __enter__(self):
        self.before = self.read()
        return self

    def __exit__(self, *_):
        after = self.read()
        self.used = {}
        for key, cpu in after.items(): # what ended meanwhile (a vacuum) is not counted
            self.used[key[0]] = self.used.get(key[0], 0) + cpu - self.before.get(key, 0)

    def text(self, units):
        return "  CPU us each: " + ", ".join(f"{r} {self.used.get(r, 0) / max(units, 1) * 1e6:.0f}" for r in ("gateway", "service", "database"))


def worker(root, ca, token, method, path, bodies, seconds, out):
    client = Client(root, ca, token)
    turn = iter(range(10**9))
    took = repeat(lambda: client.call(method, path, bodies[next(turn) % len(bodies)]), seconds)
    out.put((len(took), sum(took), took))


class Bench:
    def __init__(self, centre, seconds, repeats):
        self.centre, self.seconds, self.repeats = centre, seconds, repeats
        self.token = centre.http.headers["Authorization"].split()[1]
        self.client = Client(centre.root, centre.ca, self.token)
        info = json.loads((centre.home / "run" / "centre.json").read_text())
        self.pg = f"host={info['socket_dir']} user=abies password={(centre.home / 'secrets' / 'db-abies').read_text().strip()}"
        self.site = json.loads(self.client.call("POST", "/sites/", json.dumps({"name": "bench", "path": "/bench"})))["id"]
        self.app = json.loads(self.client.call("POST", "/apps/", json.dumps({"site_id": self.site, "name": "a", "serialized_class": "",
                                                                            "source_code": ""})))["id"]

        self.owner = self.psql(f"SELECT owner_id FROM sites WHERE id = {self.site}")

    def psql(self, *commands, db="abies"):
        args = []
        for c in commands:
            args += ["-c", c]
        return subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", f"{self.pg} dbname={db}", *args], check=True, capture_output=True,
                              text=True).stdout.strip()

    def clear(self):
        self.psql("TRUNCATE jobs, job_specs, job_parents, transfer_items, events, job_counts, requests", "CHECKPOINT")

    def limit(self, *what):
        """The database's own rate for the same rows: bench/db's driver on a database beside ours. Median of the field."""
        field, *args = what
        values = []
        for _ in range(self.repeats):
            self.psql("DROP DATABASE IF EXISTS bench_limit WITH (FORCE)", "CREATE DATABASE bench_limit", db="postgres")
            env = {**os.environ, "ABIES_DATABASE_URL_FILE": str(self.centre.folder / "limit-url")}
            pathlib.Path(env["ABIES_DATABASE_URL_FILE"]).write_text(f"{self.pg} dbname=bench_limit")
            os.chmod(env["ABIES_DATABASE_URL_FILE"], 0o600)
            subprocess.run([BIN / "abies-admin", "migrate"], env=env, check=True, capture_output=True)
            fixture = pathlib.Path(__file__).resolve().parents[1] / "db" / "fixture.sql"
            subprocess.run(["psql", "-qX", f"{self.pg} dbname=bench_limit", "-v", f"n={100000 if args[0] == 'step' else 1000}", "-v", "d=0", "-v", "sites=4", "-v", "few=false", "-f",
                            fixture], check=True, capture_output=True)
            if args[0] in ("limit", "create_copy"):
                self.psql("TRUNCATE jobs, job_specs, events, job_counts, requests", "CHECKPOINT", db="bench_limit")
            env["ABIES_DATABASE_URL"] = f"{self.pg} dbname=bench_limit"
            out = subprocess.run([BIN / "dbbench", *args, "--seconds", str(self.seconds)], env=env, check=True, capture_output=True, text=True).stdout.split()
            values.append(float(out[out.index(field) + 1]))
        return statistics.median(values)

    def parallel(self, clients, method, path, bodies):
        """bodies[i] for client i. Calls a second, all durations."""
        out = multiprocessing.Queue()
        people = [multiprocessing.Process(target=worker, args=(self.centre.root, self.centre.ca, self.token, method, path, bodies[i], self.seconds, out))
                  for i in range(clients)]
        begun = time.perf_counter()
        for p in people:
            p.start()
        done = [out.get() for _ in people]
        for p in people:
            p.join()
        return sum(n / spent for n, spent, _ in done), sum(n for n, _, _ in done), time.perf_counter() - begun

    # ------------------------------------------------------------------ sections

    def create(self):
        for clients, aim in ((1, 0.40), (4, 0.60)):
            limit = self.limit("rows/s", "limit", "--clients", str(clients))
            rates, cpu = [], None
            for _ in range(self.repeats):
                self.clear()
                with Cpu(self.centre) as cpu:
                    rate, calls, _ = self.parallel(clients, "POST", "/jobs/", [[jobs_body(self.app)]] * clients)
                rates.append(rate * 1000)
            x = statistics.median(rates)
            print(f"bulk create of 1,000, {clients} client(s): {x:,.0f} jobs/s = {x / limit:.2f} of plain COPY ({limit:,.0f}; aim {aim})")
            print(cpu.text(calls * 1000))

    def own(self, *statements):
        """Median of the milliseconds that PostgreSQL takes for a call's statements by themselves, in the round trips that the service has: pgbench,
        planned for their values (as the services' lists are: a plan for everybody's average can be a very bad one for a tenant)."""
        settings = ("SELECT set_config('statement_timeout', '30000', true), set_config('lock_timeout', '5000', true), "
                    "set_config('application_name', 'bench', true)",
                    "SELECT set_config('plan_cache_mode', 'auto', true), set_config('enable_seqscan', 'on', true), "
                    "set_config('cursor_tuple_fraction', '1', true)")
        script = self.centre.folder / "own.sql"
        script.write_text("\\startpipeline\n" + "".join(f"{x};\n" for x in ("BEGIN READ ONLY", *settings, *statements)) + "\\endpipeline\nCOMMIT;\n")
        took = []
        for _ in range(self.repeats):
            out = subprocess.run(["pgbench", "-n", "-M", "extended", "-T", str(self.seconds), "-f", script, f"{self.pg} dbname=abies"], check=True,
                                 capture_output=True, text=True).stdout
            took.append(float(re.search(r"latency average = ([0-9.]+)", out)[1]))
        return statistics.median(took)

    def timed(self, what, own, path):
        """Print the median of a GET as a multiple of `own` milliseconds; wrk, because Python's client is slower than all the rest."""
        with Cpu(self.centre) as cpu:
            out = subprocess.run(["wrk", "-t1", "-c1", f"-d{self.seconds}", "--latency", "-H", f"Authorization: Bearer {self.token}", self.centre.root + path],
                                 check=True, capture_output=True, text=True).stdout
        if "Non-2xx" in out:
            raise SystemExit(out)
        value, unit = re.search(r"50%\s+([0-9.]+)(us|ms|s)", out).groups()
        p50 = float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
        print(f"{what}: p50 {p50:.2f} ms = {p50 / own:.2f} times the database's own ({own:.2f} ms; aim 2)")
        print(cpu.text(int(re.search(r"(\d+) requests in", out)[1])))

    def single(self):
        self.clear()
        base = self.limit("p50", "create_copy", "--clients", "1", "-n", "1")
        body = jobs_body(self.app, 1)
        with Cpu(self.centre) as cpu:
            took = repeat(lambda: self.client.call("POST", "/jobs/", body), self.seconds)
        p50 = statistics.median(took) * 1e3
        print(f"single create: p50 {p50:.2f} ms = {p50 / base:.2f} times the database's own ({base:.2f} ms; aim 2)")
        print(cpu.text(len(took)))

    def update(self):
        self.clear()
        ids = [j["id"] for _ in range(4) for j in json.loads(self.client.call("POST", "/jobs/", jobs_body(self.app)))]
        states = ["PREPROCESSED", "RUNNING", "RUN_DONE", "RESTART_READY"]
        for clients in (1, 4):
            base = self.limit("rows/s", "step", "--clients", str(clients))
            bodies = [[json.dumps([{"id": i, "state": s} for i in ids[1000 * c:1000 * c + 1000]]).encode() for s in states] for c in range(clients)]
            with Cpu(self.centre) as cpu:
                rate, calls, _ = self.parallel(clients, "PATCH", "/jobs/", bodies)
            print(f"update of 1,000, {clients} client(s): {rate * 1000:,.0f} jobs/s = {rate * 1000 / base:.2f} of the database's own ({base:,.0f}; aim 0.7)")
            print(cpu.text(calls * 1000))

    def fill(self, backlog, finished):
        """Runnable jobs with finished ones among them, straight into the tables."""
        self.clear()
        total = backlog + finished
        self.psql(f"""INSERT INTO jobs (id, owner_id, site_id, app_id, last_update, state, num_nodes, node_packing_count, wall_time_min)
                      SELECT g, {self.owner}, {self.site}, {self.app}, now(),
                             CASE WHEN g * {backlog}::bigint / {total} > (g - 1) * {backlog}::bigint / {total} THEN 'PREPROCESSED' ELSE 'JOB_FINISHED' END::job_state,
                             1, 1 + 3 * ((g / 1000) % 2), 10 * (1 + (g / 500) % 4)
                      FROM generate_series(1, {total}) g""",
                  """INSERT INTO job_specs (id, owner_id, app_id, workdir, tags) SELECT id, owner_id, app_id, 'run-' || id,
                     jsonb_build_object('experiment', 'e' || id % 10) FROM jobs""",
                  """INSERT INTO job_counts SELECT owner_id, site_id, app_id, state, count(*), sum(num_nodes * 1000000::bigint / node_packing_count), 0
                     FROM jobs GROUP BY 1, 2, 3, 4""",
                  f"SELECT setval('job_ids', {total})", "VACUUM ANALYZE jobs", "VACUUM ANALYZE job_specs", "CHECKPOINT")

    def acquire(self, backlogs, finished):
        first = {}
        for backlog, beside in [(b, f) for f in ([0, finished] if finished else [0]) for b in backlogs]:
            self.fill(backlog, beside)
            for n in (1, 32, 512):
                took = []
                body = json.dumps({"max_num_jobs": n, "filter_tags": {}, "max_aggregate_nodes": 1e9}).encode()
                with Cpu(self.centre) as cpu:
                    for turn in range(34):
                        session = json.loads(self.client.call("POST", "/sessions/", json.dumps({"site_id": self.site})))["id"]
                        begun = time.perf_counter()
                        self.client.call("POST", f"/sessions/{session}", body)
                        if turn >= 4:
                            took.append(time.perf_counter() - begun)
                        self.client.call("DELETE", f"/sessions/{session}")
                p50 = statistics.median(took) * 1e3
                ratio = p50 / first.setdefault(n, p50)
                print(f"acquire {n} of {backlog:,}, {beside:,} finished beside: p50 {p50:.1f} ms, {n / p50 * 1e3:,.0f} jobs/s, {ratio:.2f} of the first (aim 1.5)")
                print(cpu.text(34 * n) + " (with taking and giving back)")

    def lists(self):
        self.fill(100000, 100000)
        columns = ", ".join(re.findall(r"^ *F\((?:of|job),[^\"]*AB_OUT[^\n]*?\"([sj]\.[a-z_]+)\"", (ROOT / "common/schema/job.def").read_text(), re.M))
        total = f"SELECT coalesce(sum(%s), 0) FROM job_counts WHERE owner_id = {self.owner}"
        own = self.own(f"SELECT {columns} FROM job_specs s JOIN jobs j ON j.id = s.id WHERE s.owner_id = {self.owner} ORDER BY s.id LIMIT 100", total % "jobs")
        self.timed("list of 100 jobs and their number", own, "/jobs/?limit=100")
        size = len(self.client.call("GET", "/jobs/?limit=100000"))
        took = repeat(lambda: self.client.call("GET", "/jobs/?limit=100000"), 1, least=3)
        print(f"list of everything, {size / 1e6:.1f} MB: p50 {statistics.median(took):.2f} s")
        self.memory("after it", {"gateway", "jobs"})
        self.clear()
        for _ in range(20):
            self.client.call("POST", "/jobs/", jobs_body(self.app))
        self.psql("VACUUM ANALYZE events")
        own = self.own(f"SELECT id, job_id, timestamp, from_state, to_state, data FROM events WHERE owner_id = {self.owner} ORDER BY timestamp DESC, id LIMIT 100",
                       total % "events")
        self.timed("newest 100 events and their number", own, "/events/?limit=100")

    def memory(self, when, roles=None):
        for row in self.centre.processes():
            if row["role"] != "postgres" and (not roles or row["role"] in roles):
                status = pathlib.Path(f"/proc/{row['pid']}/status").read_text()
                rss = int(next(x for x in status.splitlines() if x.startswith("VmRSS")).split()[1])
                print(f"memory {when}: {row['name']} {rss / 1024:.1f} MB")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=int, default=3)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--backlog", type=int, action="append")
    p.add_argument("--finished", type=int, default=1000000)
    p.add_argument("--only", action="append", choices=["create", "single", "update", "acquire", "lists"])
    o = p.parse_args()
    with Centre(temporary_folder("bench")) as centre:
        centre.invariants = False
        b = Bench(centre, o.seconds, o.repeats)
        b.memory("at rest")
        for section in o.only or ["create", "single", "update", "acquire", "lists"]:
            if section == "acquire":
                b.acquire(o.backlog or [1000, 100000, 1000000], o.finished)
            else:
                getattr(b, section)()
        b.memory("after load")


if __name__ == "__main__":
    main()
