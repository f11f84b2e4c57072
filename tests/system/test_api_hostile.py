"""Every route of /openapi.json with right values and with every kind of wrong one: never a 5xx, never a hang, always
the documented form of an error, and answers that are as the document describes them."""
import itertools
import os
import queue
import threading
import time
from urllib.parse import quote

import pytest

from api import ABSENT, Tenant, documented_error, expect
from hostile import BODIES, CONTENT_TYPES, HEADERS, JSON_VALUES, PATH_VALUES, QUERY_VALUES, Client, spoiled, text_of
from openapi import example, routes, violation

WORKERS = 3
SLOWEST = 20  # seconds one request may take
PASSWORDS = ("user.login", "user.register")  # each try costs a hash that is slow on purpose
ALWAYS = {400, 401, 404, 405, 411, 413, 414, 431, 503}  # from the front itself


def every(n, values):
    return list(values)[::n]


class World:
    """A tenant with one row of each kind, and right values for every field."""

    def __init__(self, centre):
        t = self.t = Tenant(centre)
        self.client = Client(t)
        self.numbers = itertools.count(1)
        self.made = {}
        self.site = t.site()
        self.app = t.app(self.site, transfers={"data": {"required": True, "direction": "in", "local_path": "d"}})
        self.known = {
            "Login.username": t.name, "Login.password": t.name + "-secret-1", "Login.grant_type": "password", "UserRegister.username": "@new@",
            "SiteCreate.name": "@new@", "SiteUpdate.name": "@new@", "SiteCreate.path": "/data/x", "SiteUpdate.path": "/data/x", "AppCreate.name": "@new@", "AppUpdate.name": "@new@",
            "site_id": self.site["id"], "app_id": self.app["id"], "app_ids": [self.app["id"]], "parent_ids": [], "workdir": "@new@/x", "TokenCreate.scope": "user", "TokenCreate.site_id": None,
            "BatchJobCreate.partitions": [{"job_mode": "mpi", "num_nodes": 1, "filter_tags": {"a": "b"}}], "lease": None, "state_timestamp": "2026-01-02T03:04:05", "JobTransfer.location_alias": "lab",
            "JobTransfer.path": "/x/y", "AppParameter.default": None, "AppParameter.required": True, "states": ["PREPROCESSED"], "max_num_jobs": 3, "Heartbeat.jobs": [1, 2],
            "backfill_windows": {"q": [{"num_nodes": 1, "wall_time_min": 5}]}, "filter_tags": {}, "max_aggregate_nodes": 2.5, "JobArray.workdir": "@new@/{{n}}", "JobArray.parameters": {"n": [1, 2]}, "transfer_locations": {"lab": "rsync://lab.example/x"},
        }
        self.refill()

    def refill(self):
        """What other routes may have deleted."""
        t, known = self.t, self.known
        if t.get(f"/sites/{self.site['id']}").status_code == 404:
            self.site = t.site()
            known["site_id"] = self.site["id"]
        if t.get(f"/apps/{self.app['id']}").status_code == 404:
            self.app = t.app(self.site, transfers={"data": {"required": True, "direction": "in", "local_path": "d"}})
            known.update(app_id=self.app["id"], app_ids=[self.app["id"]])
        expect(t.put(f"/sites/{self.site['id']}", {"transfer_locations": {"lab": "rsync://lab.example/x"}}), 200)
        expect(t.put(f"/apps/{self.app['id']}", {"site_id": self.site["id"], "transfers": {"data": {"required": True, "direction": "in", "local_path": "d"}}}), 200)
        (job,) = t.jobs(self.app, transfers={"data": {"location_alias": "lab", "path": "/x"}})
        known["batch_job_id"] = t.batch_job(self.site)["id"]
        known["JobCreate.transfers"] = known["JobTemplate.transfers"] = {"data": {"location_alias": "lab", "path": "/x/y"}}
        token = expect(t.post("/auth/tokens", {"name": "x"}), 201)
        known["refresh_token"] = token.get("refresh_token") or "x"
        self.ids = {"sites": self.site["id"], "apps": self.app["id"], "jobs": job["id"], "batch-jobs": known["batch_job_id"], "transfers": t.ids("/transfers/", job_id=job["id"])[0],
                    "sessions": t.session(self.site)["id"], "tokens": token["id"]}
        for name in ("JobPatch.id", "BatchJobPatch.id", "TransferPatch.id"):
            known[name] = self.ids[{"J": "jobs", "B": "batch-jobs", "T": "transfers"}[name[0]]]

    def target(self, route, number=None):
        kind = route.path.split("/")[1 if not route.path.startswith("/auth") else 2]
        return route.path.replace("{id}", str(self.ids[kind] if number is None else number)) if "{id}" in route.path else route.path

    def body(self, route):
        return example(route.doc, route.body, self.known) if route.body else None

    def encode(self, route, body):
        """The bytes and their type."""
        if body is None:
            return None, None
        if route.content_type != "application/json":
            return "&".join(f"{k}={quote(str(v))}" for k, v in body.items()).encode(), route.content_type
        return self.name_anew(text_of(body)).encode(), route.content_type

    def name_anew(self, text):
        return text.replace("@new@", f"N{next(self.numbers)}_{self.t.name}") if "@new@" in text else text


