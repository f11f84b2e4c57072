"""Every route of /openapi.json as a second tenant with the numbers, names and words of the first: nothing is seen,
changed or counted, and no answer differs from that for a number that does not exist, but for the number."""
import json
import re

import pytest

from api import ABSENT, Tenant, expect, unique
from openapi import example, resolve, routes

WORD, NO_WORD = "zqsecret", "zqnothing"  # the first is in every text of the first tenant, the second nowhere
# which rows a field refers to
KINDS = {"site_id": "sites", "app_id": "apps", "app_ids": "apps", "batch_job_id": "batch-jobs", "parent_id": "jobs", "parent_ids": "jobs", "job_id": "jobs", "jobs": "jobs", "ids": "jobs",
         "scheduler_id": "scheduler", "globus_endpoint_id": None, "client_id": None, "task_id": None}
FILTERS = {"app_ids", "jobs"}  # fields of a body that only narrow: a foreign number is as good as an absent one
PER_ROW = re.compile(r'"(last_update|heartbeat|last_refresh|creation_date|timestamp|expires_in_sec|id|cursor|next)":("[^"]*"|[\d.]+)')


def text_fields():
    return {"tags": {WORD: WORD}, "serialized_parameters": WORD, "parameters": {WORD: WORD}, "data": {WORD: WORD}, "launch_params": {WORD: WORD}}


def use_up_small_numbers(centre, n=20):
    """So that no number of a row is also a count in some text."""
    t = Tenant(centre)
    sites = [t.site() for _ in range(n)]
    apps = [t.app(s, transfers={"data": {"required": True, "direction": "in", "local_path": "d"}}) for s in sites]
    for site, app in zip(sites, apps):
        t.job(app, transfers={"data": {"location_alias": "lab", "path": "/x"}})
        t.batch_job(site)
        t.session(site)
        expect(t.post("/auth/tokens", {"name": "x"}), 201)


class First:
    """The tenant whose rows nobody else may notice."""

    def __init__(self, centre):
        use_up_small_numbers(centre)
        t = self.t = Tenant(centre, WORD)
        self.site = t.site(name=WORD, path=f"/{WORD}", transfer_locations={WORD: "rsync://lab", "lab": "rsync://lab"}, allowed_projects=[WORD])
        self.app = t.app(self.site, name=WORD, description=WORD, source_code=WORD, transfers={"data": {"required": True, "direction": "in", "local_path": WORD}})
        self.batch_job = t.batch_job(self.site, project=WORD, queue=WORD, filter_tags={WORD: WORD})
        expect(t.put(f"/batch-jobs/{self.batch_job['id']}", {"scheduler_id": 876543, "status_info": {WORD: WORD}, "state": "running", "start_time": "2026-01-01T00:00:00"}), 200)
        parent = t.job(self.app, workdir=f"{WORD}/parent")
        self.job = t.job(self.app, workdir=WORD, parent_ids=[parent["id"]], transfers={"data": {"location_alias": WORD, "path": f"/{WORD}"}}, **text_fields())
        self.free, self.held = t.job(self.app, workdir=f"{WORD}/free"), t.job(self.app, workdir=f"{WORD}/held")
        t.set_state(self.free, "PREPROCESSED", state_data={WORD: WORD})
        self.session = t.session(self.site, batch_job_id=self.batch_job["id"])
        t.set_state(self.held, "RESTART_READY")
        assert [j["id"] for j in t.acquire(self.session, states=["RESTART_READY"])] == [self.held["id"]]
        t.set_state(self.held, "RUNNING", state_data={WORD: WORD})
        self.token = expect(t.post("/auth/tokens", {"name": WORD}), 201)
        self.ids = {"sites": self.site["id"], "apps": self.app["id"], "jobs": self.job["id"], "batch-jobs": self.batch_job["id"], "sessions": self.session["id"],
                    "transfers": t.ids("/transfers/")[0], "tokens": self.token["id"], "scheduler": 876543, "events": t.ids("/events/")[0]}

    def everything(self):
        """All that a first tenant could see of a change at its site, times included."""
        t, site = self.t, self.site["id"]
        lists = [t.page(p, site_id=site) for p in ("/apps/", "/jobs/", "/batch-jobs/", "/transfers/")]
        lists.append(t.page("/events/", *[("job_id", j["id"]) for j in lists[1]["results"]]))
        lists.append([s for s in t.page("/sessions/")["results"] if s["site_id"] == site])
        lists.append([t.read(f"/sites/{site}"), t.read(f"/sites/{site}/backlog")])
        lists.append([{k: v for k, v in x.items() if k != "last_used"} for x in expect(t.get("/auth/tokens"), 200) if x["name"] == WORD])
        return json.dumps(lists, sort_keys=True)


