"""rounds.py - many no-op jobs through a whole centre, in rounds: does it stay as fast as it was?

Nothing is deleted between the rounds, so tables, indexes and the log grow. A round is over when all its jobs have finished:
they are created by bulk requests, prepared and completed by processing sessions, and run by launchers that lease them
and report them RUNNING and RUN_DONE; all of it through HTTPS, gateway, bus, services and PostgreSQL.
"""
import json
import multiprocessing
import pathlib
import sys
import time

import psycopg2

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT / "bench" / "api")]
from bench import Client, Cpu, jobs_body  # noqa: E402

BULK = 1000


def post(client, path, body, method="POST"):
    return json.loads(client.call(method, path, json.dumps(body)) or "null")


class Worker:
    """A session of its own; ends when the round has."""

    def __init__(self, place, done, target):
        root, ca, token, self.site = place
        self.client, self.done, self.target = Client(root, ca, token), done, target

    def over(self):
        return self.done.value >= self.target

    def leased(self, most, **spec):
        """Jobs, until the round is over."""
        session = post(self.client, "/sessions/", {"site_id": self.site})["id"]
        while not self.over():
            jobs = post(self.client, f"/sessions/{session}", {"max_num_jobs": most, "filter_tags": {}, **spec})
            if jobs:
                yield jobs
            else:
                time.sleep(0.01)
        self.client.call("DELETE", f"/sessions/{session}")

    def report(self, jobs, state):
        post(self.client, "/jobs/", [{"id": j["id"], "state": state, "lease": j["lease"]} for j in jobs], "PATCH")


def launcher(place, done, target, most=64):
    worker = Worker(place, done, target)
    for jobs in worker.leased(most):
        worker.report(jobs, "RUNNING")
        worker.report(jobs, "RUN_DONE")


def processing(place, done, target, most=512):
    worker = Worker(place, done, target)
    for jobs in worker.leased(most, states=["STAGED_IN", "RUN_DONE", "RUN_ERROR", "RUN_TIMEOUT"]):
        fresh = [j for j in jobs if j["state"] == "STAGED_IN"]
        if fresh:
            worker.report(fresh, "PREPROCESSED")
        if ran := [j for j in jobs if j["state"] == "RUN_DONE"]:
            worker.report(ran, "POSTPROCESSED")
            with done.get_lock():
                done.value += len(ran)


def creator(place, done, target, app, n):
    worker = Worker(place, done, target)
    for at in range(0, n, BULK):
        worker.client.call("POST", "/jobs/", jobs_body(app, min(BULK, n - at)))


class Rounds:
    def __init__(self, centre, launchers=4, processors=2):
        self.centre, self.launchers, self.processors = centre, launchers, processors
        token = centre.http.headers["Authorization"].split()[1]
        self.site = centre.post("/sites/", {"name": "rounds", "path": "/rounds"})["id"]
        self.app = centre.post("/apps/", {"site_id": self.site, "name": "noop", "serialized_class": "", "source_code": ""})["id"]
        self.place = (centre.root, centre.ca, token, self.site)
        info = json.loads((centre.home / "run" / "centre.json").read_text())
        secret = (centre.home / "secrets" / "db-abies").read_text().strip()
        self.db = psycopg2.connect(host=info["socket_dir"], user="abies", password=secret, dbname="abies")
        self.db.autocommit = True

    def query(self, text):
        with self.db.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall()

    def round(self, n, deadline=280):
        """Seconds, and the CPU seconds by role."""
        done = multiprocessing.Value("q", 0)
        work = [(creator, (self.place, done, n, self.app, n))]
        work += [(launcher, (self.place, done, n))] * self.launchers + [(processing, (self.place, done, n))] * self.processors
        people = [multiprocessing.Process(target=f, args=args) for f, args in work]
        with Cpu(self.centre) as cpu:
            begun = time.perf_counter()
            for p in people:
                p.start()
            for p in people:
                p.join(max(1, begun + deadline - time.perf_counter()))
            took = time.perf_counter() - begun
        for p in people:
            if p.is_alive():
                p.kill()
        assert all(p.exitcode == 0 for p in people), f"{[p.exitcode for p in people]}: {done.value} of {n} jobs after {took:.0f} s"
        return took, cpu.used

    def tables(self):
        """What PostgreSQL says of the hot tables, by name: size of heap and indexes in MB, updates, those in place, dead rows, vacuums."""
        rows = self.query("""
            SELECT CASE WHEN relname LIKE 'events%' THEN 'events' ELSE relname END AS name,
                   sum(pg_relation_size(relid))::float8 / 1e6, sum(pg_indexes_size(relid))::float8 / 1e6,
                   sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint, sum(n_dead_tup)::bigint, sum(autovacuum_count)::bigint
            FROM   pg_stat_user_tables
            WHERE  relname ~ '^(jobs|job_specs|job_counts|requests|sessions|events(_[0-9]+)?)$'
            GROUP  BY 1 ORDER BY 1""")
        return {row[0]: row[1:] for row in rows}

    def totals(self):
        """{state: jobs} as lists count them, and the number of events."""
        states = dict(self.query("SELECT state::text, sum(jobs)::bigint FROM job_counts GROUP BY 1 HAVING sum(jobs) <> 0"))
        return states, self.centre.get("/events/?limit=1")["count"]