class Walk:
    """Requests of several workers in turn, and what was wrong with the answers."""

    def __init__(self, worlds, doc):
        self.worlds, self.doc, self.wrong, self.sent, self.statuses = worlds, doc, [], 0, {}
        self.lock = threading.Lock()

    def check(self, route, what, r, took):
        problem = None
        try:
            if took > SLOWEST:
                problem = f"took {took:.1f} s"
            elif r.status_code >= 400:
                documented_error(r)
                if str(r.status_code) not in route.responses and r.status_code not in ALWAYS:
                    problem = f"{r.status_code} is not among the documented answers {sorted(route.responses)}: {r.text[:300]}"
            elif r.status_code != route.success:
                problem = f"{r.status_code} instead of {route.success}"
            elif r.status_code in (204, 307):
                problem = f"a body with {r.status_code}" if r.content else None
            else:
                schema = route.responses[str(r.status_code)]["content"]["application/json"]["schema"]
                problem = violation(self.doc, schema, r.json())
        except (AssertionError, ValueError, KeyError) as e:
            problem = f"{type(e).__name__}: {e}"
        with self.lock:
            self.sent += 1
            self.statuses.setdefault(repr(route), set()).add(r.status_code)
            if problem:
                self.wrong.append(f"{route} {what}: {problem[:900]}")

    def ask(self, world, route, what, target, body=None, content_type=None, **kw):
        began = time.monotonic()
        try:
            r = world.client.ask(route.method, target, body, content_type, **kw)
        except OSError as e:
            world.client.close()
            with self.lock:
                self.wrong.append(f"{route} {what}: no answer within {time.monotonic() - began:.1f} s: {e!r}")
            return None
        self.check(route, what, r, time.monotonic() - began)
        return r

    def over(self, work, only=lambda route: True):
        """work(world, route) for each route, some at a time."""
        todo, errors = queue.Queue(), []
        for route in routes(self.doc):
            if only(route):
                todo.put(route)

        def run(world):
            while True:
                try:
                    route = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    world.refill()
                    work(world, route)
                except BaseException as e:  # noqa: B902 (told below)
                    errors.append(f"{route}: {e!r}")

        threads = [threading.Thread(target=run, args=(w,)) for w in self.worlds]
        for x in threads:
            x.start()
        for x in threads:
            x.join()
        assert not errors, "\n".join(errors[:10])
        assert not self.wrong, f"{len(self.wrong)} of {self.sent} answers:\n" + "\n".join(self.wrong[:40])


@pytest.fixture(scope="module")
def doc(api_centre):
    return api_centre.get("/openapi.json")


@pytest.fixture(scope="module")
def worlds(api_centre):
    return [World(api_centre) for _ in range(WORKERS)]


@pytest.fixture
def walk(worlds, doc, api_centre):
    """Ends with: no process has died, and every list can still be read."""
    before = {p["name"]: p["pid"] for p in api_centre.processes()}
    yield Walk(worlds, doc)
    assert {p["name"]: p["pid"] for p in api_centre.processes()} == before
    for pid in before.values():
        os.kill(pid, 0)
    for w in worlds:
        for path in ("/sites/", "/apps/", "/jobs/", "/events/", "/batch-jobs/", "/sessions/", "/transfers/"):
            page = expect(w.t.get(path), 200)
            assert page["count"] == len(page["results"])


def test_right_values_are_taken_everywhere(walk):
    def work(world, route):
        body, kind = world.encode(route, world.body(route))
        r = walk.ask(world, route, "right values", world.target(route), body, kind)
        if route.name.startswith(("device.", "oauth.")):  # ways to sign in that are off here
            assert r.status_code == 422 or r.json() == {"detail": "Not Found"}, r.text
        elif route.name != "job.cancel_where":  # (which needs a filter)
            assert r.status_code == route.success, f"{r.status_code} {r.text[:600]}"

    walk.over(work)