class Second:
    """Another user; or, with `owner`, an agent of the same user that may see one other site only."""

    def __init__(self, centre, owner=None):
        t = self.t = owner or Tenant(centre)
        self.site = t.site(name="mine", path="/mine", transfer_locations={"lab": "rsync://lab"})
        self.app = t.app(self.site, name="mine", transfers={"data": {"required": True, "direction": "in", "local_path": "d"}})
        self.job = t.job(self.app, transfers={"data": {"location_alias": "lab", "path": "/x"}})
        self.batch_job = t.batch_job(self.site)
        if owner:
            self.t = t.twin(expect(t.post("/auth/tokens", {"name": "agent", "scope": "site", "site_id": self.site["id"]}), 201)["access_token"])
        self.refresh()

    def refresh(self):
        self.session = self.t.session(self.site)
        self.ids = {"sites": self.site["id"], "apps": self.app["id"], "jobs": self.job["id"], "batch-jobs": self.batch_job["id"], "sessions": self.session["id"],
                    "transfers": self.t.ids("/transfers/")[0], "tokens": 0}
        self.known = {"site_id": self.site["id"], "app_id": self.app["id"], "app_ids": [self.app["id"]], "parent_ids": [], "workdir": unique("w"), "batch_job_id": None, "lease": None,
                      "name": unique("N"), "SiteCreate.path": "/x", "SiteUpdate.path": "/x", "TokenCreate.scope": "site", "TokenCreate.site_id": self.site["id"], "state_timestamp": None,
                      "JobCreate.transfers": {}, "JobTemplate.transfers": {}, "JobArray.parameters": {"n": [1]}, "JobArray.workdir": unique("w") + "/{{n}}", "BatchJobCreate.partitions": None, "AppParameter.default": None, "AppParameter.required": True, "retry": None, "transfer_locations": {"lab": "rsync://lab"},
                      "JobPatch.id": self.job["id"], "BatchJobPatch.id": self.batch_job["id"], "TransferPatch.id": self.ids["transfers"], "states": ["PREPROCESSED", "RESTART_READY", "RUNNING", "STAGED_IN"],
                      "max_num_jobs": 100, "filter_tags": {}, "max_aggregate_nodes": None, "max_wall_time_min": None, "max_nodes_per_job": None, "backfill_windows": {}, "jobs": []}


@pytest.fixture(scope="module")
def doc(api_centre):
    return api_centre.get("/openapi.json")


@pytest.fixture(scope="module")
def first(api_centre):
    return First(api_centre)


@pytest.fixture(scope="module")
def stranger(api_centre):
    return Second(api_centre)


@pytest.fixture(scope="module", params=["another user", "an agent of another site"])
def second(request, api_centre, first, stranger):
    return stranger if request.param == "another user" else Second(api_centre, first.t)


@pytest.fixture
def unchanged(first):
    """Whatever the test does, the first tenant's rows stay as they are, to the microsecond."""
    expect(first.t.put(f"/sessions/{first.session['id']}"), 200)
    before = first.everything()
    yield
    assert first.everything() == before


def kind_of(route):
    return route.path.split("/")[2 if route.path.startswith("/auth/") else 1]


def answer(r, *numbers):
    """What the answer shows, without the numbers that were asked for and what differs from call to call."""
    text = r.text
    for n in numbers:
        text = re.sub(rf"\b{re.escape(str(n))}\b", "#", text)
    headers = {k.lower(): v for k, v in r.headers.items() if k.lower() not in ("date", "x-request-id", "content-length")}
    return r.status_code, headers, PER_ROW.sub(r'"\1":*', text)


class Pair:
    """The same request with something of the first tenant's, and with something that is not there."""

    def __init__(self, first, second):
        self.first, self.second, self.asked = first, second, 0

    def compare(self, route, what, foreign, absent, ask):
        r, s = ask(foreign), ask(absent)
        self.asked += 2
        assert WORD not in r.text.replace(str(foreign), ""), f"{route} {what}: {r.text[:600]}"
        assert answer(r, foreign, absent) == answer(s, foreign, absent), f"{route} {what}={foreign}: {r.status_code} {r.text[:500]}\n{absent}: {s.status_code} {s.text[:500]}"
        return r


@pytest.fixture(scope="module")
def pair(first, second):
    return Pair(first, second)


def denied(r, second):
    """An agent's token may not do some things at all."""
    return r.status_code == 403 and second.t.name == WORD


def body_of(route, second):
    return example(route.doc, route.body, second.known) if route.body and route.content_type == "application/json" else None


def own_path(route, second):
    return route.path.replace("{id}", str(second.ids[kind_of(route)])) if "{id}" in route.path else route.path


