"""What a client is told without asking: /subscribe-user, /events/stream, and the log behind a cursor (contract 6)."""
import asyncio
import json
import ssl
import threading
import time

import psycopg2
import pytest
import websockets

from api import ABSENT, Tenant, Wire, expect, issues
from centre import BUILD
from fresh import app, place, t  # noqa: F401 (fixtures)

LIMIT = 20


def connect(t, path, **options):
    context = ssl.create_default_context(cafile=t.centre.ca)
    return websockets.connect(t.root.replace("https", "wss", 1) + path, ssl=context, open_timeout=LIMIT, close_timeout=LIMIT, max_size=1 << 26, **options)


def listen(t, act, n, deadline=LIMIT):
    """The first n notices of /subscribe-user while act() runs in a thread."""
    async def run():
        async with connect(t, "/subscribe-user") as ws:
            await ws.send(t.token)
            until_known = asyncio.get_running_loop().time() + deadline
            while True:  # notices are lossy until the token has been seen: ask for one until it comes
                await asyncio.to_thread(expect, t.put(f"/sites/{probe['id']}", {}), 200)
                try:
                    await asyncio.wait_for(ws.recv(), 0.3)
                    break
                except asyncio.TimeoutError:
                    assert asyncio.get_running_loop().time() < until_known
            try:
                while True:
                    await asyncio.wait_for(ws.recv(), 0.3)
            except asyncio.TimeoutError:
                pass
            acting = asyncio.create_task(asyncio.to_thread(act))
            got = []
            while len(got) < n:
                frame = await asyncio.wait_for(ws.recv(), deadline)
                assert isinstance(frame, bytes), "notices are binary"
                got.append(json.loads(frame))
            await acting
            return got

    probe = t.site()
    got = asyncio.run(run())
    assert all(set(m) == {"action", "type", "data"} for m in got)
    return got


# ------------------------------------------------------------------ /subscribe-user

def test_sites_and_apps_are_told_whole_then_by_what_changed(t):
    rows = {}

    def act():
        rows["site"] = t.site(name="told")
        rows["app"] = t.app(rows["site"])
        expect(t.put(f"/sites/{rows['site']['id']}", {"path": "/new", "allowed_projects": ["x"]}), 200)
        expect(t.put(f"/apps/{rows['app']['id']}", {"description": "d"}), 200)
        expect(t.delete(f"/apps/{rows['app']['id']}"), 204)
        expect(t.delete(f"/sites/{rows['site']['id']}"), 204)

    got = [(m["action"], m["type"], m["data"]) for m in listen(t, act, 6)]
    site, app = rows["site"]["id"], rows["app"]["id"]
    assert got == [("create", "site", rows["site"]), ("create", "app", rows["app"]), ("update", "site", {"id": site, "path": "/new", "allowed_projects": ["x"]}),
                   ("update", "app", {"id": app, "description": "d"}), ("delete", "app", {"id": app}), ("delete", "site", {"id": site})]


def test_batch_jobs_are_told_whole(t, place):
    rows = {}

    def act():
        rows["made"] = t.batch_job(place)
        rows["put"] = expect(t.put(f"/batch-jobs/{rows['made']['id']}", {"scheduler_id": 4}), 200)
        rows["patch"] = expect(t.patch("/batch-jobs/", [{"id": rows["made"]["id"], "state": "queued"}]), 200)
        expect(t.delete(f"/batch-jobs/{rows['made']['id']}"), 204)

    got = [(m["action"], m["type"], m["data"]) for m in listen(t, act, 4)]
    assert got == [("create", "batch_job", rows["made"]), ("update", "batch_job", rows["put"]), ("bulk-update", "batch_job", rows["patch"]), ("delete", "batch_job", {"id": rows["made"]["id"]})]


def test_the_end_of_a_session_and_of_a_job_is_told(t, place, app):
    session, job = t.session(place), t.job(app)

    def act():
        expect(t.delete(f"/jobs/{job['id']}"), 204)
        t.delete(f"/sessions/{session['id']}")

    got = {(m["action"], m["type"]): m["data"] for m in listen(t, act, 1)}
    assert got[("bulk-delete", "job")] == {"ids": [job["id"]]}
    session = t.session(place)
    got = {(m["action"], m["type"]): m["data"] for m in listen(t, lambda: expect(t.delete(f"/sessions/{session['id']}"), 204), 1)}
    assert got[("delete", "session")] == {"id": session["id"]}


