#!/usr/bin/env python3
"""live.py - what subscribers of /events/stream are told, compared with the table: the same rows, in the same order.

    tests/scale/live.py [--seconds 8] [--seed N] [--subscribers 12]        longer: --seconds 3600

Writers change jobs through the API; others write events straight into the table, in transactions that stay open for a while and
commit late, or are rolled back. Meanwhile gateways and replicas of the jobs service get SIGKILL or are stopped for a moment, and
subscribers are cut off, read too slowly, or leave by themselves: each comes back with the last cursor that it was given. In the
end each has been told exactly the rows that its filter wants and that lie behind its first cursor, once, in the order of the log.
"""
import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import signal
import ssl
import sys
import threading
import time

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

import psycopg2
import requests
import websockets

from api import Tenant
from centre import Centre, temporary_folder, wait_for

STATES = ("PREPROCESSED", "RUNNING", "RUN_DONE", "RUN_ERROR", "RUN_TIMEOUT", "RESTART_READY", "POSTPROCESSED", "FAILED")
SETTINGS = {"beat": "250ms", "dead": "1500ms"}
PATIENCE = 60  # seconds until the last event must have come
RESUME = {1006, 1012, 1013, 4008}  # closes after which a client comes back


class Subscriber:
    """One that comes and goes. Filters: the query, and the same in words of the table."""

    def __init__(self, storm, name, tenant, query, where, args=(), since=None, lazy=False):
        self.storm, self.name, self.tenant = storm, name, tenant
        self.query, self.where, self.args, self.lazy = query, where, args, lazy
        self.first = self.cursor = since
        self.told = []  # events in the order in which they came
        self.ends = collections.Counter()
        self.random = random.Random(f"{storm.seed} {name}")

    async def run(self):
        while not self.storm.over:
            try:
                await self.connect()
            except websockets.ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd else 1006
                if code not in RESUME:
                    raise AssertionError(f"{self.name}: closed with {code} {closed.rcvd.reason}") from None
                if code == 4008:  # its reason is where to go on: what came before it has all been read
                    assert closed.rcvd.reason == self.cursor, f"{self.name}: 4008 says {closed.rcvd.reason}, the last frame {self.cursor}"
                self.ends[code] += 1
            except (OSError, asyncio.TimeoutError, websockets.InvalidHandshake, websockets.InvalidStatusCode) as error:
                if isinstance(error, websockets.InvalidStatusCode) and error.status_code < 500:
                    raise
                self.ends["refused"] += 1
                await asyncio.sleep(0.05)

    async def connect(self):
        query = "&".join(x for x in (self.query, f"since={self.cursor}" if self.cursor else "") if x)
        async with websockets.connect(f"{self.storm.ws_root}/events/stream?{query}", ssl=self.storm.ssl, open_timeout=10, close_timeout=0.2,
                                      max_size=1 << 26, max_queue=2 if self.lazy else 32, read_limit=1 << 12 if self.lazy else 1 << 16,
                                      extra_headers={"Authorization": f"Bearer {self.tenant.token}"}) as ws:
            stay = time.monotonic() + self.random.uniform(0.1, 2.5)
            while not self.storm.over:
                if time.monotonic() > stay and not self.storm.calm:
                    self.ends["left"] += 1
                    if self.random.random() < 0.5:
                        ws.transport.abort()  # in the middle of whatever it is
                        return
                    return
                try:
                    text = await asyncio.wait_for(ws.recv(), 0.2)
                except asyncio.TimeoutError:
                    continue
                self.take(json.loads(text))
                if self.lazy and not self.storm.calm:
                    await asyncio.sleep(self.random.uniform(0, 0.05))

    def take(self, frame):
        assert set(frame) == {"cursor", "events"}, list(frame)
        if self.first is None:
            assert frame["events"] == [], "the first frame has no events"
            self.first = frame["cursor"]
        self.cursor = frame["cursor"]
        self.told += frame["events"]

    def wanted(self):
        xid, number = self.first.split("-")
        return self.storm.query(
            "SELECT e.id, e.job_id, e.from_state::text, e.to_state::text, e.data, e.timestamp, j.site_id, j.app_id FROM events e"
            " JOIN jobs j ON j.id = e.job_id JOIN job_specs s ON s.id = e.job_id"
            f" WHERE e.owner_id = %s AND (e.xid, e.id) > (%s::text::xid8, %s) AND ({self.where}) ORDER BY e.xid, e.id",
            (self.tenant.id, xid, int(number), *self.args))

    def prove(self):
        wanted = self.wanted()
        got = [e["id"] for e in self.told]
        want = [row[0] for row in wanted]
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            raise AssertionError(f"{self.name} was told {len(got)} events, the table has {len(want)}; they differ at {at}: told {got[at:at + 8]}, table "
                                 f"{want[at:at + 8]}; missing {sorted(set(want) - set(got))[:8]}, twice {[i for i, n in collections.Counter(got).items() if n > 1][:8]}, "
                                 f"strange {sorted(set(got) - set(want))[:8]}; from {self.first} to {self.cursor}; {dict(self.ends)}")
        for event, row in zip(self.told, wanted):
            timestamp = row[5].strftime("%Y-%m-%dT%H:%M:%S") + (f".{row[5].microsecond:06}" if row[5].microsecond else "")
            assert (event["id"], event["job_id"], event["from_state"], event["to_state"], event["data"], event["timestamp"], event["site_id"],
                    event["app_id"]) == (*row[:5], timestamp, *row[6:]), (event, row)
        return len(got)


