"""Replicas are killed at each named point of a changing call under clients that repeat themselves: every request is done once.

The points: before BEGIN, before COMMIT, after COMMIT in front of the reply. Beside the replicas of the centre run others that
have such a fault each; when one has died of it the next is started, until every verb has had every fault."""
import collections
import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import time
import uuid

import psycopg2
import pytest
import requests

from api import Tenant, Wire
from centre import Centre, temporary_folder, wait_for

POINTS = ("before_begin", "before_commit", "after_commit")
VERBS = {"jobs": ("job.create", "job.array", "job.patch"), "sessions": ("session.create", "session.acquire", "session.delete"),
         "transfers": ("transfer.patch",), "auth": ("user.register", "token.create", "token.delete", "token.refresh")}
PLAIN = ("token.refresh",)  # each statement for itself: there is no COMMIT of ours to die in front of
SETTINGS = {"beat": "200ms", "dead": "1500ms", "login_limit": "100000", "login_limit_address": "100000", "workers": "2"}
PATIENCE = 60


open_databases = threading.local()


def sql(centre, text, *args):
    """Rows; each thread has a connection of its own."""
    if getattr(open_databases, "of", None) is not centre:
        open_databases.of, open_databases.db = centre, psycopg2.connect((centre.home / "secrets" / "url-abies").read_text().strip())
        open_databases.db.autocommit = True
    with open_databases.db.cursor() as cursor:
        cursor.execute(text, args)
        return cursor.fetchall()


def faults(service):
    return [(verb, point) for verb in VERBS[service] for point in POINTS if verb not in PLAIN or point != "before_commit"]


def meaning(answer):
    return answer.json() if answer.content else None