def test_foreign_numbers_in_paths_look_absent(doc, first, second, pair, unchanged):
    for route in routes(doc):
        if not route.path_parameters:
            continue
        second.refresh()
        body = body_of(route, second)
        r = pair.compare(route, "id", first.ids[kind_of(route)], ABSENT, lambda n: second.t.call(route.method, route.path.replace("{id}", str(n)), json=body))
        assert r.status_code == (400 if route.name == "job.update" else 404) or denied(r, second), f"{route}: {r.status_code} {r.text}"
    assert pair.asked > 30


def query_values(doc, first, route, p):
    """(foreign, absent) values for a query field, or None where nothing of a tenant's can be meant."""
    schema = resolve(doc, p["schema"])
    item = resolve(doc, schema["items"]) if schema.get("type") == "array" else schema
    name = p["name"]
    if name == "id":
        return first.ids[kind_of(route)], ABSENT
    if item["type"] == "integer":
        return (first.ids[KINDS[name]], ABSENT) if name.endswith(("_id", "_ids")) else None
    if "enum" in item or item["type"] == "boolean" or item.get("format") == "date-time":
        return None
    if name in ("tags", "filter_tags", "data"):
        return f"{WORD}:{WORD}", f"{NO_WORD}:{NO_WORD}"
    if name in ("since", "from_state", "to_state", "state", "job_state"):
        return None
    return WORD, NO_WORD


def test_foreign_values_in_filters_match_nothing(doc, first, second, pair, unchanged):
    for route in routes(doc):
        for p in route.query if route.security else []:
            values = query_values(doc, first, route, p)
            if not values:
                continue
            second.refresh()
            body = body_of(route, second)
            r = pair.compare(route, p["name"], *values, lambda v: second.t.call(route.method, own_path(route, second), json=body, params={p["name"]: v}))
            assert r.status_code == route.success or denied(r, second), r.text
            if r.status_code == 403:
                continue
            if route.method == "GET":
                assert {k: r.json()[k] for k in ("count", "results")} == {"count": 0, "results": []}
            elif route.method == "PUT":
                assert r.json() == 0


def references(doc, schema, value, at=()):
    """(way to the field, kind of row) for each field of a right value that names rows."""
    schema = resolve(doc, schema)
    if schema.get("type") == "array" and isinstance(value, list) and value:
        yield from references(doc, schema["items"], value[0], (*at, 0))
    for name, field in schema.get("properties", {}).items():
        field = resolve(doc, field)
        number = field.get("type") == "integer" or (field.get("type") == "array" and resolve(doc, field["items"]).get("type") == "integer")
        if number and (name == "id" or name.endswith(("_id", "_ids")) or name in KINDS):
            yield (*at, name), None if name == "id" else KINDS[name], field["type"] == "array"
        elif isinstance(value, dict) and isinstance(value.get(name), (dict, list)):
            yield from references(doc, field, value[name], (*at, name))


def put_in(value, way, new):
    if not way:
        return new
    copied = value.copy()
    copied[way[0]] = put_in(value[way[0]] if len(way) > 1 else None, way[1:], new)
    return copied


def test_foreign_numbers_in_bodies_look_absent(doc, first, second, pair, unchanged):
    seen = set()
    for route in routes(doc):
        if not route.body or route.content_type != "application/json" or not route.security:
            continue
        second.refresh()
        body = body_of(route, second)
        for way, kind, many in references(doc, route.body, body):
            kind = kind or kind_of(route)
            if kind == "scheduler":
                continue
            seen.add((route.name, way[-1]))
            r = pair.compare(route, "/".join(map(str, way)), first.ids[kind], ABSENT,
                             lambda n: second.t.call(route.method, own_path(route, second), json=put_in(body, way, [n] if many else n)))
            if denied(r, second):
                continue
            if way[-1] in FILTERS:
                assert r.status_code == 200 and r.json() in ([], {**r.json(), "lost": [first.ids[kind]], "cancel": []} if isinstance(r.json(), dict) else []), r.text
            else:
                assert r.status_code in (400, 404), f"{route} {way}: {r.status_code} {r.text[:500]}"
    assert {("app.create", "site_id"), ("app.update", "site_id"), ("batch_job.create", "site_id"), ("session.create", "site_id"), ("session.create", "batch_job_id"), ("job.create", "app_id"),
            ("job.create", "parent_ids"), ("job.patch", "id"), ("job.patch", "batch_job_id"), ("job.update", "batch_job_id"), ("batch_job.patch", "id"), ("transfer.patch", "id"),
            ("token.create", "site_id"), ("session.acquire", "app_ids"), ("session.heartbeat", "jobs")} <= seen


