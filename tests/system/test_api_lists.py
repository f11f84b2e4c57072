"""Lists: paging, ordering and every filter of the contract (1.3, 1.4, 4.1)."""
from datetime import datetime, timedelta

import pytest

from api import ABSENT, SLOTS, Tenant, expect, issues

PAGED = ["/sites/", "/apps/", "/jobs/", "/events/", "/batch-jobs/", "/transfers/"]
ORDERS = {"/jobs/": ["last_update", "id", "state", "workdir"], "/batch-jobs/": ["start_time"], "/events/": ["timestamp"]}


class World:
    """Some rows of each kind, different enough to tell filters apart."""

    def __init__(self, centre):
        t = self.t = Tenant(centre)
        self.sites = [t.site(name="alpha", path="/lus/alpha_1/x"), t.site(name="beta", path="/lus/beta%2/x"), t.site(name="alphabet", path="/home/Alpha")]
        self.apps = [t.app(self.sites[0], name="Sim", transfers=SLOTS), t.app(self.sites[1], name="Sim"), t.app(self.sites[0], name="Post")]
        sim = self.apps[0]
        files = {"input": {"location_alias": "lab", "path": "/in"}, "output": {"location_alias": "lab", "path": "/out"}}
        made = expect(t.post("/jobs/", [
            {"workdir": "run/c", "app_id": sim["id"], "tags": {"kind": "a", "mass": 1.0}, "transfers": files},
            {"workdir": "run/a", "app_id": sim["id"], "tags": {"kind": "a", "mass": 2.0, "url": "http://x:1"}},
            {"workdir": "run/b_1", "app_id": self.apps[1]["id"], "tags": {"kind": "b"}},
            {"workdir": "RUN/d%", "app_id": self.apps[2]["id"]}]), 201)
        made += t.jobs(self.apps[2], workdir="run/e", parent_ids=[made[0]["id"], made[1]["id"]])
        self.jobs = made
        self.batch_jobs = [t.batch_job(self.sites[0], queue="debug", filter_tags={"kind": "a", "x": "1"}), t.batch_job(self.sites[1], queue="prod"),
                           t.batch_job(self.sites[0], queue="prod")]
        b = self.batch_jobs
        expect(t.patch("/batch-jobs/", [{"id": b[0]["id"], "scheduler_id": 71, "state": "running", "start_time": "2026-01-02T00:00:00"},
                                        {"id": b[1]["id"], "scheduler_id": 72, "state": "finished", "start_time": "2026-01-01T00:00:00", "end_time": "2026-01-03T00:00:00"}]), 200)
        expect(t.patch("/jobs/", [{"id": made[1]["id"], "state": "PREPROCESSED", "batch_job_id": b[0]["id"], "state_data": {"message": "OK: done!", "n": 0.5}},
                                  {"id": made[2]["id"], "state": "RUN_ERROR", "batch_job_id": b[1]["id"], "pending_file_cleanup": False}]), 200, 2)

    def n(self, rows, ids):
        """Places in `rows` of the ids, in the order of the ids."""
        places = {row["id"]: i for i, row in enumerate(rows)}
        return [places[i] for i in ids]


@pytest.fixture(scope="module")
def world(api_centre):
    return World(api_centre)


@pytest.fixture(scope="module")
def t(world):
    return world.t


# ------------------------------------------------------------------ 1.3 paging and ordering

@pytest.mark.parametrize("path", PAGED)
def test_limit_and_offset_do_not_change_the_count(t, path):
    everything = t.page(path)
    n = everything["count"]
    assert n == len(everything["results"]) >= 2
    assert t.page(path, limit=0, offset=0) == {"count": n, "results": []}
    assert t.page(path, limit=1) == {"count": n, "results": everything["results"][:1]}
    assert t.page(path, limit=1, offset=1) == {"count": n, "results": everything["results"][1:2]}
    assert t.page(path, offset=n) == {"count": n, "results": []}
    assert t.page(path, offset=10**12) == {"count": n, "results": []}
    assert t.page(path, limit=100000)["results"] == everything["results"]


@pytest.mark.parametrize("path", PAGED)
@pytest.mark.parametrize("query", [{"limit": 100001}, {"limit": -1}, {"offset": -1}, {"limit": "x"}, {"offset": ""}, {"limit": "1.5"}, {"limit": 10**20}, {"offset": 10**20}])
def test_limit_and_offset_out_of_bounds_are_422(t, path, query):
    (name,) = query
    assert issues(t.get(path, params=query)).keys() == {("query", name)}


