"""api.py - a tenant of a running centre, as tests of the REST contract use it.

    tenant = Tenant(centre, "tenant")
    site = tenant.site()                       # a row with defaults, made through the API
    r = tenant.get("/sites/", params={"name": "x"})
    expect(r, 200)

Nothing here retries or repairs: what the server says is what the test sees.
"""
import http.client
import itertools
import json
import re
import socket
import ssl
from urllib.parse import urlsplit

import requests

NAIVE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?$")
AWARE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00$")
ABSENT = 2_000_000_000  # an id that no test reaches
SLOTS = {
    "input": {"required": True, "direction": "in", "local_path": "input.dat"},
    "output": {"required": False, "direction": "out", "local_path": "out/result.dat", "recursive": True},
}

_numbers = itertools.count(1)


def unique(prefix="n"):
    return f"{prefix}{next(_numbers)}"


def expect(r, status, body=None):
    """The status and, if given, the exact body. Returns the body."""
    assert r.status_code == status, f"{r.request.method} {r.request.url[:300]}: {r.status_code} {r.text[:1500]}"
    if status == 204:
        assert r.content == b"" and "content-length" not in r.headers and "transfer-encoding" not in r.headers
        return None
    got = r.json()
    if body is not None:
        assert got == body
    return got


def documented_error(r):
    """Is the body one of the contract's error forms, and does it fit the status? Returns it."""
    where = f"{r.request.method} {r.request.url[:200]} -> {r.status_code} {r.text[:600]}"
    assert 400 <= r.status_code < 500, where
    assert r.headers["content-type"] == "application/json", where
    assert r.headers.get("x-request-id"), where
    if r.request.method == "HEAD":
        return None
    body = r.json()
    assert isinstance(body, dict), where
    if r.status_code == 422:
        assert set(body) == {"detail"} and isinstance(body["detail"], list) and body["detail"], where
        for entry in body["detail"]:
            assert set(entry) <= {"loc", "msg", "type", "ctx"} and {"loc", "msg", "type"} <= set(entry), where
            assert isinstance(entry["loc"], list) and entry["loc"][0] in ("path", "query", "body", "header"), where
            assert all(isinstance(x, (str, int)) for x in entry["loc"]), where
            assert isinstance(entry["msg"], str) and entry["msg"], where
            assert re.fullmatch(r"(value_error|type_error|assertion_error)(\.[a-z_.]+)?", entry["type"]), where
    elif "error" in body:
        assert r.status_code == 404 and body["error"] == "Not found" and set(body) <= {"error", "message"}, where
    else:
        assert isinstance(body.get("detail"), str) and body["detail"], where
        assert set(body) <= {"detail", "items"}, where
        for item in body.get("items", []):
            assert set(item) <= {"index", "id", "reason"} and isinstance(item["reason"], str), where
    if r.status_code == 401 and body["detail"] in ("Not authenticated", "Could not validate credentials"):
        assert r.headers["www-authenticate"] == "Bearer", where
    if r.status_code == 405:
        assert r.headers["allow"], where
    if r.status_code in (429, 503):
        assert int(r.headers["retry-after"]) >= 1, where
    return body


def issues(r):
    """{loc: (type, msg)} of a 422."""
    body = documented_error(r)
    assert r.status_code == 422, f"{r.request.method} {r.request.url[:300]}: {r.status_code} {r.text[:1000]}"
    return {tuple(e["loc"]): (e["type"], e["msg"]) for e in body["detail"]}


