#!/usr/bin/env python3
"""soak.py - a centre and a site under load while their processes are killed at random; in the end nothing may be lost or doubled.

    tests/scale/soak.py [--seconds 45] [--calm 0] [--seed N]        minutes, or hours: --seconds 14400 --calm 3600

Clients create jobs of every kind (plain, flaky, doomed, staged, with parents, cancelled ones), some give up in the middle of a
request, some ask again under the same key. Meanwhile a seeded choice of processes gets SIGKILL: gateways, replicas, PostgreSQL,
the supervisor, the site's broker and modules, transfer workers, batch jobs, launchers and their node workers. Then all is left alone until
every job has ended, and this is proved from the database and from the files that the jobs wrote:

  * every job of an acknowledged request is there once, a request nobody heard of again is there whole or not at all, at most once
  * every job is in a final state, and came there by steps of job_states.def, in one chain from CREATED
  * no two runs of a job overlapped: each run holds a lock for its life, and writes when it began and stopped, and under which lease;
    no lease has two runs, and later runs have later leases
  * a finished job has a run that came to its end, and its files are where they should be

--calm: so many seconds more of the same load, and nothing is killed. No process that lived for long may have grown by then
(watch.py); what all of them held, and what the tables did, is printed.
"""
import argparse
import collections
import itertools
import json
import os
import pathlib
import random
import re
import signal
import sys
import threading
import time
import uuid

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

import psycopg2
import requests

from centre import Centre, ROOT, alive, command_line, comm, processes_with, temporary_folder, wait_for
from watch import Watch

FINAL = ("JOB_FINISHED", "FAILED")
SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "wake_period": "200ms", "beat": "250ms", "dead": "1500ms"}
ALLOCATIONS = 2
OUTSTANDING = 60   # jobs that have not ended; above it the clients wait
PATIENCE = 90      # seconds that a client asks again
RSS_KB, DESCRIPTORS = 8192, 8   # what a process that lived for long may hold more at its end

RECORD = r"""#!/bin/sh
# record SECONDS WAY: says when it runs. The lock is held by whatever is left of this run, so a second one sees the first.
now() { read -r up _ </proc/uptime; echo "$up"; }
exec 9>>lock
flock -n 9 || echo "overlap $$ $(now)" >>record
echo "start $$ $(now) $ABIES_JOB_ID $ABIES_LEASE" >>record
sleep "$1"
case $2 in
    flaky) [ "$(grep -c '^start' record)" -gt 1 ] || { echo "fail $$ $(now)" >>record; exit 3; } ;;
    doomed) echo "fail $$ $(now)" >>record; exit 4 ;;
    staged) tr a-z A-Z <in.txt >out.txt ;;
esac
echo "stop $$ $(now)" >>record
"""

APP = """
name: {name}
command: [./record.sh, "{{{{seconds}}}}", "{{{{way}}}}"]
parameters:
  seconds: {{type: float, default: 0}}
  way: {{default: plain}}
"""

TRANSFERS = """
transfers:
  input: {direction: in, local_path: in.txt}
  output: {direction: out, local_path: out.txt}
"""


def steps():
    """What job_states.def allows."""
    text = (ROOT / "common" / "schema" / "job_states.def").read_text()
    found = set(re.findall(r"^AB_STEP\((\w+), +(\w+),", text, re.M))
    assert len(found) > 20
    return found


class Bulk:
    """One request to create jobs, and what came of it."""

    def __init__(self, key, serials):
        self.key, self.serials, self.ids = key, serials, None  # ids: acknowledged