def test_paths(walk):
    def work(world, route):
        body, kind = world.encode(route, world.body(route))
        for value in (ABSENT, *PATH_VALUES):
            r = walk.ask(world, route, f"path {str(value)[:40]}", world.target(route, value), body, kind)
            assert r is None or r.status_code >= 400 or value in ("%2B1", "1%20", "1e3", "%20") or route.path.count("/") == 1, f"{value} -> {r.status_code}"
        for tail in ("/", "//", "/x", "?", "?=", "?&&&", "?a=b&a=b", "?%00=1", "?" + "a&" * 5000, "#x"):
            walk.ask(world, route, f"tail {tail[:20]}", world.target(route) + tail, body, kind)

    walk.over(work, lambda route: route.path_parameters)


def test_query_fields(walk):
    def work(world, route):
        body, kind = world.encode(route, world.body(route))
        values = QUERY_VALUES if route.method == "GET" else every(5, QUERY_VALUES)
        for p in route.query:
            for value in values:
                walk.ask(world, route, f"{p['name']}={value[:40]}", f"{world.target(route)}?{p['name']}={value}", body, kind)
            name = p["name"]
            for query in (name, f"{name}[]=1", f"{name}=1&{name}=x&{name}=2", f"{name}=1;{name}=2", f"%{ord(name[0]):02X}{name[1:]}=x", f"{name}=" + f"&{name}=".join(["1"] * 3000)):
                walk.ask(world, route, query[:40], f"{world.target(route)}?{query}", body, kind)
        everything = "&".join(f"{p['name']}={v}" for p in route.query for v in ("1", "x", "%00"))
        walk.ask(world, route, "all fields wrong", f"{world.target(route)}?{everything}", body, kind)

    walk.over(work, lambda route: route.query)


def test_body_fields(walk):
    def work(world, route):
        values = every(9, JSON_VALUES) if route.name in PASSWORDS else JSON_VALUES
        for n, (place, bad, text) in enumerate(spoiled(world.body(route), values)):
            if n % 400 == 399:
                world.refill()
            walk.ask(world, route, f"{place} = {bad}", world.target(route), world.name_anew(text).encode(), route.content_type)

    walk.over(work, lambda route: route.content_type == "application/json")


def test_form_fields(walk):
    def work(world, route):
        good = world.body(route)
        for name in good:
            rest = "&".join(f"{k}={quote(str(v))}" for k, v in good.items() if k != name)
            for value in every(6, QUERY_VALUES):
                walk.ask(world, route, f"{name}={value[:40]}", world.target(route), f"{rest}&{name}={value}".encode(), route.content_type)
            for form in (rest, f"{rest}&{name}", f"{rest}&{name}=a&{name}=b", f"{rest}&{name}[]=a"):
                walk.ask(world, route, form[-40:], world.target(route), form.encode(), route.content_type)

    walk.over(work, lambda route: route.content_type and route.content_type != "application/json")


def test_whole_bodies(walk):
    def work(world, route):
        for body in BODIES:
            walk.ask(world, route, f"body {body[:40]!r}", world.target(route), body, route.content_type or "application/json")

    walk.over(work)


def test_broken_bodies_without_a_token(walk):
    def work(world, route):
        for body in every(4, BODIES):
            r = walk.ask(world, route, f"body {body[:40]!r} without token", world.target(route), body, route.content_type or "application/json", token=False)
            assert r.status_code in (401, 422, 413), r.text[:300]

    walk.over(work, lambda route: route.security)


def test_content_types_and_headers(walk):
    def work(world, route):
        body, _ = world.encode(route, world.body(route))
        for kind in CONTENT_TYPES:
            walk.ask(world, route, f"type {kind[:40]}", world.target(route), body if body is not None else b"{}", kind)
        for headers in HEADERS:
            walk.ask(world, route, f"header {str(headers)[:40]}", world.target(route), world.encode(route, world.body(route))[0], route.content_type, headers=headers)

    walk.over(work)


def test_ten_megabytes(walk):
    """Refused at the head where nothing so large is taken, else read, and refused or taken within the time of any other request."""
    padding = b"x" * 10_000_000
    bodies = [b'{"name":"' + padding + b'"}', b'[{"workdir":"' + padding + b'"}]', b"[" + b"[]," * 3_000_000 + b"[]]"]

    def work(world, route):
        for body in bodies:
            walk.ask(world, route, f"10 MB {body[:12]!r}", world.target(route), body, "application/json")

    walk.over(work, lambda route: route.method != "GET")


def test_a_body_that_never_ends_is_ended(worlds):
    """Half a body and silence: other requests go on, and the connection ends by itself."""
    client = Client(worlds[0].t, seconds=40)
    client.connect()
    client.sock.sendall(f"POST /sites/ HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {worlds[0].t.token}\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{{".encode())
    expect(worlds[0].t.get("/sites/"), 200)
    assert client.sock.recv(4096) == b"" or b"408" in client.sock.recv(4096)
