"""Sign-in by password, tokens and their scopes (contract 5)."""
import base64
import json
import time
from datetime import datetime, timedelta

import pytest

from api import ABSENT, NAIVE, Tenant, documented_error, expect, issues, unique
from openapi import example, routes

MISSING = ("value_error.missing", "field required")
FORM = "application/x-www-form-urlencoded"


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def register(t, **body):
    return t.anonymous("POST", "/auth/password/register", json=body)


def login(t, **form):
    return t.anonymous("POST", "/auth/password/login", data=form)


@pytest.fixture(scope="module")
def t(api_centre):
    return Tenant(api_centre)


def test_the_ways_to_sign_in_have_a_prefix(t):
    assert expect(t.anonymous("GET", "/auth/how"), 200) == ["LoginMethod.password"]


def test_a_user_registers_logs_in_and_is_known(t):
    name = unique("newcomer")
    made = expect(register(t, username=name, password="pass word ü"), 201)
    assert made == {"id": made["id"], "username": name}
    before = datetime.utcnow()
    got = expect(login(t, username=name, password="pass word ü"), 200)
    assert set(got) == {"access_token", "token_type", "expiration"} and got["token_type"] == "bearer" and NAIVE.match(got["expiration"])
    assert timedelta(hours=47) < datetime.fromisoformat(got["expiration"]) - before < timedelta(hours=49)
    said = claims(got["access_token"])
    assert said["sub"] == made["id"] and isinstance(said["sub"], int) and said["username"] == name and said["exp"] > time.time()
    assert expect(t.anonymous("GET", "/auth/password/me", token="Bearer " + got["access_token"]), 200) == made
    assert expect(t.anonymous("GET", "/users/me", token="Bearer " + got["access_token"]), 404) == {"detail": "Not Found"}


def test_a_name_is_taken_once(t):
    r = register(t, username=t.name, password="x")
    assert r.status_code == 400 and isinstance(documented_error(r)["detail"], str)


@pytest.mark.parametrize("body, locs", [({}, {("body", "username"), ("body", "password")}), ({"username": "x"}, {("body", "password")}), ({"username": None, "password": "x"}, {("body", "username")}),
                                        ({"username": "x" * 101, "password": "x"}, {("body", "username")}), ({"username": "a\0", "password": "x"}, {("body", "username")}),
                                        ({"username": [], "password": {}}, {("body", "username"), ("body", "password")})])
def test_a_registration_is_checked(t, body, locs):
    assert issues(register(t, **body)).keys() == locs


def test_wrong_sign_ins_look_all_the_same(t):
    answers = [login(t, username=t.name, password="wrong"), login(t, username=unique("nobody"), password="x"), login(t, username="", password=""), login(t, username="x" * 1000, password="y" * 1000)]
    for r in answers:
        assert expect(r, 401) == {"detail": "Unauthorized"} and "www-authenticate" not in r.headers
    assert len({tuple(sorted(k.lower() for k in r.headers)) for r in answers}) == 1


def test_a_login_form_is_checked(t):
    good = {"username": t.name, "password": t.name + "-secret-1"}
    assert issues(login(t, username="x")) == {("body", "password"): MISSING}
    assert issues(t.anonymous("POST", "/auth/password/login")).keys() <= {("body",), ("body", "username"), ("body", "password")}
    r = login(t, **good, grant_type="token")
    assert r.json()["detail"] == [{"loc": ["body", "grant_type"], "msg": 'string does not match regex "password"', "type": "value_error.str.regex", "ctx": {"pattern": "password"}}]
    for more in ({"grant_type": "password"}, {"scope": "x", "client_id": "y", "client_secret": "z", "unknown": "w"}, {"grant_type": "password", "scope": ""}):
        assert set(expect(login(t, **good, **more), 200)) == {"access_token", "token_type", "expiration"}
    assert t.anonymous("POST", "/auth/password/login", json=good).status_code == 422, "JSON is no form"


def test_a_form_is_decoded(t):
    name = unique("a+b&c=d é")
    expect(register(t, username=name, password="p%q+r s&t"), 201)
    expect(login(t, username=name, password="p%q+r s&t"), 200)
    raw = f"username={name.replace('+', '%2B').replace('&', '%26').replace('=', '%3D').replace(' ', '+')}&password=p%25q%2br+s%26t".encode()
    expect(t.anonymous("POST", "/auth/password/login", data=raw, headers={"content-type": FORM}), 200)


def test_a_multipart_form_is_a_form_too(t):
    r = t.anonymous("POST", "/auth/password/login", files={"username": (None, t.name), "password": (None, t.name + "-secret-1")})
    assert set(expect(r, 200)) == {"access_token", "token_type", "expiration"}


# ------------------------------------------------------------------ ours: tokens that can be renewed, scopes

def test_a_login_may_ask_for_a_token_that_can_be_renewed(t):
    got = expect(login(t, username=t.name, password=t.name + "-secret-1", refresh="1"), 200)
    assert set(got) == {"access_token", "token_type", "expiration", "refresh_token"}
    again = expect(t.anonymous("POST", "/auth/token/refresh", json={"refresh_token": got["refresh_token"]}), 200)
    assert again["refresh_token"] != got["refresh_token"]
    expect(t.anonymous("GET", "/sites/", token="Bearer " + again["access_token"]), 200)
    r = t.anonymous("POST", "/auth/token/refresh", json={"refresh_token": "x" * 43})
    assert r.status_code == 401
    documented_error(r)