def test_sessions_ignore_limit_and_offset(t, world):
    sessions = [t.session(world.sites[0]), t.session(world.sites[0])]
    assert t.ids("/sessions/") == [s["id"] for s in sessions]
    assert t.ids("/sessions/", limit=1, offset=1) == [s["id"] for s in sessions]
    assert t.ids("/sessions/", limit="x") == [s["id"] for s in sessions]
    assert t.ids("/sessions/", id=sessions[1]["id"]) == [sessions[1]["id"]]
    assert t.ids("/sessions/", ("id", sessions[1]["id"]), ("id", ABSENT)) == [sessions[1]["id"]]
    for s in sessions:
        expect(t.delete(f"/sessions/{s['id']}"), 204)


@pytest.mark.parametrize("path", [p for p in PAGED if p != "/events/"])
def test_without_ordering_a_list_is_by_id(t, path):
    ids = t.ids(path)
    assert ids == sorted(ids)


def test_events_are_newest_first_without_ordering(t):
    stamps = [e["timestamp"] for e in t.page("/events/")["results"]]
    assert stamps == sorted(stamps, reverse=True) and t.ids("/events/") == t.ids("/events/", ordering="-timestamp")


@pytest.mark.parametrize("path, field", [(p, f) for p, fields in ORDERS.items() for f in fields])
def test_every_ordering_sorts_both_ways_with_ties_by_id(t, path, field):
    up, down = (t.page(path, ordering=o)["results"] for o in (field, "-" + field))

    def key(row):
        return (row[field] is None, row[field] or "", row["id"])

    if field != "workdir":  # (its order is the collation's)
        assert [key(r) for r in up] == sorted(key(r) for r in up)
    assert [r[field] for r in down] == [r[field] for r in reversed(up)]
    for rows in (up, down):
        for a, b in zip(rows, rows[1:]):
            assert a[field] != b[field] or a["id"] < b["id"]


def test_the_order_of_states_is_that_of_their_names(t, world):
    states = [j["state"] for j in t.page("/jobs/", ordering="state")["results"]]
    assert states == sorted(states) and len(set(states)) > 3


def test_workdirs_are_ordered_as_texts(t, world):
    assert world.n(world.jobs, t.ids("/jobs/", ("workdir__contains", "run/"), ordering="workdir")) == [1, 2, 0, 4]
    page = t.page("/jobs/", ("workdir__contains", "run/"), ordering="-workdir", offset=1, limit=2)
    assert (page["count"], world.n(world.jobs, [j["id"] for j in page["results"]])) == (4, [0, 2])


@pytest.mark.parametrize("path", ORDERS)
@pytest.mark.parametrize("ordering", ["nope", "", "--id", "ID", "id,state", "name"])
def test_an_unknown_ordering_is_422(t, path, ordering):
    (loc, (kind, msg)), = issues(t.get(path, params={"ordering": ordering})).items()
    assert loc == ("query", "ordering") and kind == "type_error.enum" and f"'-{ORDERS[path][0]}'" in msg


# ------------------------------------------------------------------ 1.4 common rules

def test_values_of_one_filter_are_ored_and_filters_are_anded(t, world):
    jobs, sites = world.jobs, world.sites
    ids = [("id", jobs[0]["id"]), ("id", jobs[2]["id"]), ("id", jobs[3]["id"])]
    assert world.n(jobs, t.ids("/jobs/", *ids)) == [0, 2, 3]
    assert world.n(jobs, t.ids("/jobs/", *ids, site_id=sites[0]["id"])) == [0, 3]
    assert world.n(jobs, t.ids("/jobs/", *ids, ("site_id", sites[0]["id"]), ("site_id", sites[1]["id"]))) == [0, 2, 3]


@pytest.mark.parametrize("path, query", [
    ("/jobs/", {"app_id": 0}), ("/jobs/", {"batch_job_id": 0}), ("/jobs/", {"workdir__contains": ""}), ("/jobs/", {"pending_file_cleanup": "false"}),
    ("/jobs/", {"tags": ""}), ("/sites/", {"name": ""}), ("/sites/", {"path": ""}), ("/apps/", {"site_path": ""}), ("/apps/", {"site_name": ""}),
    ("/batch-jobs/", {"scheduler_id": 0}), ("/batch-jobs/", {"queue": ""}), ("/events/", {"from_state": ""}), ("/events/", {"to_state": ""}),
    ("/events/", {"batch_job_id": 0}), ("/events/", {"scheduler_id": 0}), ("/transfers/", {"site_id": 0}), ("/transfers/", {"job_state": ""})])