def test_jobs_are_told_too(t, app):
    """(Ours: the paper's system kept silent about them.)"""
    rows = {}

    def act():
        rows["made"] = expect(t.post("/jobs/", [{"workdir": f"n/{i}", "app_id": app["id"]} for i in range(2)]), 201)
        a, b = (j["id"] for j in rows["made"])
        expect(t.patch("/jobs/", [{"id": a, "state": "PREPROCESSED", "num_nodes": 2}, {"id": b, "tags": {"k": "v"}}]), 200, 2)
        expect(t.delete(f"/jobs/{a}"), 204)
        expect(t.delete("/jobs/", params={"id": b}), 204)

    got = [(m["action"], m["type"], m["data"]) for m in listen(t, act, 4)]
    a, b = (j["id"] for j in rows["made"])
    assert got[:2] == [("bulk-create", "job", rows["made"]), ("bulk-update", "job", [{"id": a, "state": "PREPROCESSED", "num_nodes": 2}, {"id": b, "tags": {"k": "v"}}])]
    assert got[2] == ("bulk-delete", "job", {"ids": [a]})
    assert got[3][:2] == ("bulk-delete", "job") and got[3][2]["ids"] == [b]


def test_nobody_is_told_of_another_tenant(api_centre, t):
    other = Tenant(api_centre)

    def act():
        other.site(name="secret")
        t.site(name="mine")

    (got,) = listen(t, act, 1)
    assert got["data"]["name"] == "mine"


def test_a_refused_change_is_not_told(t, place):
    def act():
        expect(t.put(f"/sites/{place['id']}", {"name": None}), 422)
        expect(t.put(f"/sites/{ABSENT}", {}), 404)
        expect(t.post("/sites/", {"name": place["name"], "path": "/x"}), 400)
        t.site(name="after")

    (got,) = listen(t, act, 1)
    assert (got["action"], got["data"]["name"]) == ("create", "after")


@pytest.mark.parametrize("first", ["x.y.z", "", b"\x00\xff", "Bearer x"])
def test_a_bad_token_closes_with_1008(t, first):
    async def run():
        async with connect(t, "/subscribe-user") as ws:
            await ws.send(first)
            with pytest.raises(websockets.ConnectionClosed):
                await asyncio.wait_for(ws.recv(), LIMIT)
            return ws.close_code
    assert asyncio.run(run()) == 1008


# ------------------------------------------------------------------ /events/stream

class Stream:
    """A subscriber in a thread: collects events until told to stop."""

    def __init__(self, t, query="", n=0, token=None):
        self.t, self.query, self.n, self.token = t, query, n, token or t.token
        self.events, self.cursor, self.error = [], None, None
        self.open = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()))
        self.thread.start()
        assert self.open.wait(LIMIT), self.error

    async def run(self):
        try:
            async with connect(self.t, f"/events/stream{self.query}", extra_headers={"Authorization": f"Bearer {self.token}"}) as ws:
                first = json.loads(await asyncio.wait_for(ws.recv(), LIMIT))
                assert first["events"] == [] and set(first) == {"cursor", "events"}
                self.cursor = first["cursor"]
                self.open.set()
                while len(self.events) < self.n:
                    frame = json.loads(await asyncio.wait_for(ws.recv(), LIMIT))
                    self.events += frame["events"]
                    self.cursor = frame["cursor"]
        except BaseException as e:  # noqa: B902 (told by result())
            self.error = e
            self.open.set()

    def result(self):
        self.thread.join(LIMIT * 3)
        assert self.error is None, f"{self.error!r} after {len(self.events)} of {self.n} events"
        return self.events


def test_a_subscriber_sees_each_change_once_and_in_order(t, app):
    stream = Stream(t, n=4)
    job = t.job(app, tags={"k": "v"})
    for s in ("PREPROCESSED", "RUNNING", "RUN_DONE"):
        t.set_state(job, s, state_data={"s": s})
    got = stream.result()
    assert [e["to_state"] for e in got] == ["STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE"]
    listed = t.events(job)
    assert [{k: e[k] for k in listed[0]} for e in got] == listed
    assert all(e["site_id"] and e["app_id"] == app["id"] and "tags" not in e for e in got)