def test_tokens_are_listed_and_revoked(t):
    made = expect(t.post("/auth/tokens", {"name": "script"}), 201)
    assert made["scope"] == "user" and made["access_token"]
    listed = [x for x in expect(t.get("/auth/tokens"), 200) if x["id"] == made["id"]]
    assert listed and listed[0]["name"] == "script" and not listed[0].get("access_token") and not listed[0].get("refresh_token")
    other = t.twin(made["access_token"])
    expect(other.get("/sites/"), 200)
    expect(t.delete(f"/auth/tokens/{made['id']}"), 204)
    until = time.monotonic() + 10
    while other.get("/sites/").status_code != 401:
        assert time.monotonic() < until, "a revoked token still works after 10 s"
        time.sleep(0.1)
    assert expect(other.get("/sites/"), 401) == {"detail": "Could not validate credentials"}
    assert made["id"] not in [x["id"] for x in expect(t.get("/auth/tokens"), 200)]
    assert expect(t.delete(f"/auth/tokens/{made['id']}"), 404)["error"] == "Not found"


def test_a_read_token_changes_nothing(t):
    site = t.site()
    reader = t.twin(expect(t.post("/auth/tokens", {"name": "look", "scope": "read"}), 201)["access_token"])
    expect(reader.get(f"/sites/{site['id']}"), 200)
    for r in (reader.post("/sites/", {"name": "x", "path": "/x"}), reader.put(f"/sites/{site['id']}", {}), reader.delete(f"/sites/{site['id']}"), reader.patch("/jobs/", []), reader.delete("/jobs/"),
              reader.post("/auth/tokens", {"name": "more"}), reader.get("/auth/tokens"), reader.put("/sessions/1")):
        assert r.status_code == 403, r.request.url
        documented_error(r)


def test_a_site_token_sees_one_site_and_no_more(t):
    mine, other = t.site(), t.site()
    apps = t.app(mine), t.app(other)
    jobs = [t.job(a) for a in apps]
    batch_jobs = [t.batch_job(s) for s in (mine, other)]
    agent = t.twin(expect(t.post("/auth/tokens", {"name": "agent", "scope": "site", "site_id": mine["id"]}), 201)["access_token"])
    assert agent.ids("/sites/") == [mine["id"]] and agent.ids("/apps/") == [apps[0]["id"]] and agent.ids("/jobs/") == [jobs[0]["id"]] and agent.ids("/batch-jobs/") == [batch_jobs[0]["id"]]
    assert {e["job_id"] for e in agent.page("/events/")["results"]} == {jobs[0]["id"]}
    for path in (f"/sites/{other['id']}", f"/apps/{apps[1]['id']}", f"/jobs/{jobs[1]['id']}", f"/batch-jobs/{batch_jobs[1]['id']}", f"/sites/{other['id']}/backlog"):
        expect(agent.get(path), 404)
    expect(agent.put("/jobs/", {"num_nodes": 2}), 200, 1)
    expect(agent.put(f"/jobs/{jobs[1]['id']}", {}), 400)
    expect(agent.patch("/jobs/", [{"id": jobs[0]["id"]}, {"id": jobs[1]["id"]}]), 400)
    expect(agent.post("/sessions/", {"site_id": other["id"]}), 400)
    expect(agent.post("/batch-jobs/", {"site_id": other["id"], "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 1, "job_mode": "mpi"}), 400)
    assert agent.post("/sites/", {"name": unique("x"), "path": "/x"}).status_code == 403 and agent.delete(f"/sites/{mine['id']}").status_code == 403
    expect(agent.delete("/jobs/"), 204)
    assert t.ids("/jobs/") == [jobs[1]["id"]]
    assert t.read(f"/jobs/{jobs[1]['id']}")["num_nodes"] == 1


def test_a_read_token_may_do_no_more_than_read_on_any_route(t, api_centre):
    reader = t.twin(expect(t.post("/auth/tokens", {"name": "look", "scope": "read"}), 201)["access_token"])
    doc = api_centre.get("/openapi.json")
    asked = [r for r in routes(doc) if r.security]
    for route in asked:
        r = reader.call(route.method, route.path.replace("{id}", str(ABSENT)), json=example(doc, route.body, {}) if route.body else None)
        may = route.method == "GET" and not route.path.startswith("/auth/tokens")
        assert (r.status_code != 403) == may, f"{route}: {r.status_code}"
    assert len(asked) > 40


@pytest.mark.parametrize("body, locs", [({}, {("body", "name")}), ({"name": "x", "scope": "god"}, {("body", "scope")}), ({"name": ""}, {("body", "name")}), ({"name": "x" * 101}, {("body", "name")})])
def test_a_token_is_checked(t, body, locs):
    assert issues(t.post("/auth/tokens", body)).keys() == locs


def test_a_site_token_needs_a_site_of_ones_own(t):
    for body in ({"name": "x", "scope": "site"}, {"name": "x", "scope": "site", "site_id": ABSENT}):
        r = t.post("/auth/tokens", body)
        assert r.status_code in (400, 404, 422)
        documented_error(r)