class Storm:
    def __init__(self, folder, seed, seconds, subscribers=12, say=print):
        self.folder, self.seed, self.seconds, self.n, self.say = folder, seed, seconds, subscribers, say
        self.begun = time.monotonic()
        self.over = self.calm = False  # calm: no more faults, and nobody leaves
        self.quiet = threading.Event()  # writers end
        self.counts = collections.Counter()
        self.errors = []

    def tell(self, text):
        self.say(f"[{time.monotonic() - self.begun:7.2f}] {text}", flush=True)

    def query(self, text, args=()):
        db = psycopg2.connect(self.url)
        with db, db.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            cursor.execute(text, args)
            rows = cursor.fetchall() if cursor.description else None
        db.close()
        return rows

    def run(self):
        self.tell(f"live: seed {self.seed}, {self.seconds} s, {self.n} subscribers")
        with Centre(self.folder, gateways=2, replicas={"jobs": 2}, settings=SETTINGS, patient=True) as centre:
            self.centre = centre
            self.url = (centre.home / "secrets" / "url-abies").read_text().strip()
            self.ws_root = centre.root.replace("https", "wss", 1)
            self.ssl = ssl.create_default_context(cafile=centre.ca)
            self.populate()
            reader = threading.Thread(target=lambda: asyncio.run(self.listen()))
            reader.start()
            try:
                wait_for(lambda: self.errors or all(s.first for s in self.subscribers), 20, "every subscriber's first cursor")
                self.load()
                self.settle()
            finally:
                self.over = True
                reader.join(30)
            assert not self.errors, self.errors
            self.prove()
            self.query("DELETE FROM events WHERE data ? 'direct'")  # nobody has counted them

    def populate(self):
        self.tenants = [Tenant(self.centre, f"owner{i}") for i in range(2)]
        self.jobs = {}
        for tenant in self.tenants:
            sites = [tenant.site(name=f"site{k}") for k in range(2)]
            apps = [tenant.app(site, name=f"app{k}") for k, site in enumerate(sites)]
            jobs = []
            for k in range(60):
                jobs += tenant.jobs(apps[k % 2], 1, tags={"kind": "md" if k % 3 else "dft", "no": str(k)})
            self.jobs[tenant.id] = [j["id"] for j in jobs]
            tenant.sites, tenant.apps = sites, apps
        self.subscribers = [self.subscriber(i) for i in range(self.n)]

    def subscriber(self, i):
        tenant = self.tenants[1 if i % 6 == 5 else 0]
        ids = self.jobs[tenant.id]
        some = ids[i % 7::5]
        kinds = [
            ("all", "", "true", ()),
            ("all", "", "true", ()),
            ("state", "state=RUNNING&state=FAILED", "e.to_state IN ('RUNNING', 'FAILED')", ()),
            ("site", f"site_id={tenant.sites[0]['id']}", "j.site_id = %s", (tenant.sites[0]["id"],)),
            ("jobs", "&".join(f"job_id={j}" for j in some), "e.job_id = ANY (%s)", (some,)),
            ("all", "", "true", ()),
            ("tags", "tags=kind:md", "s.tags @> '{\"kind\": \"md\"}'", ()),
            ("app and state", f"app_id={tenant.apps[1]['id']}&state=RUN_DONE", "j.app_id = %s AND e.to_state = 'RUN_DONE'", (tenant.apps[1]["id"],)),
            ("none", "tags=kind:none", "false", ()),
        ]
        name, query, where, args = kinds[i % len(kinds)]
        # half begin where the log does, the others now
        return Subscriber(self, f"{name} {i}", tenant, query, where, args, since="0-0" if i % 2 else None, lazy=i % 4 == 1)

    # ------------------------------------------------------------------ subscribers

    async def listen(self):
        tasks = [asyncio.create_task(s.run()) for s in self.subscribers]
        try:
            for task in asyncio.as_completed(tasks):
                await task
        except BaseException as error:  # whatever it is, the test must hear of it
            self.errors.append(repr(error))
            self.over = True
            raise

    # ------------------------------------------------------------------ writers and faults

    def load(self):
        work = [("api", self.api_writer, 3), ("late", self.late_writer, 3), ("idle", self.idle_transaction, 1), ("pager", self.pager, 1)]
        threads = [threading.Thread(target=self.guarded, args=(fn, random.Random(f"{self.seed} {name} {k}")), name=f"{name} {k}")
                   for name, fn, n in work for k in range(n)]
        for t in threads:
            t.start()
        faults = threading.Thread(target=self.guarded, args=(self.break_things, random.Random(f"{self.seed} faults")))
        faults.start()
        self.quiet.wait(self.seconds)
        self.quiet.set()
        for t in [*threads, faults]:
            t.join(PATIENCE)
        assert not self.errors, self.errors

    def guarded(self, fn, dice):
        try:
            fn(dice)
        except BaseException as error:  # noqa: BLE001
            self.errors.append(f"{threading.current_thread().name}: {error!r}")
            self.quiet.set()

    def api_writer(self, dice):
        tenant = dice.choice([self.tenants[0], self.tenants[0], self.tenants[1]]).twin()
        while not self.quiet.is_set():
            some = dice.sample(self.jobs[tenant.id], dice.choice((1, 1, 1, 3, 20)))
            body = [{"id": j, "state": dice.choice(STATES), "state_data": {"n": dice.randrange(1000), "text": "é\"" * dice.choice((0, 1, 400))}}
                    for j in some]
            r = self.centre.request("PATCH", "/jobs/", body, http=tenant.http)
            assert r.status_code == 200, f"{r.status_code} {r.text[:300]}"
            self.counts["api"] += 1
            time.sleep(dice.choice((0, 0, 0.01, 0.1)))

    def late_writer(self, dice):
        """Draws its ids, writes, waits, and commits or not, in the table and past the service: no hint tells of it."""
        db = psycopg2.connect(self.url)
        while not self.quiet.is_set():
            with db.cursor() as cursor:
                tenant = dice.choice(self.tenants)
                if dice.random() < 0.3:  # the ids long before the rows
                    cursor.execute("SELECT nextval('event_ids') FROM generate_series(1, 3)")
                    time.sleep(dice.uniform(0, 0.1))
                for _ in range(dice.randrange(1, 6)):
                    if dice.random() < 0.2:  # a transaction in a transaction has a number of its own
                        cursor.execute("SAVEPOINT inner_one")
                    cursor.execute("INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state, data) VALUES (nextval('event_ids'), %s, %s,"
                                   " clock_timestamp(), 'READY', %s, %s)",
                                   (tenant.id, dice.choice(self.jobs[tenant.id]), dice.choice(STATES), json.dumps({"direct": dice.randrange(10)})))
                    time.sleep(dice.choice((0, 0, 0.005)))
                time.sleep(dice.choice((0, 0.02, 0.2, 0.7)))
            if dice.random() < 0.35:
                db.rollback()
                self.counts["rolled back"] += 1
            else:
                db.commit()
                self.counts["late"] += 1
        db.close()

    def idle_transaction(self, dice):
        """Somebody else's, with nothing in it but a number: it holds up everybody's events."""
        db = psycopg2.connect(self.url)
        while not self.quiet.is_set():
            with db.cursor() as cursor:
                cursor.execute("SELECT pg_current_xact_id()")
            self.quiet.wait(dice.uniform(0, 0.5))
            db.rollback()
            self.counts["idle"] += 1
            self.quiet.wait(dice.uniform(0, 0.3))
        db.close()

    def pager(self, dice):
        """GET /events/?since= is the same log."""
        tenant = self.tenants[0].twin()
        self.paged, self.paged_cursor = [], "0-0"
        while not self.quiet.is_set():
            self.turn_page(tenant, dice.choice((1, 10, 1000)))
            time.sleep(dice.uniform(0, 0.1))

    def turn_page(self, tenant, limit):
        r = self.centre.request("GET", f"/events/?since={self.paged_cursor}&limit={limit}", http=tenant.http)
        assert r.status_code == 200, r.text[:300]
        self.paged += [e["id"] for e in r.json()["results"]]
        same = self.paged_cursor == r.json()["next"]
        self.paged_cursor = r.json()["next"]
        return same

    def break_things(self, dice):
        while not self.quiet.wait(dice.uniform(0.1, 1.2)):
            role = dice.choice(("gateway", "jobs"))
            pid = self.centre.pid(role, dice.randrange(2))
            try:
                if dice.random() < 0.25:
                    os.kill(pid, signal.SIGSTOP)
                    self.quiet.wait(dice.uniform(0.1, 1.0))
                    os.kill(pid, signal.SIGCONT)
                    self.counts[f"{role} stopped"] += 1
                else:
                    os.kill(pid, signal.SIGKILL)
                    self.counts[f"{role} killed"] += 1
            except ProcessLookupError:
                pass

    # ------------------------------------------------------------------ the end

    def settle(self):
        self.calm = True
        self.centre.ready()
        ends = sum((s.ends for s in self.subscribers), collections.Counter())
        self.tell(f"{dict(self.counts)}; subscribers' ends {dict(ends)}")
        want = {s: len(s.wanted()) for s in self.subscribers}
        until = time.monotonic() + PATIENCE
        while any(len(s.told) < want[s] for s in self.subscribers) and time.monotonic() < until and not self.errors:
            time.sleep(0.05)
        time.sleep(0.3)  # what comes twice would come now
        wait_for(lambda: self.turn_page(self.tenants[0].twin(), 1000), PATIENCE, "the end of the log, page by page")

    def prove(self):
        told = [s.prove() for s in self.subscribers]
        whole = [r[0] for r in self.query("SELECT id FROM events WHERE owner_id = %s ORDER BY xid, id", (self.tenants[0].id,))]
        assert self.paged == whole, f"by pages {len(self.paged)}, in the table {len(whole)}"
        assert max(told) > 50 and self.counts["late"] > 2 and self.counts["rolled back"] > 0 and self.counts["api"] > 5, (told, self.counts)
        assert sum(n for what, n in self.counts.items() if what.endswith("killed")) > 0, self.counts
        assert sum(s.ends["left"] for s in self.subscribers) > self.n, "they hardly came back"
        self.tell(f"proved: {len(whole)} events of one owner; told {told}")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    p.add_argument("--subscribers", type=int, default=12)
    args = p.parse_args()
    Storm(temporary_folder("live"), args.seed, args.seconds, args.subscribers).run()


if __name__ == "__main__":
    main()