def test_one_foreign_item_among_ones_own_spoils_the_call_as_an_absent_one_does(first, second, pair, unchanged):
    second.refresh()
    t = second.t
    calls = {"/jobs/": "jobs", "/batch-jobs/": "batch-jobs", "/transfers/": "transfers"}
    for path, kind in calls.items():
        own = t.read(f"{path}{second.ids[kind]}")
        r = pair.compare(path, "items", first.ids[kind], ABSENT, lambda n: t.patch(path, [{"id": second.ids[kind]}, {"id": n}]))
        assert r.status_code == 400 and t.read(f"{path}{second.ids[kind]}") == own
    r = pair.compare("/jobs/", "parent_ids", first.ids["jobs"], ABSENT, lambda n: t.post("/jobs/", [{"workdir": "p", "app_id": second.app["id"], "parent_ids": [second.job["id"], n]}]))
    assert r.status_code == 404


def test_lists_hold_ones_own_rows_only(first, second, unchanged):
    second.refresh()
    for path in ("/sites/", "/apps/", "/jobs/", "/events/", "/batch-jobs/", "/transfers/", "/sessions/"):
        page = second.t.page(path)
        assert page["count"] == len(page["results"]) > 0 and WORD not in json.dumps(page)
    assert WORD not in second.t.get("/auth/tokens").text.replace(second.t.name, "")
    page = expect(second.t.get("/events/", params={"since": "0-0", "limit": 1000}), 200)
    assert WORD not in json.dumps(page) and first.job["id"] not in {e["job_id"] for e in page["results"]}


def test_changes_without_a_filter_reach_ones_own_rows_only(api_centre, unchanged):
    third = Second(api_centre)
    t, n = third.t, len(third.t.ids("/jobs/"))
    expect(t.put("/jobs/", {"state": "PREPROCESSED", "num_nodes": 2}), 200, n)
    got = t.acquire(third.session, states=["PREPROCESSED", "RESTART_READY", "RUNNING", "STAGED_IN", "READY"], max_num_jobs=2000)
    assert [j["id"] for j in got] == [third.job["id"]]
    expect(t.delete(f"/sessions/{third.session['id']}"), 204)
    assert expect(t.post("/jobs/cancel", {}, params={"state__ne": "FAILED"}), 200) == {"cancelled": n, "requested": 0}
    expect(t.delete("/jobs/"), 204)
    expect(t.delete(f"/sites/{third.site['id']}"), 204)


def test_names_are_ones_own(stranger, unchanged):
    """A name that somebody else has is free, and what is made with it is mine."""
    t = stranger.t
    site = t.site(name=WORD, path=f"/{WORD}")
    app = t.app(site, name=WORD)
    assert t.ids("/sites/", name=WORD) == [site["id"]] and t.ids("/apps/", site_name=WORD) == [app["id"]]
    expect(t.delete(f"/sites/{site['id']}"), 204)


def test_idempotency_keys_are_ones_own(first, stranger):
    key = {"Idempotency-Key": unique("shared")}
    body = {"name": unique("same"), "path": "/x"}
    mine, theirs = (expect(t.post("/sites/", body, headers=key), 201) for t in (first.t, stranger.t))
    assert mine["id"] != theirs["id"]
    again = stranger.t.post("/sites/", body, headers=key)
    assert again.headers["idempotent-replayed"] == "true" and again.json()["id"] == theirs["id"]
    other = stranger.t.post("/apps/", {"site_id": theirs["id"], "name": "x", "serialized_class": "", "source_code": ""}, headers=key)
    assert other.status_code == 422 and str(mine["id"]) not in other.text
    for t, row in ((first.t, mine), (stranger.t, theirs)):
        expect(t.delete(f"/sites/{row['id']}"), 204)


def test_a_location_or_slot_of_a_foreign_app_is_unknown(first, second, pair, unchanged):
    second.refresh()
    for transfers in ({"data": {"location_alias": WORD, "path": "/x"}}, {WORD: {"location_alias": "lab", "path": "/x"}}):
        absent = json.loads(json.dumps(transfers).replace(WORD, NO_WORD))
        r = pair.compare("/jobs/", "transfers", WORD, NO_WORD, lambda w: second.t.post("/jobs/", [{"workdir": "t", "app_id": second.app["id"], "transfers": transfers if w == WORD else absent}]))
        assert r.status_code == 400


def test_another_tenants_token_id_cannot_be_revoked(first, stranger):
    expect(stranger.t.delete(f"/auth/tokens/{first.token['id']}"), 404)
    expect(first.t.anonymous("GET", "/sites/", token="Bearer " + first.token["access_token"]), 200)