class Soak:
    def __init__(self, folder, seed, seconds, calm=0, say=print):
        self.folder, self.seed, self.seconds, self.calm, self.say = pathlib.Path(folder), seed, seconds, calm, say
        self.begun = time.monotonic()
        self.stop = threading.Event()
        self.bulks, self.errors, self.faults = [], [], collections.Counter()
        self.cancelled = set()
        self.lock = threading.Lock()
        self.serial = 0

    def tell(self, text):
        self.say(f"[{time.monotonic() - self.begun:7.2f}] {text}", flush=True)

    # ------------------------------------------------------------------ the deployment

    def run(self):
        self.tell(f"soak: seed {self.seed}, {self.seconds} s, then {self.calm} s without faults")
        replicas = {"jobs": 2, "sessions": 2, "transfers": 2, "auth": 2}
        with Centre(self.folder, gateways=2, replicas=replicas, settings=SETTINGS) as centre:
            self.centre = centre
            self.site = centre.site("soak", settings={"idle_ttl_sec": "30"})
            (self.site.path / "apps" / "record.sh").write_text(RECORD)
            (self.site.path / "apps" / "record.sh").chmod(0o755)
            self.app = self.site.app("record", APP.format(name="record"))
            self.staged = self.site.app("staged", APP.format(name="staged") + TRANSFERS)
            (self.site.beamline / "out").mkdir()
            self.watch = Watch(self.victims, self.url())
            self.load()
            self.settle()
            self.prove()

    def load(self):
        threads = [threading.Thread(target=self.guarded, args=(work, random.Random(f"{self.seed} {name}")), name=name)
                   for name, work in (("client-1", self.client), ("client-2", self.client), ("canceller", self.canceller),
                                      ("keeper", self.keeper))]
        for t in threads:
            t.start()
        try:
            self.break_things(random.Random(f"{self.seed} faults"))
            before = len(self.bulks)
            self.tell(f"calm: {before} requests so far")
            self.stop.wait(self.calm)
            assert self.calm < 60 or len(self.bulks) > before + self.calm / 60, f"no load: {before} requests, then {len(self.bulks)}"
        finally:
            self.watch.stop()
            self.stop.set()
            for t in threads:
                if t.name != "keeper":
                    t.join(PATIENCE + 60)
        assert not self.errors, self.errors
        assert not [t for t in threads if t.is_alive() and t.name != "keeper"]
        self.keeper_thread = threads[-1]

    def guarded(self, work, rng):
        try:
            work(rng)
        except Exception as e:  # noqa: BLE001  a thread's failure is the test's
            self.errors.append(f"{threading.current_thread().name}: {e!r}")
            self.stop.set()

    # ------------------------------------------------------------------ clients

    def call(self, session, method, path, body=None, key=None, patience=PATIENCE):
        """Asked until there is an answer that is neither "try again" nor a broken connection."""
        headers = {"Idempotency-Key": key} if key else {}
        until = time.monotonic() + patience
        while True:
            try:
                r = session.request(method, self.centre.root + path, json=body, headers=headers, timeout=20)
                if r.status_code < 500:
                    return r
                last = f"{r.status_code} {r.text[:200]}"
                assert r.status_code in (502, 503, 504), f"{method} {path}: {last}"
            except requests.RequestException as e:
                last = repr(e)
            if time.monotonic() > until:
                raise AssertionError(f"{method} {path}: no answer within {patience} s; last: {last}")
            time.sleep(0.2)

    def job(self, rng, parents):
        with self.lock:
            self.serial += 1
            serial = self.serial
        way = rng.choices(("plain", "flaky", "doomed", "staged"), (60, 15, 5, 20))[0]
        job = {"app_id": self.staged if way == "staged" else self.app, "workdir": f"soak/{serial}", "node_packing_count": 8,
               "tags": {"serial": str(serial)}, "parameters": {"seconds": round(rng.expovariate(2), 2), "way": way}}
        if way == "flaky":
            job["retry"] = {"max_attempts": 20, "on": ["exit", "signal", "node_loss", "walltime"]}
        if way == "staged":
            (self.site.beamline / f"{serial}.txt").write_text(f"job {serial}\n")
            job["transfers"] = {"input": {"location_alias": "beamline", "path": f"/{serial}.txt"},
                                "output": {"location_alias": "beamline", "path": f"/out/{serial}.txt"}}
        if parents and rng.random() < 0.2:
            job["parent_ids"] = rng.sample(parents, min(len(parents), rng.randint(1, 3)))
        return serial, job

    def client(self, rng):
        session = self.centre.session()
        while not self.stop.is_set():
            if self.outstanding(session) > OUTSTANDING:
                self.stop.wait(0.5)
                continue
            known = [i for b in self.bulks[-20:] if b.ids for i in b.ids]
            made = [self.job(rng, known) for _ in range(rng.choice((1, 1, 3, 8)))]
            bulk = Bulk(str(uuid.UUID(int=rng.getrandbits(128))), [serial for serial, _ in made])
            self.bulks.append(bulk)
            body = [job for _, job in made]
            if rng.random() < 0.15 and self.loses_patience(bulk, body, rng):
                continue
            r = self.call(session, "POST", "/jobs/", body, bulk.key)
            assert r.status_code == 201, f"{r.status_code} {r.text[:500]}"
            bulk.ids = [j["id"] for j in r.json()]
            if rng.random() < 0.1:
                again = self.call(session, "POST", "/jobs/", body, bulk.key)
                assert [j["id"] for j in again.json()] == bulk.ids, "a repeated request got another answer"
            self.stop.wait(rng.random() * 0.5)

    def loses_patience(self, bulk, body, rng):
        """Hangs up after some milliseconds. True: and never comes back."""
        with self.centre.session() as session:
            try:
                r = session.post(self.centre.root + "/jobs/", json=body, headers={"Idempotency-Key": bulk.key},
                                 timeout=(1, 0.001 + rng.random() * 0.03))
                if r.status_code == 201:
                    bulk.ids = [j["id"] for j in r.json()]
                    return True
            except requests.RequestException:
                pass
        return rng.random() < 0.5

    def outstanding(self, session):
        left = 0
        for state in ("AWAITING_PARENTS", "READY", "STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE", "POSTPROCESSED", "RESTART_READY"):
            left += self.call(session, "GET", f"/jobs/?state={state}&limit=1").json()["count"]
        return left

    def canceller(self, rng):
        session = self.centre.session()
        for turn in itertools.count(1):
            if self.stop.wait(1.5):
                return
            if turn % 5 == 0:
                self.cancel_orphans(session)
            ids = [i for b in self.bulks[-5:] if b.ids for i in b.ids]
            if ids and rng.random() < 0.7:
                job = rng.choice(ids)
                self.cancelled.add(job)
                r = self.call(session, "POST", f"/jobs/{job}/cancel", key=str(uuid.UUID(int=rng.getrandbits(128))))
                assert r.status_code < 300 or r.status_code == 409, f"{r.status_code} {r.text[:300]}"

    def keeper(self, rng):
        """There are always some allocations; runs until the end of settle()."""
        session = self.centre.session()
        self.settled = threading.Event()
        while not self.settled.wait(0.5):
            rows = self.call(session, "GET", f"/batch-jobs/?site_id={self.site.id}").json()["results"]
            going = sum(r["state"] not in ("finished", "submit_failed") for r in rows)
            for _ in range(ALLOCATIONS - going):
                r = self.call(session, "POST", "/batch-jobs/", {
                    "site_id": self.site.id, "project": "local", "queue": "local", "num_nodes": 1, "job_mode": "serial",
                    "wall_time_min": rng.randint(1, 4)}, key=str(uuid.UUID(int=rng.getrandbits(128))))
                assert r.status_code == 201, r.text

    # ------------------------------------------------------------------ faults

    def victims(self):
        """{what: pids}, of what runs now."""
        found = collections.defaultdict(list)
        for pid in processes_with(str(self.site.path)):
            line, name = command_line(pid), comm(pid)
            if name == "abies-site":
                found["site.broker"].append(pid)
            elif name.startswith("abies-module"):
                kind = "transfer.worker" if "abies-module-transfer run " in line else f"site.{name}" if len(line.split()) == 1 else "wrapper"
                found[kind].append(pid)
            elif name == "abies-launcher":
                found["launcher.worker" if " worker " in line else "launcher"].append(pid)
        for row in self.centre.processes():
            if row.get("pid"):
                found[row["name"]] = [row["pid"]]
        found["supervisor"] = [self.supervisor()]
        return {what: [p for p in pids if p and alive(p)] for what, pids in found.items()}

    def supervisor(self):
        return json.loads((self.centre.home / "run" / "centre.json").read_text())["supervisor"]["pid"]

    KINDS = {"gateway": 3, "jobs": 3, "sessions": 3, "transfers": 2, "auth": 1, "postgres": 1, "supervisor": 1, "site.broker": 2,
             "site.abies-module": 4, "transfer.worker": 2, "wrapper": 1, "launcher": 3, "launcher.worker": 2}

    def break_things(self, rng):
        until = time.monotonic() + self.seconds
        todo = []  # every kind once, in an order that the seed decides, then by weight
        while not self.stop.is_set() and time.monotonic() < until:
            self.stop.wait(0.5 + rng.random() * 2)
            if not todo:
                todo = rng.sample(sorted(self.KINDS), counts=[self.KINDS[k] for k in sorted(self.KINDS)], k=sum(self.KINDS.values())) \
                    if self.faults else rng.sample(sorted(self.KINDS), k=len(self.KINDS))
            kind, pick, pause = todo.pop(), rng.random(), rng.random() * 1.5
            sig = signal.SIGINT if kind == "postgres" and rng.random() < 0.5 else signal.SIGKILL
            there = [(what, pid) for what, pids in sorted(self.victims().items()) if what.split(".")[0] == kind or what.startswith(kind)
                     for pid in pids if not (kind == "launcher" and what != "launcher")]
            if not there:
                continue
            what, pid = there[int(pick * len(there))]
            self.tell(f"{sig.name} to {what} ({pid}: {command_line(pid)[:60]})")
            self.faults[kind] += 1
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                continue
            if kind in ("site.broker", "supervisor"):
                self.stop.wait(pause)
                self.revive(kind)

    def revive(self, kind):
        """What nobody starts again by itself, as its user would."""
        if kind == "supervisor":
            self.centre.cli("up", timeout=120)
        else:
            self.site.start()

    # ------------------------------------------------------------------ the end

    def settle(self):
        """No more faults: everything must come to its end by itself."""
        acked = sum(len(b.ids) for b in self.bulks if b.ids)
        self.tell(f"{sum(self.faults.values())} faults ({dict(self.faults)}), {acked} jobs acknowledged; waiting for their ends")
        session = self.centre.session()
        try:
            wait_for(lambda: self.open_jobs() == 0, 60 + min(self.seconds, 1200) / 2, "every job to end", every=0.5)
        except AssertionError:
            self.tell("left over: " + json.dumps(self.explain(session), indent=1)[:6000])
            raise
        finally:
            self.settled.set()
            self.keeper_thread.join(PATIENCE + 60)
        assert not self.errors, self.errors
        self.site.stop()

    def explain(self, session):
        found = []
        for job, state in self.query("SELECT id, state FROM jobs WHERE state NOT IN %s ORDER BY id LIMIT 10", (FINAL,)):
            found.append({"job": job, "state": state, "why": self.call(session, "GET", f"/jobs/{job}/explain").json(),
                          "events": self.events(job)})
        return found

    def url(self):
        return (self.centre.home / "secrets" / "url-abies").read_text().strip()

    def query(self, text, args=()):
        with psycopg2.connect(self.url()) as db, db.cursor() as cursor:
            cursor.execute(text, args)
            rows = cursor.fetchall()
        db.close()
        return rows

    def cancel_orphans(self, session):
        """A child of a job that FAILED waits for ever, as the contract has it: it is cancelled, which is its way to an end.
        Otherwise they would be all that is outstanding before long, and the clients would wait for them."""
        try:
            stuck = [row[0] for row in self.query(
                "SELECT DISTINCT c.id FROM jobs c JOIN job_parents e ON e.child_id = c.id JOIN jobs p ON p.id = e.parent_id"
                " WHERE c.state = 'AWAITING_PARENTS' AND p.state = 'FAILED'")]
        except psycopg2.Error:
            return  # just killed; the next time
        for job in stuck:
            self.cancelled.add(job)
            r = self.call(session, "POST", f"/jobs/{job}/cancel", key=str(uuid.uuid4()))
            assert r.status_code < 300 or r.status_code == 409, f"{r.status_code} {r.text[:300]}"

    def open_jobs(self):
        self.cancel_orphans(self.centre.http)
        return self.query("SELECT count(*) FROM jobs WHERE state NOT IN %s", (FINAL,))[0][0]

    def prove(self):
        jobs = self.query("SELECT j.id, j.state::text, s.tags->>'serial', s.parameters->>'way' FROM jobs j JOIN job_specs s ON s.id = j.id")
        self.prove_once(jobs)
        self.prove_paths(jobs)
        self.prove_runs(jobs)
        ends = collections.Counter(state for _, state, _, _ in jobs)
        self.tell("watched:\n" + self.watch.report())
        assert not self.watch.grown(RSS_KB, DESCRIPTORS), self.watch.grown(RSS_KB, DESCRIPTORS)
        self.tell(f"proved: {len(jobs)} jobs, {dict(ends)}, {self.runs} runs, {self.cut} of them cut short by a fault")

    def prove_once(self, jobs):
        by_serial = collections.defaultdict(list)
        for job, _, serial, _ in jobs:
            by_serial[int(serial)].append(job)
        twice = {s: ids for s, ids in by_serial.items() if len(ids) > 1}
        assert not twice, f"created twice: {twice}"
        for bulk in self.bulks:
            there = [by_serial[s][0] for s in bulk.serials if s in by_serial]
            if bulk.ids is not None:
                assert there == bulk.ids, f"acknowledged as {bulk.ids}, stored as {there}"
            else:
                assert len(there) in (0, len(bulk.serials)), f"request {bulk.key}: only {len(there)} of {len(bulk.serials)} jobs are there"
        assert set(by_serial) <= {s for b in self.bulks for s in b.serials}, "jobs that nobody asked for"
        assert sum(1 for b in self.bulks if b.ids) > 0

    def prove_paths(self, jobs):
        allowed, chains = steps(), collections.defaultdict(list)
        for job, start, end in self.query("SELECT job_id, from_state::text, to_state::text FROM events ORDER BY job_id, id"):
            chains[job].append((start, end))
        for job, state, serial, _ in jobs:
            chain = chains.pop(job, [])
            assert chain and chain[0][0] == "CREATED", f"job {job} (serial {serial}): {chain}"
            assert all(a[1] == b[0] for a, b in zip(chain, chain[1:])), f"job {job}: a broken chain: {chain}"
            illegal = [step for step in chain if step not in allowed]
            assert not illegal, f"job {job}: {illegal} in {chain}"
            assert chain[-1][1] == state and state in FINAL, f"job {job} is {state}: {chain}"
            assert sum(end in FINAL for _, end in chain) == 1, f"job {job} ended twice: {chain}"
        assert not chains, f"events of jobs that are not there: {list(chains)[:10]}"

    def prove_runs(self, jobs):
        self.runs = self.cut = 0
        numbers = dict(self.query("SELECT id, lease FROM jobs"))
        for job, state, serial, way in jobs:
            path = self.site.path / "data" / "soak" / serial / "record"
            lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
            assert not [line for line in lines if line[0] == "overlap"], f"job {job} ran twice at once: {lines}"
            assert all(line[3] == str(job) for line in lines if line[0] == "start"), f"job {job} shares its folder: {lines}"
            leases = [int(line[4]) for line in lines if line[0] == "start"]
            assert all(a < b for a, b in zip(leases, leases[1:])), f"job {job}: two runs of a lease, or an old one: {lines}"
            assert not leases or leases[-1] <= numbers[job], f"job {job}: a lease that nobody has given: {lines}"
            self.prove_no_overlap(job, lines)
            ended = [line for line in lines if line[0] == "stop"]
            if state == "FAILED":
                assert way == "doomed" or job in self.cancelled, f"job {job} ({way}) FAILED for no reason of its own: {lines}, {self.events(job)}"
            if state == "JOB_FINISHED":
                assert ended, f"job {job} is finished, and no run of it came to its end: {lines}"
                assert way != "doomed"
                if way == "staged":
                    out = self.site.beamline / "out" / f"{serial}.txt"
                    assert out.read_text() == f"JOB {serial}\n", f"job {job}: {out}"

    def events(self, job):
        return self.query("SELECT from_state::text, to_state::text, data::text FROM events WHERE job_id = %s ORDER BY id", (job,))

    def prove_no_overlap(self, job, lines):
        """Each run begins after the one before it has stopped; one without an end was killed, and its lock was free."""
        last = 0.0
        running = None
        for word, pid, at, *_ in lines:
            assert float(at) >= last, f"job {job}: {lines}"
            last = float(at)
            if word == "start":
                self.runs += 1
                self.cut += running is not None
                running = pid
            else:
                assert pid == running, f"job {job}: {word} of {pid} while {running} runs: {lines}"
                running = None
        self.cut += running is not None


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=float(os.environ.get("ABIES_SOAK_SECONDS", 45)), help="how long things break")
    p.add_argument("--calm", type=float, default=0, help="how long it goes on without faults")
    p.add_argument("--seed", type=int, default=int(os.environ.get("ABIES_SOAK_SEED", random.SystemRandom().randrange(10**6))))
    o = p.parse_args()
    Soak(temporary_folder("soak"), o.seed, o.seconds, o.calm).run()


if __name__ == "__main__":
    main()