def test_a_falsy_value_is_no_filter(t, path, query):
    assert t.page(path, **query) == t.page(path)


def test_an_empty_name_of_an_app_matches_nothing(t):
    assert t.ids("/apps/", name="") == []


@pytest.mark.parametrize("tags, places", [
    (["kind:a"], [0, 1]), (["kind:a", "mass:2.0"], [1]), (["kind:a", "kind:b"], [2]), (["kind:b", "kind:a"], [0, 1]), (["mass:2"], []), (["kind"], [0, 1, 2, 3, 4]),
    (["kind", "kind:b"], [2]), (["url:http://x:1"], [1]), (["kind:c"], []), (["kind:a", "other:x"], []), (["kind:"], []), ([":x"], [])])
def test_tags_are_pairs_all_of_which_must_be_there(t, world, tags, places):
    assert world.n(world.jobs, t.ids("/jobs/", *[("tags", x) for x in tags])) == places


@pytest.mark.parametrize("text, places", [("run/", [0, 1, 2, 4]), ("RUN", [3]), ("un/b", [2]), ("b_1", [2]), ("_/", [0, 1, 2, 3, 4]), ("b__/", []), ("run_a", [1]), ("r%e", [4]), ("%", [0, 1, 2, 3, 4]), ("d%", [3]), ("nothing", [])])
def test_contains_is_like_with_its_wildcards(t, world, text, places):
    assert world.n(world.jobs, t.ids("/jobs/", workdir__contains=text)) == places


def test_a_backslash_in_like_is_no_error(t, world):
    assert t.ids("/sites/", path="\\") == []
    assert world.n(world.jobs, t.ids("/jobs/", workdir__contains="\\")) == [3], "it makes the last wildcard a letter"


# ------------------------------------------------------------------ 4.1 sites, apps

def test_filters_of_sites(t, world):
    sites = world.sites
    assert world.n(sites, t.ids("/sites/", name="alpha")) == [0]
    assert t.ids("/sites/", name="alph") == [] == t.ids("/sites/", name="Alpha")
    assert world.n(sites, t.ids("/sites/", path="lus")) == [0, 1]
    assert world.n(sites, t.ids("/sites/", path="Alpha")) == [2]
    assert world.n(sites, t.ids("/sites/", ("id", sites[2]["id"]), ("id", sites[0]["id"]))) == [0, 2]
    stamp = t.read(f"/sites/{sites[1]['id']}")["last_refresh"]
    assert sites[1]["id"] in t.ids("/sites/", last_refresh_after=stamp)
    later = (datetime.fromisoformat(t.read(f"/sites/{sites[2]['id']}")["last_refresh"]) + timedelta(microseconds=1)).isoformat()
    assert t.ids("/sites/", last_refresh_after=later) == []


def test_filters_of_apps(t, world):
    apps, sites = world.apps, world.sites
    assert world.n(apps, t.ids("/apps/", site_id=sites[0]["id"])) == [0, 2]
    assert world.n(apps, t.ids("/apps/", ("site_id", sites[0]["id"]), ("site_id", sites[1]["id"]), name="Sim")) == [0, 1]
    assert world.n(apps, t.ids("/apps/", ("id", apps[1]["id"]), ("id", apps[2]["id"]))) == [1, 2]
    assert t.ids("/apps/", name="sim") == [] and world.n(apps, t.ids("/apps/", name="Sim")) == [0, 1]
    assert world.n(apps, t.ids("/apps/", site_path="beta")) == [1]
    assert world.n(apps, t.ids("/apps/", site_path="/lus/")) == [0, 1, 2]
    assert world.n(apps, t.ids("/apps/", site_name="alpha")) == [0, 2] and t.ids("/apps/", site_name="alph") == []


# ------------------------------------------------------------------ jobs

def test_filters_of_jobs(t, world):
    jobs, apps = world.jobs, world.apps
    ids = lambda *pairs, **q: world.n(jobs, t.ids("/jobs/", *pairs, **q))  # noqa: E731
    assert ids(parent_id=jobs[0]["id"]) == [4] == ids(("parent_id", ABSENT), ("parent_id", jobs[1]["id"]))
    assert ids(parent_id=jobs[2]["id"]) == []
    assert ids(app_id=apps[0]["id"]) == [0, 1] and ids(app_id=ABSENT) == []
    assert ids(site_id=world.sites[0]["id"]) == [0, 1, 3, 4]
    assert ids(batch_job_id=world.batch_jobs[1]["id"]) == [2] and ids(batch_job_id=ABSENT) == []
    assert ids(state="READY") == [0] and ids(("state", "READY"), ("state", "RUN_ERROR")) == [0, 2]
    assert ids(state__ne="READY") == [1, 2, 3, 4]
    assert ids(state__ne="READY", state="READY") == []
    assert ids(pending_file_cleanup="True") == [0, 1, 3, 4] == ids(pending_file_cleanup="1")
    assert ids(("state", "PREPROCESSED"), ("tags", "kind:a"), app_id=apps[0]["id"], site_id=world.sites[0]["id"]) == [1]
    assert issues(t.get("/jobs/?state=nope")).keys() == {("query", "state", 0)}
    assert issues(t.get("/jobs/?state=READY&state=ready")).keys() == {("query", "state", 1)}
    assert issues(t.get("/jobs/?state__ne=")).keys() == {("query", "state__ne")}