def test_connections_stay_for_longer_than_a_handshake_may_take(t, app):
    """One is used now and then, on the other nothing happens for 12 s (the limit of a handshake is 10 s)."""
    stream, wire = Stream(t, n=1), Wire(t)
    for pause in (0, 6, 6):
        time.sleep(pause)  # time itself is what is tested
        wire.send("GET", "/auth/how")
        assert wire.answer()[0] == 200
    job = t.job(app)
    assert [e["job_id"] for e in stream.result()] == [job["id"]]


@pytest.mark.parametrize("filter_of", ["site_id", "app_id", "job_id", "state", "tags"])
def test_each_filter_of_the_stream(t, place, app, filter_of):
    elsewhere = t.site()
    other = t.app(elsewhere)
    a, b = t.job(app, tags={"k": "1", "m": "x"}), t.job(other, tags={"k": "2"})
    query = {"site_id": f"?site_id={elsewhere['id']}", "app_id": f"?app_id={other['id']}", "job_id": f"?job_id={ABSENT}&job_id={b['id']}", "state": "?state=RUNNING&state=FAILED", "tags": "?tags=k:2"}[filter_of]
    stream = Stream(t, query, n=2 if filter_of == "state" else 3)
    for s in ("PREPROCESSED", "RUNNING", "RUN_DONE"):
        t.set_state([a, b], s)
    got = stream.result()
    assert [e["to_state"] for e in got] == (["RUNNING"] * 2 if filter_of == "state" else ["PREPROCESSED", "RUNNING", "RUN_DONE"])
    assert {e["job_id"] for e in got} == ({a["id"], b["id"]} if filter_of == "state" else {b["id"]})


@pytest.mark.parametrize("query", ["?state=nope", "?site_id=x", "?since=x", "?since=1", "?since=1-", "?job_id="])
def test_bad_filters_are_refused_before_the_upgrade(t, query):
    r = t.get("/events/stream" + query, headers={"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x" * 22 + "=="})
    assert issues(r)


def test_without_upgrade_it_is_no_page(t):
    r = t.get("/events/stream")
    assert 400 <= r.status_code < 500 and r.json()["detail"]


def test_a_subscriber_resumes_without_gap_or_repeat(t, app):
    """Readers come and go while writers write; what all of them saw is the log."""
    jobs = [t.job(app) for _ in range(10)]
    states = ["PREPROCESSED", "RUNNING", "RUN_DONE", "RUN_ERROR", "RESTART_READY"] * 4
    first = Stream(t, n=20)
    writers = []

    def write(mine):
        own = t.twin()
        for s in states:
            own.set_state(mine, s)

    for n in range(2):
        writers.append(threading.Thread(target=write, args=(jobs[n::2],)))
        writers[-1].start()
    seen = first.result()
    total = len(jobs) * len(states)
    cursor = first.cursor
    while len(seen) < total:
        part = Stream(t, f"?since={cursor}", n=min(37, total - len(seen)))
        seen += part.result()
        cursor = part.cursor
    for w in writers:
        w.join()
    ids = [e["id"] for e in seen]
    assert len(ids) == len(set(ids)) == total
    assert set(ids) == set(t.ids("/events/", limit=100000)) - {e["id"] for j in jobs for e in t.page("/events/", job_id=j["id"], from_state="CREATED")["results"]}


def test_a_stream_shows_one_tenant_only(api_centre, t, app):
    other = Tenant(api_centre)
    theirs = other.job(other.app(other.site()))
    stream = Stream(t, f"?job_id={theirs['id']}&since=0-0", n=0)
    stream.result()
    stream = Stream(t, "?since=0-0", n=1)
    other.set_state(theirs, "PREPROCESSED")
    mine = t.job(app)
    assert [e["job_id"] for e in stream.result()] == [mine["id"]]


@pytest.mark.parametrize("how", ["header", "protocol", "frame"])
def test_the_token_may_come_in_three_ways(t, app, how):
    async def run():
        options = {"header": {"extra_headers": {"Authorization": f"Bearer {t.token}"}}, "protocol": {"subprotocols": ["abies.events.v1", f"bearer.{t.token}"]}, "frame": {}}[how]
        async with connect(t, "/events/stream", **options) as ws:
            if how == "frame":
                await ws.send(t.token)
            assert ws.subprotocol in (None, "abies.events.v1")
            return json.loads(await asyncio.wait_for(ws.recv(), LIMIT))
    assert asyncio.run(run())["events"] == []


# ------------------------------------------------------------------ GET /events/?since=