class Client:
    """A user's program that does not give up. Each request has a connection of its own: any of the gateways may get it."""

    def __init__(self, tenant, counts):
        self.tenant, self.counts = tenant, counts

    def once(self, method, path, body=None, key=None):
        headers = {"Authorization": f"Bearer {self.tenant.token}", "Connection": "close"}
        if key:
            headers["Idempotency-Key"] = key
        return requests.request(method, self.tenant.root + path, json=body, headers=headers, verify=self.tenant.centre.ca, timeout=40)

    def insist(self, method, path, body=None, key=None):
        """The first answer that is none of "try again"."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                r = self.once(method, path, body, key)
                if r.status_code < 500:
                    return r
                self.counts[r.status_code] += 1
            except requests.RequestException:
                self.counts["cut"] += 1
            assert time.monotonic() < until, f"{method} {path}: no answer"
            time.sleep(0.05)

    def keyed(self, method, path, body, status, repeats=1):
        """Done once, and asked for again: the first answer comes again (a large one is made again from the rows)."""
        key = uuid.uuid4().hex
        first = self.insist(method, path, body, key)
        assert first.status_code == status, f"{method} {path}: {first.status_code} {first.text[:500]}"
        for _ in range(repeats):
            again = self.insist(method, path, body, key)
            assert again.headers.get("idempotent-replayed") == "true", f"{method} {path} was done again: {again.status_code} {again.text[:300]}"
            assert again.status_code == first.status_code and meaning(again) == meaning(first), f"{method} {path}: {first.text[:300]}, then {again.text[:300]}"
            self.counts["repeats"] += 1
        if first.headers.get("idempotent-replayed"):
            self.counts["replayed at first sight"] += 1  # the reply of the first try was lost on the way
        self.counts[f"{method} {re.sub('[0-9]+', 'N', path)}"] += 1
        return first.json() if first.content else None


class Doomed:
    """Replicas of one service that die of a fault, two at a time."""

    def __init__(self, centre, service, seed):
        self.service, self.dice = service, random.Random(f"{seed} {service}")
        pid = centre.pid(service)
        self.command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        self.env = dict(x.split(b"=", 1) for x in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if x)
        self.cwd = os.readlink(f"/proc/{pid}/cwd")
        self.folder = centre.home / "log"
        self.to_come = faults(service)
        self.dice.shuffle(self.to_come)
        self.running, self.done, self.number = [], [], 0

    def start(self, verb, point):
        self.number += 1
        log = self.folder / f"doomed-{self.service}-{self.number}.log"
        fault = f"{verb}.{point}:kill:{self.dice.choice((1, 2, 4) if self.service == 'jobs' else (1, 1, 2))}"
        with open(log, "wb") as out:
            process = subprocess.Popen(self.command, env={**self.env, b"ABIES_FAULT": fault.encode()}, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.running.append((process, verb, point, log))

    def turn(self):
        for one in list(self.running):
            process, verb, point, log = one
            if process.poll() is None:
                continue
            assert process.returncode == -signal.SIGKILL and f"event=fault.fired name={verb}.{point}" in log.read_text(), log.read_text()[-2000:]
            self.running.remove(one)
            self.done.append((verb, point))
        while self.to_come and len(self.running) < 2:
            self.start(*self.to_come.pop())

    def over(self):
        return not self.to_come and not self.running

    def stop(self):
        for process, *_ in self.running:
            process.terminate()
        for process, *_ in self.running:
            process.wait(20)


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("once"), gateways=2, settings=SETTINGS, patient=True) as centre:
        yield centre


def test_every_request_is_done_once(centre):
    tenant = Tenant(centre)
    site = tenant.site()
    app = tenant.app(site, transfers={"input": {"required": False, "direction": "in", "local_path": "x"}})
    seed = int(os.environ.get("ABIES_ONCE_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    dice = random.Random(seed)
    doomed = [Doomed(centre, service, seed) for service in VERBS]
    counts, asked, lock, stop = collections.Counter(), {}, threading.Lock(), threading.Event()

    def note(serial, n, least):
        with lock:
            asked[serial] = (n, least)

    def bulk(serial, n):
        return [{"workdir": f"{serial}/{i}", "app_id": app["id"], "tags": {"serial": serial}} for i in range(n)]

    def creator(name):
        client, turn = Client(tenant, counts), 0
        while not stop.is_set():
            turn += 1
            serial, n = f"{name}-{turn}", dice.choice((1, 1, 5, 40))  # 40: the answer is not recorded, but made again
            if turn % 4 == 3:  # no key and no second try: the gateway alone sees to it
                note(serial, n, 0)
                try:
                    r = client.once("POST", "/jobs/", bulk(serial, n))
                except requests.RequestException:
                    continue
                assert r.status_code in (201, 502, 503, 504), r.text[:300]
                if r.status_code == 201:
                    assert len(r.json()) == n
                    note(serial, n, n)
                counts["without a key"] += 1
            elif turn % 4 == 1:
                made = client.keyed("POST", "/jobs/array", {"template": {"app_id": app["id"], "tags": {"serial": serial}}, "workdir": serial + "/{{n}}",
                                                            "parameters": {"n": list(range(n))}}, 201)
                assert made["count"] == n
                note(serial, n, n)
            else:
                jobs = client.keyed("POST", "/jobs/", bulk(serial, n), 201, repeats=dice.choice((1, 3)))
                assert len({j["id"] for j in jobs}) == n
                note(serial, n, n)
                client.keyed("PATCH", "/jobs/", [{"id": j["id"], "state": "PREPROCESSED"} for j in jobs[:3]], 200)

    def leaser():
        client = Client(tenant, counts)
        while not stop.is_set():
            session = client.keyed("POST", "/sessions/", {"site_id": site["id"]}, 201)["id"]
            jobs = client.keyed("POST", f"/sessions/{session}", {"max_num_jobs": 4, "filter_tags": {}}, 200)
            held = sql(centre, "SELECT id FROM jobs WHERE session_id = %s ORDER BY id", session)
            assert sorted(j["id"] for j in jobs) == [row[0] for row in held], "leased, and not told"
            client.keyed("DELETE", f"/sessions/{session}", None, 204)

    def mover():
        client = Client(tenant, counts)
        while not stop.is_set():
            job = client.keyed("POST", "/jobs/", [{"workdir": "t", "app_id": app["id"], "tags": {"serial": "moved"},
                                                   "transfers": {"input": {"location_alias": "lab", "path": "/x"}}}], 201)[0]["id"]
            item = client.insist("GET", f"/transfers/?job_id={job}").json()["results"][0]["id"]
            client.keyed("PATCH", "/transfers/", [{"id": item, "state": "done", "transfer_info": {"n": 1}}], 200)
            events = [row[0] for row in sql(centre, "SELECT to_state::text FROM events WHERE job_id = %s ORDER BY xid, id", job)]
            assert events == ["READY", "STAGED_IN"], events

    def registrar():
        client, turn = Client(tenant, counts), 0
        while not stop.is_set():
            turn += 1
            name = f"once-{turn}"
            user = client.keyed("POST", "/auth/password/register", {"username": name, "password": "something-secret"}, 201)
            assert sql(centre, "SELECT id FROM users WHERE username = %s", name) == [(user["id"],)]
            made = client.keyed("POST", "/auth/tokens", {"name": name, "scope": "read"}, 201)
            token = made["id"]
            assert sql(centre, "SELECT id FROM tokens WHERE name = %s", name) == [(token,)]
            assert requests.get(tenant.root + "/sites/", headers={"Authorization": f"Bearer {made['access_token']}"}, verify=centre.ca, timeout=40).status_code in (200, 503)
            client.keyed("DELETE", f"/auth/tokens/{token}", None, 204)
            assert sql(centre, "SELECT count(*) FROM audit WHERE action = 'token.delete' AND detail LIKE %s", f"token {token}%")[0][0] <= 1

    def renewer():
        """A chain of refresh tokens: if any of its answers were another one than the first, it would end."""
        client = Client(tenant, counts)
        first = client.keyed("POST", "/auth/tokens", {"name": "renewed", "scope": "read"}, 201)
        token, length = first["refresh_token"], 0
        while not stop.is_set():
            got = client.insist("POST", "/auth/token/refresh", {"refresh_token": token}, f"rn-{uuid.uuid4().hex}")
            assert got.status_code == 200, f"link {length}: {got.status_code} {got.text}"
            token, length = got.json()["refresh_token"], length + 1
        assert sql(centre, "SELECT count(*) FROM refresh_tokens WHERE token_id = %s", first["id"]) == [(length + 1,)]

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        running = [pool.submit(creator, f"c{i}") for i in range(3)] + [pool.submit(f) for f in (leaser, mover, registrar, renewer)]

        def all_done():
            for d in doomed:
                d.turn()
            return all(d.over() for d in doomed) or any(r.done() for r in running)

        try:
            wait_for(all_done, PATIENCE, "every fault")
        finally:
            stop.set()
            for d in doomed:
                d.stop()
        for r in concurrent.futures.as_completed(running):
            r.result()

    there = dict(sql(centre, "SELECT tags->>'serial', count(*) FROM job_specs WHERE owner_id = %s GROUP BY 1", tenant.id))
    for serial, (n, least) in asked.items():
        got = there.get(serial, 0)
        assert got == n or (least == 0 and got == 0), f"{serial}: {n} jobs were asked for (told: {least}), {got} are there"
    assert set(there) <= {*asked, "moved"}
    print(json.dumps({"counts": {str(k): v for k, v in counts.items()}, "jobs": sum(there.values())}))
    assert sorted(itertools.chain(*(d.done for d in doomed))) == sorted(itertools.chain(*map(faults, VERBS)))
    assert counts["replayed at first sight"] > 0, "no reply was lost"


# ------------------------------------------------------------------ the gateway dies in the middle of a request

def owner_of(connection, pids):
    """The process that has the other end of this socket."""
    def hexed(address):
        host, port = address
        return f"{int.from_bytes(bytes(map(int, host.split('.'))), 'little'):08X}:{port:04X}"

    mine, peer = hexed(connection.getsockname()), hexed(connection.getpeername())
    inode = next(x.split()[9] for x in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:] if x.split()[1:3] == [peer, mine])
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(fd) == f"socket:[{inode}]":
                    return pid
            except OSError:
                pass
    raise AssertionError(f"no gateway of {pids} has the connection {mine} {peer}")


def test_a_gateway_that_dies_with_a_request_in_hand_costs_no_second_one(centre):
    """The first try is in its transaction, the second waits behind it at another gateway and is given the first's answer."""
    tenant = Tenant(centre)
    app = tenant.app(tenant.site())
    client = Client(tenant, collections.Counter())
    body = [{"workdir": f"g/{i}", "app_id": app["id"]} for i in range(30)]
    for held in (True, False):  # the lock is given back behind the second try, or in front of it
        key = uuid.uuid4().hex
        with psycopg2.connect((centre.home / "secrets" / "url-abies").read_text().strip()) as lock, concurrent.futures.ThreadPoolExecutor(1) as pool:
            with lock.cursor() as cursor:
                cursor.execute("SELECT FROM apps WHERE id = %s FOR UPDATE", (app["id"],))
            wire = Wire(tenant)
            gateway = owner_of(wire.sock, [row["pid"] for row in centre.processes("gateway") if row["pid"]])
            wire.send("POST", "/jobs/", json.dumps(body).encode(), f"content-type: application/json\r\nidempotency-key: {key}\r\n")
            wait_for(lambda: waiting(centre) == 1, 20, "the first try in front of the lock")
            os.kill(gateway, signal.SIGKILL)
            with pytest.raises((OSError, http.client.HTTPException)):
                wire.answer()
            if held:
                second = pool.submit(client.insist, "POST", "/jobs/", body, key)
                wait_for(lambda: waiting(centre) == 2, 20, "the second try behind the first")
                lock.rollback()
                got = second.result()
            else:
                lock.rollback()
                got = client.insist("POST", "/jobs/", body, key)
        assert got.status_code == 201 and got.headers["idempotent-replayed"] == "true"
        assert sql(centre, "SELECT count(*) FROM jobs WHERE id = ANY (%s)", [j["id"] for j in got.json()]) == [(30,)]
        wait_for(lambda: gateway not in [row["pid"] for row in centre.processes("gateway") if row["pid"]] and centre.pid("gateway", 1), 30, "another gateway")
        centre.ready()
    assert sql(centre, "SELECT count(*) FROM jobs WHERE owner_id = %s", tenant.id) == [(60,)]


def waiting(centre):
    """Sessions of the jobs service that wait for a lock."""
    return sql(centre, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'abies_jobs' AND wait_event_type = 'Lock'")[0][0]