def test_a_change_moves_a_job_past_an_earlier_time(world, fresh):
    app = fresh.app(fresh.site())
    a, b = fresh.job(app), fresh.job(app)
    between = fresh.read(f"/jobs/{b['id']}")["last_update"]
    fresh.set_state(a, "PREPROCESSED")
    after = (datetime.fromisoformat(between) + timedelta(microseconds=1)).isoformat()
    assert fresh.ids("/jobs/", last_update_after=after) == [a["id"]]
    assert fresh.ids("/jobs/", last_update_before=between) == [b["id"]]
    assert fresh.ids("/jobs/", ("last_update_after", between), last_update_before=between) == [b["id"]]


# ------------------------------------------------------------------ batch jobs

def test_filters_of_batch_jobs(t, world):
    rows = world.batch_jobs
    ids = lambda *pairs, **q: world.n(rows, t.ids("/batch-jobs/", *pairs, **q))  # noqa: E731
    assert ids(("id", rows[2]["id"]), ("id", rows[1]["id"])) == [1, 2]
    assert ids(site_id=world.sites[0]["id"]) == [0, 2]
    assert ids(state="running") == [0] and ids(("state", "finished"), ("state", "pending_submission")) == [1, 2]
    assert ids(state="no such state") == [] and ids(("state", "nope"), ("state", "running")) == [0]
    assert ids(scheduler_id=72) == [1] and ids(queue="prod") == [1, 2] and ids(queue="pro") == []
    assert ids(filter_tags="kind:a") == [0] == ids(("filter_tags", "kind:a"), ("filter_tags", "x:1")) and ids(filter_tags="kind:b") == []
    assert ids(start_time_after="2026-01-02T00:00:00") == [0] and ids(start_time_before="2026-01-01 00:00:00") == [1]
    assert ids(start_time_before="2030-01-01T00:00:00") == [0, 1], "NULL never matches"
    assert ids(end_time_before="2030-01-01T00:00:00") == [1] == ids(end_time_after="2026-01-03T00:00:00Z")
    assert ids(end_time_after="2026-01-03T00:00:00.000001") == []
    assert ids(ordering="start_time") == [1, 0, 2] and ids(ordering="-start_time") == [2, 0, 1]


# ------------------------------------------------------------------ events

def test_filters_of_events(t, world):
    jobs, b = world.jobs, world.batch_jobs
    of = lambda *pairs, **q: [(world.n(jobs, [e["job_id"]])[0], e["from_state"], e["to_state"]) for e in t.page("/events/", *pairs, ordering="timestamp", **q)["results"]]  # noqa: E731
    assert of(job_id=jobs[1]["id"]) == [(1, "CREATED", "STAGED_IN"), (1, "STAGED_IN", "PREPROCESSED")]
    assert len(of(("job_id", jobs[1]["id"]), ("job_id", jobs[2]["id"]))) == 4
    first = t.ids("/events/", ordering="timestamp")[:2]
    assert sorted(t.ids("/events/", ("id", first[0]), ("id", first[1]))) == sorted(first)
    assert of(batch_job_id=b[1]["id"]) == [(2, "CREATED", "STAGED_IN"), (2, "STAGED_IN", "RUN_ERROR")], "with those before it was acquired"
    assert of(scheduler_id=72) == of(batch_job_id=b[1]["id"]) and of(scheduler_id=73) == []
    assert of(to_state="RUN_ERROR") == [(2, "STAGED_IN", "RUN_ERROR")] and of(to_state="no such state") == [] == of(from_state="nope")
    assert [e[0] for e in of(from_state="CREATED")] == [0, 1, 2, 3, 4]
    assert [e[0] for e in of(tags="kind:b")] == [2, 2]
    assert of(data="message:OK: done!") == [(1, "STAGED_IN", "PREPROCESSED")] and of(data="message:OK") == []
    assert of(data="n:0.5") == [], "values are texts"
    assert of(from_state="STAGED_IN", to_state="PREPROCESSED", tags="kind:a") == [(1, "STAGED_IN", "PREPROCESSED")]