class Tenant:
    def __init__(self, centre, name=None):
        self.centre, self.name = centre, name or unique("user")
        self.http, self.id = centre.user(self.name)
        self.token = self.http.headers["Authorization"].split()[1]
        self.root = centre.root

    def twin(self, token=None):
        """The same user with a connection (and perhaps a token) of its own."""
        other = Tenant.__new__(Tenant)
        other.__dict__.update(self.__dict__)
        other.token = token or self.token
        other.http = self.centre.session(other.token)
        return other

    def call(self, method, path, timeout=60, **kw):
        return self.http.request(method, self.root + path, timeout=timeout, allow_redirects=False, **kw)

    def get(self, path, **kw):
        return self.call("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.call("POST", path, json=body, **kw)

    def put(self, path, body=None, **kw):
        return self.call("PUT", path, json=body, **kw)

    def patch(self, path, body, **kw):
        return self.call("PATCH", path, json=body, **kw)

    def delete(self, path, **kw):
        return self.call("DELETE", path, **kw)

    def raw(self, method, path, data, content_type="application/json", **kw):
        """The bytes as they are."""
        headers = {"content-type": content_type} if content_type else {}
        return self.call(method, path, data=data, headers=headers, **kw)

    def anonymous(self, method, path, token=None, **kw):
        headers = {**kw.pop("headers", {}), **({"Authorization": token} if token is not None else {})}
        return requests.request(method, self.root + path, verify=self.centre.ca, timeout=60, headers=headers, allow_redirects=False, **kw)

    # ------------------------------------------------------------------ rows

    def site(self, **fields):
        fields.setdefault("name", unique("site"))
        fields.setdefault("path", "/data/site")
        fields.setdefault("transfer_locations", {"lab": "rsync://lab.example/data"})
        return expect(self.post("/sites/", fields), 201)

    def app(self, site, **fields):
        fields.setdefault("name", unique("App"))
        fields.setdefault("serialized_class", "")
        fields.setdefault("source_code", "")
        return expect(self.post("/apps/", {"site_id": site["id"], **fields}), 201)

    def jobs(self, app, n=1, **fields):
        """n jobs, alike."""
        workdir = fields.pop("workdir", None)
        items = [{"workdir": workdir or unique("dir/"), "app_id": app["id"], **fields} for _ in range(n)]
        return expect(self.post("/jobs/", items), 201)

    def job(self, app, **fields):
        return self.jobs(app, 1, **fields)[0]

    def batch_job(self, site, **fields):
        return expect(self.post("/batch-jobs/", {"site_id": site["id"], "project": "p", "queue": "q", "num_nodes": 1,
                                                 "wall_time_min": 10, "job_mode": "mpi", **fields}), 201)

    def session(self, site, **fields):
        return expect(self.post("/sessions/", {"site_id": site["id"], **fields}), 201)

    def acquire(self, session, max_num_jobs=100, **spec):
        return expect(self.post(f"/sessions/{session['id']}", {"max_num_jobs": max_num_jobs, "filter_tags": {}, **spec}), 200)

    def set_state(self, jobs, state, **fields):
        jobs = jobs if isinstance(jobs, list) else [jobs]
        expect(self.patch("/jobs/", [{"id": j["id"], "state": state, **fields} for j in jobs]), 200, len(jobs))

    # ------------------------------------------------------------------ reading

    def page(self, path, /, *pairs, **params):
        """A list: {"count", "results"} and nothing else."""
        got = expect(self.get(path, params=[*pairs, *params.items()]), 200)
        assert set(got) == {"count", "results"}, list(got)
        assert isinstance(got["count"], int) and got["count"] >= 0
        return got

    def ids(self, path, /, *pairs, **params):
        got = self.page(path, *pairs, **params)
        assert got["count"] == len(got["results"])
        return [row["id"] for row in got["results"]]

    def read(self, path):
        return expect(self.get(path), 200)

    def history(self, job):
        """The states, oldest first."""
        page = self.page("/events/", job_id=job["id"], ordering="timestamp")
        return [e["to_state"] for e in page["results"]]

    def events(self, job, **params):
        return self.page("/events/", job_id=job["id"], ordering="timestamp", **params)["results"]


class Wire:
    """One TLS connection, used for several requests in turn."""

    def __init__(self, tenant):
        at = urlsplit(tenant.root)
        context = ssl.create_default_context(cafile=tenant.centre.ca)
        self.sock = context.wrap_socket(socket.create_connection((at.hostname, at.port), 30), server_hostname=at.hostname)
        self.sock.settimeout(30)
        self.token = tenant.token

    def send(self, method, path, body=b"", more=""):
        self.sock.sendall(f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.token}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body)

    def answer(self, method="GET"):
        r = http.client.HTTPResponse(self.sock, method=method)
        r.begin()
        return r.status, r.read()


def compact(value):
    return json.dumps(value, separators=(",", ":"))