def drain(t, since, **params):
    """All that comes after a cursor: (events, the cursor behind them)."""
    got = []
    while True:
        page = expect(t.get("/events/", params={"since": since, **params}), 200)
        assert set(page) == {"count", "next", "results"} and page["count"] == len(page["results"])
        got += page["results"]
        if page["next"] == since:
            return got, since
        since = page["next"]


def test_a_cursor_gives_what_came_after_it_oldest_first(t, app):
    start = expect(t.get("/events/", params={"since": ""}), 200)
    assert start["results"] == [] and start["count"] == 0
    job = t.job(app)
    for s in ("PREPROCESSED", "RUNNING"):
        t.set_state(job, s)
    got, cursor = drain(t, start["next"])
    assert got == t.events(job)
    assert drain(t, cursor) == ([], cursor)
    t.set_state(job, "RUN_DONE")
    got, _ = drain(t, cursor)
    assert [e["to_state"] for e in got] == ["RUN_DONE"]
    assert len(drain(t, "0-0")[0]) == 4
    assert [e["to_state"] for e in drain(t, "0-0", limit=1)[0]] == ["STAGED_IN", "PREPROCESSED", "RUNNING", "RUN_DONE"]


def test_a_cursor_with_filters(t, app):
    a, b = t.job(app, tags={"k": "1"}), t.job(app, tags={"k": "2"})
    t.set_state([a, b], "PREPROCESSED")
    assert [e["job_id"] for e in drain(t, "0-0", job_id=a["id"])[0]] == [a["id"]] * 2
    assert [e["job_id"] for e in drain(t, "0-0", tags="k:2")[0]] == [b["id"]] * 2
    assert {e["job_id"] for e in drain(t, "0-0", to_state="PREPROCESSED", limit=1)[0]} == {a["id"], b["id"]}


def test_many_events_come_in_pages_with_a_cursor(t, app):
    n = 2500
    expect(t.post("/jobs/", [{"workdir": f"p/{i}", "app_id": app["id"]} for i in range(n)]), 201)
    got, _ = drain(t, "0-0")
    assert len({e["id"] for e in got}) == len(got) == n


@pytest.mark.parametrize("cursor", ["x", "1", "1-", "-1", "1-2-3", "1--2", " 1-2", "99999999999999999999-1", "-1-1", "1" * 65])
def test_a_bad_cursor_is_422(t, cursor):
    assert issues(t.get("/events/", params={"since": cursor}))


# ------------------------------------------------------------------ what is kept no longer

def test_a_cursor_from_before_what_was_forgotten_is_told_so(api_centre, t, app):
    t.jobs(app)
    kept = drain(t, "0-0")[1]
    (later,) = t.jobs(app)
    db = psycopg2.connect((api_centre.home / "secrets" / "url-abies").read_text().strip())
    with db, db.cursor() as cursor:  # as the sweeper does it with events that are old
        cursor.execute("WITH gone AS (DELETE FROM events WHERE job_id = %s RETURNING owner_id, xid, id, job_id, to_state), "
                       "less AS (INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events) "
                       "         SELECT g.owner_id, j.site_id, j.app_id, g.to_state, 0, 0, -1 FROM gone g JOIN jobs j ON j.id = g.job_id), "
                       "low AS (UPDATE event_low SET low = 1) "
                       "INSERT INTO event_floors SELECT owner_id, xid, id FROM gone", (later["id"],))
    db.close()
    documented = t.get("/events/", params={"since": kept})
    assert documented.status_code == 410 and "0-0" in documented.json()["detail"]
    assert drain(t, "0-0")[0] == []  # what was forgotten had come after the first one
    (job,) = t.jobs(app)
    assert [e["job_id"] for e in drain(t, "0-0")[0]] == [job["id"]]

    async def closed():
        async with connect(t, f"/events/stream?since={kept}", extra_headers={"Authorization": f"Bearer {t.token}"}) as ws:
            with pytest.raises(websockets.ConnectionClosed):
                while True:
                    await asyncio.wait_for(ws.recv(), LIMIT)
            return ws.close_code

    assert asyncio.run(closed()) == 4010
    client = api_centre.folder / f"{t.name}.yml"
    client.touch(mode=0o600)
    client.write_text(f"api_root: {t.root}\nca_file: {t.centre.ca}\ntoken: {t.token}\n")
    done = api_centre.run([str(BUILD / "tests" / "event_client"), str(client), "-", kept, "20"], check=False)
    assert done.returncode == 1 and "error 410" in done.stdout, done.stdout + done.stderr