def test_times_of_events_are_inclusive(fresh):
    app = fresh.app(fresh.site())
    job = fresh.job(app)
    soon = datetime.utcnow() + timedelta(minutes=1)
    fresh.set_state(job, "PREPROCESSED", state_timestamp=soon.isoformat())
    assert len(fresh.ids("/events/", timestamp_after=str(soon - timedelta(seconds=30)))) == 1
    assert len(fresh.ids("/events/", timestamp_after=str(soon))) == 1 and fresh.ids("/events/", timestamp_after=str(soon + timedelta(microseconds=1))) == []
    assert len(fresh.ids("/events/", timestamp_before=str(soon))) == 2 and len(fresh.ids("/events/", timestamp_before=str(soon - timedelta(seconds=30)))) == 1


# ------------------------------------------------------------------ transfers

def test_filters_of_transfers(t, world):
    job = world.jobs[0]
    items = t.page("/transfers/")["results"]
    assert [(i["job_id"], i["direction"]) for i in items] == [(job["id"], "in"), (job["id"], "out")]
    ids = lambda *pairs, **q: world.n(items, t.ids("/transfers/", *pairs, **q))  # noqa: E731
    assert ids(id=items[1]["id"]) == [1] and ids(site_id=world.sites[0]["id"]) == [0, 1] and ids(site_id=world.sites[1]["id"]) == []
    assert ids(job_id=job["id"]) == [0, 1] and ids(job_id=world.jobs[1]["id"]) == []
    assert ids(state="pending") == [0] and ids(("state", "awaiting_job"), ("state", "pending")) == [0, 1] and ids(state="done") == []
    assert ids(direction="in") == [0] and ids(direction="out") == [1]
    assert ids(job_state="READY") == [0, 1] and ids(job_state="no such state") == []
    assert ids(tags="kind:a") == [0, 1] and ids(tags="kind:b") == []
    assert issues(t.get("/transfers/?state=nope")).keys() == {("query", "state", 0)}
    assert issues(t.get("/transfers/?direction=sideways")).keys() == {("query", "direction")}


# ------------------------------------------------------------------ filters of changes

def test_put_changes_what_matches_and_nothing_else(fresh):
    app = fresh.app(fresh.site())
    a, b, c = (fresh.job(app, tags={"mass": m}) for m in (1.0, 2.0, 2.0))
    expect(fresh.put("/jobs/", {"num_nodes": 128}, params={"tags": "mass:2.0"}), 200, 2)
    assert [j["num_nodes"] for j in fresh.page("/jobs/")["results"]] == [1, 128, 128]
    expect(fresh.put("/jobs/", {"num_nodes": 5}, params={"id": ABSENT}), 200, 0)
    expect(fresh.put("/jobs/", {"num_nodes": 5}, params={"limit": 1}), 200, 3)
    assert issues(fresh.put("/jobs/", {"num_nodes": 5}, params={"state": "x"}))
    assert [j["num_nodes"] for j in fresh.page("/jobs/")["results"]] == [5, 5, 5]
    assert len({a["id"], b["id"], c["id"]}) == 3


def test_delete_by_filter_leaves_the_others_and_those_that_are_held(fresh):
    site = fresh.site()
    app = fresh.app(site)
    jobs = [fresh.job(app, tags={"k": str(i % 2)}) for i in range(6)]
    fresh.set_state(jobs[0], "PREPROCESSED")
    session = fresh.session(site)
    assert [j["id"] for j in fresh.acquire(session)] == [jobs[0]["id"]]
    expect(fresh.delete("/jobs/", params={"tags": "k:1"}), 204)
    assert fresh.ids("/jobs/") == [jobs[i]["id"] for i in (0, 2, 4)]
    assert issues(fresh.delete("/jobs/", params={"state": "x"}))
    expect(fresh.delete("/jobs/", params={"id": ABSENT}), 204)
    expect(fresh.delete("/jobs/"), 204)
    assert fresh.ids("/jobs/") == [jobs[0]["id"]], "a session holds it"
    assert {e["job_id"] for e in fresh.page("/events/")["results"]} == {jobs[0]["id"]}
    expect(fresh.delete(f"/sessions/{session['id']}"), 204)
    expect(fresh.delete("/jobs/"), 204)
    assert fresh.page("/jobs/") == fresh.page("/events/") == {"count": 0, "results": []}
