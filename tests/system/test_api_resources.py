"""Sites, apps, jobs, batch jobs, transfers: fields, defaults, rules and exact answers (contract 3, 4, 4.2, 8, 9)."""
from datetime import datetime

import pytest

from api import ABSENT, SLOTS, documented_error, expect, issues, unique

MISSING = ("value_error.missing", "field required")
NULL = ("type_error.none.not_allowed", "none is not an allowed value")
QUEUED = {"scheduler_id": 5, "state": "queued", "queue": "q", "num_nodes": 2, "wall_time_min": 30, "project": "p", "time_remaining_min": 30, "queued_time_min": 1}


# ------------------------------------------------------------------ sites

def test_a_site_has_defaults(fresh):
    made = expect(fresh.post("/sites/", {"name": "plain", "path": "/p/"}), 201)
    date = made["creation_date"]
    assert made == {"id": made["id"], "name": "plain", "path": "/p", "globus_endpoint_id": None, "backfill_windows": {}, "queued_jobs": {}, "optional_batch_job_params": {},
                    "allowed_projects": [], "allowed_queues": {}, "transfer_locations": {}, "last_refresh": date, "creation_date": date}
    assert fresh.read(f"/sites/{made['id']}") == made
    assert fresh.page("/sites/") == {"count": 1, "results": [made]}


def test_every_field_of_a_site_comes_back(fresh):
    body = {"name": "full", "path": "/p", "globus_endpoint_id": "123e4567-e89b-12d3-a456-426614174000", "backfill_windows": {"q": [{"num_nodes": 3, "wall_time_min": 60}], "r": []},
            "queued_jobs": {"5": QUEUED}, "optional_batch_job_params": {"a": "1"}, "allowed_projects": ["x", "y"],
            "allowed_queues": {"q": {"max_nodes": 1, "max_walltime": 2, "max_queued_jobs": 3}}, "transfer_locations": {"lab": "globus://123e4567-e89b-12d3-a456-426614174000"}}
    made = expect(fresh.post("/sites/", body), 201)
    assert {k: made[k] for k in body} == body
    other = {"name": "other", "path": "/q", "globus_endpoint_id": None, "backfill_windows": {}, "queued_jobs": {}, "optional_batch_job_params": {}, "allowed_projects": [], "allowed_queues": {}, "transfer_locations": {}}
    got = expect(fresh.put(f"/sites/{made['id']}", other), 200)
    assert {k: got[k] for k in other} == other and got["creation_date"] == made["creation_date"]


def test_any_put_of_a_site_refreshes_it(fresh):
    site = fresh.site()
    stamps = [site["last_refresh"]] + [expect(fresh.put(f"/sites/{site['id']}", body), 200)["last_refresh"] for body in ({}, {"unknown": 1}, {"path": "/y"}, {})]
    stamps = [datetime.fromisoformat(s) for s in stamps]
    assert all(a < b for a, b in zip(stamps, stamps[1:]))


def test_a_put_with_the_whole_answer_changes_nothing_but_the_refresh(fresh):
    site = fresh.site()
    got = expect(fresh.put(f"/sites/{site['id']}", {**site, "owner_id": 1, "id": 99, "creation_date": "2001-01-01T00:00:00", "nonsense": {}}), 200)
    assert {**got, "last_refresh": 0} == {**site, "last_refresh": 0}


def test_a_name_of_a_site_is_unique_for_its_owner(tenant, fresh):
    one, two = fresh.site(name="same"), fresh.site(name="different")
    expect(tenant.post("/sites/", {"name": unique("x"), "path": "/x"}), 201)
    for r in (fresh.post("/sites/", {"name": "same", "path": "/z"}), fresh.put(f"/sites/{two['id']}", {"name": "same"})):
        assert r.status_code == 400 and isinstance(documented_error(r)["detail"], str)
    assert fresh.read(f"/sites/{two['id']}") == two
    expect(fresh.put(f"/sites/{one['id']}", {"name": "same"}), 200)
    expect(fresh.delete(f"/sites/{one['id']}"), 204)
    expect(fresh.post("/sites/", {"name": "same", "path": "/z"}), 201)


@pytest.mark.parametrize("body, loc", [
    ({"name": "x", "path": "relative"}, ("body", "path")), ({"name": "x"}, ("body", "path")), ({"name": "x" * 101, "path": "/x"}, ("body", "name")),
    ({"name": "x", "path": "/" + "y" * 512}, ("body", "path")), ({"name": "x", "path": "/x", "queued_jobs": {"a": QUEUED}}, ("body", "queued_jobs", "__key__")),
    ({"name": "x", "path": "/x", "queued_jobs": {"1": {**QUEUED, "state": "x"}}}, ("body", "queued_jobs", "1", "state")),
    ({"name": "x", "path": "/x", "allowed_queues": {"q": {"max_nodes": 1, "max_walltime": 2}}}, ("body", "allowed_queues", "q", "max_queued_jobs")),
    ({"name": "x", "path": "/x", "backfill_windows": {"q": [{"num_nodes": 1, "wall_time_min": 1}, {"num_nodes": 1}]}}, ("body", "backfill_windows", "q", 1, "wall_time_min")),
    ({"name": "x", "path": "/x", "allowed_projects": ["a", []]}, ("body", "allowed_projects", 1)), ({"name": "x", "path": "/x", "backfill_windows": None}, ("body", "backfill_windows"))])
def test_a_site_is_checked_inside(tenant, body, loc):
    assert loc in issues(tenant.post("/sites/", body))


@pytest.mark.parametrize("field", ["name", "path", "backfill_windows", "queued_jobs", "optional_batch_job_params", "allowed_projects", "allowed_queues", "transfer_locations"])
def test_null_for_a_field_of_a_site_is_422_and_changes_nothing(tenant, site, field):
    before = tenant.read(f"/sites/{site['id']}")
    assert issues(tenant.put(f"/sites/{site['id']}", {field: None})) == {("body", field): NULL}
    assert tenant.read(f"/sites/{site['id']}") == before


def test_deleting_a_site_deletes_all_that_is_there(fresh):
    site, other = fresh.site(), fresh.site()
    app, kept = fresh.app(site, transfers=SLOTS), fresh.app(other)
    job = fresh.job(app, transfers={"input": {"location_alias": "lab", "path": "/x"}})
    other_job = fresh.job(kept)
    batch_job, session = fresh.batch_job(site), fresh.session(site)
    item = fresh.page("/transfers/")["results"][0]
    expect(fresh.delete(f"/sites/{site['id']}"), 204)
    for path in (f"/sites/{site['id']}", f"/apps/{app['id']}", f"/jobs/{job['id']}", f"/batch-jobs/{batch_job['id']}", f"/transfers/{item['id']}"):
        expect(fresh.get(path), 404)
    expect(fresh.put(f"/sessions/{session['id']}"), 404)
    expect(fresh.delete(f"/sites/{site['id']}"), 404)
    assert fresh.ids("/sites/") == [other["id"]] and fresh.ids("/apps/") == [kept["id"]] and fresh.ids("/jobs/") == [other_job["id"]]
    assert {e["job_id"] for e in fresh.page("/events/")["results"]} == {other_job["id"]}
    assert fresh.page("/batch-jobs/")["count"] == fresh.page("/sessions/")["count"] == fresh.page("/transfers/")["count"] == 0


def test_the_backlog_counts_jobs_and_nodes(fresh):
    site = fresh.site()
    app = fresh.app(site)
    jobs = fresh.jobs(app, num_nodes=4) + fresh.jobs(app, node_packing_count=2) + fresh.jobs(app)
    fresh.set_state(jobs[:2], "PREPROCESSED")
    fresh.set_state(jobs[2], "RUNNING")
    fresh.batch_job(site, num_nodes=7)
    got = fresh.read(f"/sites/{site['id']}/backlog")
    assert got["site_id"] == site["id"] and got["jobs"] == {"PREPROCESSED": 2, "RUNNING": 1}
    assert got["runnable"] == {"jobs": 2, "nodes": 4.5} and got["running"] == {"jobs": 1, "nodes": 1}
    assert set(got) == {"site_id", "jobs", "runnable", "running", "batch_jobs"}


# ------------------------------------------------------------------ apps

def test_an_app_has_defaults_and_every_field_comes_back(tenant, site):
    plain = tenant.app(site, name="Plain", serialized_class="abc", source_code="def\n")
    assert plain == {"id": plain["id"], "site_id": site["id"], "name": "Plain", "serialized_class": "abc", "source_code": "def\n", "description": "", "parameters": {}, "transfers": {}}
    full = tenant.app(site, name="Füll_2", description="text \"q\"\n\té", parameters={"n": {"required": "True"}, "m": {"required": False, "default": 1, "help": "h"}},
                      transfers={"in": {"required": True, "direction": "in", "local_path": "a//b/"}, "out": {"required": 0, "direction": "out", "local_path": "c", "description": "d", "recursive": "yes"}})
    assert full["parameters"] == {"n": {"required": True, "default": None, "help": ""}, "m": {"required": False, "default": "1", "help": "h"}}
    assert full["transfers"] == {"in": {"required": True, "direction": "in", "local_path": "a/b", "description": "", "recursive": False},
                                 "out": {"required": False, "direction": "out", "local_path": "c", "description": "d", "recursive": True}}
    assert tenant.read(f"/apps/{full['id']}") == full and full["description"] == "text \"q\"\n\té"
    got = expect(tenant.put(f"/apps/{full['id']}", {"parameters": {"foo": {"required": "True"}}}), 200)
    assert got == {**full, "parameters": {"foo": {"required": True, "default": None, "help": ""}}}


def test_long_texts_of_an_app_are_verbatim(tenant, site):
    text = "x" * 262143 + "é"
    app = tenant.app(site, serialized_class=text, source_code=text)
    got = tenant.read(f"/apps/{app['id']}")
    assert got["serialized_class"] == text and got["source_code"] == text
    r = tenant.post("/apps/", {"site_id": site["id"], "name": "Long", "serialized_class": text + "x", "source_code": ""})
    (loc, (kind, _)), = issues(r).items()
    assert loc == ("body", "serialized_class") and kind == "assertion_error"


@pytest.mark.parametrize("name, good", [("a", True), ("_x1", True), ("Größe", True), ("名前", True), ("1a", False), ("a-b", False), ("a b", False), ("", False), ("a.b", False), ("\U0001F332", False)])
def test_the_name_of_an_app_is_an_identifier(tenant, name, good):
    site = tenant.site()
    r = tenant.post("/apps/", {"site_id": site["id"], "name": name, "serialized_class": "", "source_code": ""})
    if good:
        assert expect(r, 201)["name"] == name
    else:
        assert issues(r).keys() == {("body", "name")}


@pytest.mark.parametrize("parameter", [{"required": True, "default": "x"}, {"required": False, "default": ""}, {"required": False, "default": None}, {"required": False}, {"default": "x"}, {}, None, []])
def test_a_parameter_is_required_or_has_a_default(tenant, site, parameter):
    r = tenant.post("/apps/", {"site_id": site["id"], "name": "P", "serialized_class": "", "source_code": "", "parameters": {"n": parameter}})
    assert all(loc[:3] == ("body", "parameters", "n") for loc in issues(r))


@pytest.mark.parametrize("slot, loc", [({"direction": "in", "local_path": "x"}, "required"), ({"required": True, "local_path": "x"}, "direction"), ({"required": True, "direction": "up", "local_path": "x"}, "direction"),
                                       ({"required": True, "direction": "in", "local_path": "/abs"}, "local_path"), ({"required": True, "direction": "in"}, "local_path")])
def test_a_slot_is_checked(tenant, site, slot, loc):
    r = tenant.post("/apps/", {"site_id": site["id"], "name": "T", "serialized_class": "", "source_code": "", "transfers": {"s": slot}})
    assert issues(r).keys() == {("body", "transfers", "s", loc)}


def test_a_name_of_an_app_is_unique_at_its_site(fresh):
    here, there = fresh.site(), fresh.site()
    a, b = fresh.app(here, name="A"), fresh.app(here, name="B")
    c = fresh.app(there, name="A")
    for r in (fresh.post("/apps/", {"site_id": here["id"], "name": "A", "serialized_class": "", "source_code": ""}), fresh.put(f"/apps/{b['id']}", {"name": "A"}),
              fresh.put(f"/apps/{c['id']}", {"site_id": here["id"]})):
        assert r.status_code == 400
        documented_error(r)
    moved = expect(fresh.put(f"/apps/{c['id']}", {"site_id": here["id"], "name": "C"}), 200)
    assert (moved["site_id"], moved["name"]) == (here["id"], "C")
    assert [x["name"] for x in fresh.page("/apps/", site_id=here["id"])["results"]] == ["A", "B", "C"] and a


def test_an_app_that_moves_takes_its_jobs_along(fresh):
    here, there = fresh.site(), fresh.site()
    app = fresh.app(here)
    job = fresh.job(app)
    expect(fresh.put(f"/apps/{app['id']}", {"site_id": there["id"]}), 200)
    assert fresh.ids("/jobs/", site_id=there["id"]) == [job["id"]] and fresh.ids("/jobs/", site_id=here["id"]) == []


def test_deleting_an_app_deletes_its_jobs_even_when_they_are_held(fresh):
    site = fresh.site()
    app, other = fresh.app(site), fresh.app(site)
    jobs = [fresh.job(app) for _ in range(3)]
    kept = fresh.job(other)
    fresh.set_state(jobs[0], "PREPROCESSED")
    session = fresh.session(site)
    fresh.acquire(session)
    expect(fresh.delete(f"/apps/{app['id']}"), 204)
    assert fresh.ids("/jobs/") == [kept["id"]] and fresh.ids("/apps/") == [other["id"]]
    expect(fresh.get(f"/apps/{app['id']}"), 404)
    expect(fresh.put(f"/sessions/{session['id']}"), 200)


# ------------------------------------------------------------------ jobs

JOB = {"tags": {}, "serialized_parameters": "", "parameters": {}, "data": {}, "return_code": None, "num_nodes": 1, "ranks_per_node": 1, "threads_per_rank": 1, "threads_per_core": 1,
       "node_packing_count": 1, "gpus_per_rank": 0, "wall_time_min": 0, "launch_params": {}, "parent_ids": [], "batch_job_id": None, "pending_file_cleanup": True,
       "serialized_return_value": "", "serialized_exception": "", "priority": 0, "retry": None, "lease": 0, "attempts": 0, "cancel": False, "session_id": None}


def test_a_job_has_defaults(tenant, app):
    (made,) = tenant.jobs(app, workdir="a/./b/")
    got = tenant.read(f"/jobs/{made['id']}")
    assert got == {**JOB, "id": made["id"], "app_id": app["id"], "workdir": "a/b", "state": "STAGED_IN", "last_update": got["last_update"]}
    assert {**made, "session_id": None} == got
    assert tenant.page("/jobs/", id=made["id"]) == {"count": 1, "results": [got]}


def test_every_field_of_a_job_comes_back(tenant, app):
    parent = tenant.job(app)
    body = {"workdir": "w", "app_id": app["id"], "tags": {"a": "b"}, "serialized_parameters": "s" * 512000, "parameters": {"n": [1, {"x": None}]}, "data": {"y": [True, 1.5]}, "return_code": 3,
            "num_nodes": 2, "ranks_per_node": 3, "threads_per_rank": 4, "threads_per_core": 5, "node_packing_count": 6, "gpus_per_rank": 0.5, "wall_time_min": 7,
            "launch_params": {"c": "d"}, "parent_ids": [parent["id"]], "priority": -5}
    (made,) = expect(tenant.post("/jobs/", [body]), 201)
    assert {k: made[k] for k in body} == body and made["state"] == "AWAITING_PARENTS"
    assert tenant.read(f"/jobs/{made['id']}") == {**made, "session_id": None}
    change = {"workdir": "v", "tags": {}, "serialized_parameters": "", "parameters": {}, "data": {"z": 1}, "return_code": None, "num_nodes": 1, "ranks_per_node": 1, "threads_per_rank": 1, "threads_per_core": 1,
              "node_packing_count": 1, "gpus_per_rank": 0, "wall_time_min": 0, "launch_params": {}, "priority": 0, "serialized_return_value": "r", "serialized_exception": "e"}
    expect(tenant.put(f"/jobs/{made['id']}", change), 200, 1)
    got = tenant.read(f"/jobs/{made['id']}")
    assert {k: got[k] for k in change} == change and got["state"] == "AWAITING_PARENTS" and got["parent_ids"] == [parent["id"]]


def test_what_cannot_be_set_is_ignored(tenant, app):
    (job,) = expect(tenant.post("/jobs/", [{"workdir": "w", "app_id": app["id"], "state": "RUNNING", "batch_job_id": 5, "pending_file_cleanup": False, "serialized_return_value": "x", "id": 1,
                                           "last_update": "x", "session_id": "y"}]), 201)
    assert job["state"] == "STAGED_IN" and job["batch_job_id"] is None and job["pending_file_cleanup"] is True and job["serialized_return_value"] == ""
    expect(tenant.put(f"/jobs/{job['id']}", {"app_id": ABSENT, "parent_ids": [1], "transfers": 5, "state_message": "x", "session_id": 4, "last_update": []}), 200, 1)
    assert tenant.read(f"/jobs/{job['id']}")["app_id"] == app["id"]


@pytest.mark.parametrize("field", ["workdir", "tags", "serialized_parameters", "parameters", "data", "num_nodes", "ranks_per_node", "threads_per_rank", "threads_per_core", "node_packing_count",
                                   "gpus_per_rank", "wall_time_min", "launch_params", "state_data", "pending_file_cleanup", "serialized_return_value", "serialized_exception"])
def test_null_for_a_field_of_a_job_is_422(tenant, app, field):
    job = tenant.job(app)
    assert issues(tenant.put(f"/jobs/{job['id']}", {field: None})) == {("body", field): NULL}
    assert issues(tenant.patch("/jobs/", [{"id": job["id"], field: None}])) == {("body", 0, field): NULL}


def test_null_state_and_time_mean_no_change(tenant, app):
    job = tenant.job(app)
    expect(tenant.put(f"/jobs/{job['id']}", {"state": None, "state_timestamp": None, "return_code": None, "batch_job_id": None}), 200, 1)
    assert tenant.history(job) == ["STAGED_IN"]


@pytest.mark.parametrize("field, value", [("workdir", "/abs"), ("workdir", "x" * 257), ("serialized_parameters", "x" * 512001), ("serialized_exception", "x" * 512001), ("num_nodes", 0), ("ranks_per_node", -1),
                                          ("node_packing_count", 0), ("threads_per_core", 0), ("gpus_per_rank", -0.5), ("wall_time_min", -1), ("priority", 1001), ("data", []), ("data", "x"), ("tags", {"a": None})])
def test_a_field_of_a_job_has_bounds(tenant, app, field, value):
    job = tenant.job(app)
    assert all(loc[:2] == ("body", field) for loc in issues(tenant.put(f"/jobs/{job['id']}", {field: value})))
    if field != "serialized_exception":
        assert all(loc[:3] == ("body", 0, field) for loc in issues(tenant.post("/jobs/", [{"workdir": "w", "app_id": app["id"], field: value}])))


def test_jobs_are_made_in_the_order_of_the_request(tenant, app):
    made = expect(tenant.post("/jobs/", [{"workdir": w, "app_id": app["id"]} for w in ("b", "a", "c")]), 201)
    assert [j["workdir"] for j in made] == ["b", "a", "c"] and [j["id"] for j in made] == sorted(j["id"] for j in made)


def test_the_bounds_of_bulk_calls(fresh):
    app = fresh.app(fresh.site())
    assert expect(fresh.post("/jobs/", []), 201) == []
    expect(fresh.patch("/jobs/", []), 200, 0)
    assert expect(fresh.patch("/batch-jobs/", []), 200) == [] == expect(fresh.patch("/transfers/", []), 200)
    made = expect(fresh.post("/jobs/", [{"workdir": f"w/{i}", "app_id": app["id"]} for i in range(5000)]), 201)
    assert len(made) == 5000
    expect(fresh.patch("/jobs/", [{"id": j["id"], "num_nodes": 2} for j in made]), 200, 5000)
    expect(fresh.put("/jobs/", {"num_nodes": 3}), 200, 5000)
    for r in (fresh.post("/jobs/", [{"workdir": f"w/{i}", "app_id": app["id"]} for i in range(5001)]), fresh.patch("/jobs/", [{"id": i} for i in range(1, 5002)])):
        assert isinstance(expect(r, 400)["detail"], str)
    fresh.jobs(app)
    expect(fresh.put("/jobs/", {"num_nodes": 4}), 400)
    page = fresh.page("/jobs/")
    assert page["count"] == len(page["results"]) == 5001 and {j["num_nodes"] for j in page["results"]} == {3, 1}
    expect(fresh.delete("/jobs/"), 204)
    assert fresh.page("/jobs/") == {"count": 0, "results": []}


def test_creation_is_checked_in_the_contracts_order_and_atomic(fresh):
    site = fresh.site()
    app, count = fresh.app(site, transfers=SLOTS), lambda: fresh.page("/jobs/")["count"]  # noqa: E731
    good = {"workdir": "good", "app_id": app["id"]}
    all_wrong = {"workdir": "good", "app_id": ABSENT, "parent_ids": [ABSENT], "transfers": {"nope": {"location_alias": "nope", "path": "/x"}}}
    assert set(expect(fresh.post("/jobs/", [good, all_wrong]), 404)) == {"detail", "items"}
    all_wrong["app_id"] = app["id"]
    assert "parent" in expect(fresh.post("/jobs/", [good, all_wrong]), 404)["detail"]
    all_wrong["parent_ids"] = []
    body = expect(fresh.post("/jobs/", [good, {**all_wrong, "workdir": "./good/"}]), 400)
    assert "workdir" in body["detail"] and [i["index"] for i in body["items"]] == [1]
    all_wrong["workdir"] = "other"
    assert "slot" in expect(fresh.post("/jobs/", [good, all_wrong]), 400)["detail"]
    all_wrong["transfers"] = {"input": {"location_alias": "nope", "path": "/x"}}
    assert "location" in expect(fresh.post("/jobs/", [good, all_wrong]), 400)["detail"]
    assert count() == 0
    all_wrong["transfers"] = {}
    assert len(expect(fresh.post("/jobs/", [good, all_wrong]), 201)) == 2, "a required slot may stay empty"
    assert len(expect(fresh.post("/jobs/", [good]), 201)) == 1, "a workdir may occur again in another call"


@pytest.mark.parametrize("transfer, loc", [("lab:/x", ()), ({"location_alias": "lab"}, ("path",)), ({"path": "/x"}, ("location_alias",)), ({"location_alias": "lab", "path": "x"}, ("path",)), (None, ()), ([], ())])
def test_a_transfer_of_a_job_is_checked(tenant, site, transfer, loc):
    app = tenant.app(site, transfers=SLOTS)
    r = tenant.post("/jobs/", [{"workdir": "w", "app_id": app["id"], "transfers": {"input": transfer}}])
    assert ("body", 0, "transfers", "input", *loc) in issues(r)


def test_each_item_of_a_patch_is_applied_with_its_own_keys(tenant, app):
    a, b, c = tenant.jobs(app) + tenant.jobs(app) + tenant.jobs(app)
    expect(tenant.patch("/jobs/", [{"id": a["id"], "state": "STAGED_IN"}, {"id": b["id"], "state": "PREPROCESSED", "data": {"x": 1}, "num_nodes": 4}, {"id": c["id"], "tags": {"t": 1}}]), 200, 3)
    a, b, c = (tenant.read(f"/jobs/{x['id']}") for x in (a, b, c))
    assert (a["state"], a["num_nodes"], a["tags"]) == ("STAGED_IN", 1, {}) and (b["state"], b["num_nodes"], b["data"]) == ("PREPROCESSED", 4, {"x": 1}) and (c["state"], c["tags"]) == ("STAGED_IN", {"t": "1"})
    assert len(tenant.events(a)) == 1 and len(tenant.events(b)) == 2 and len(tenant.events(c)) == 1


def test_a_patch_of_jobs_names_ids_once_and_all_of_them(tenant, app):
    job = tenant.job(app)
    body = expect(tenant.patch("/jobs/", [{"id": job["id"], "num_nodes": 2}, {"id": str(job["id"]), "num_nodes": 3}]), 400)
    assert isinstance(body["detail"], str)
    assert issues(tenant.patch("/jobs/", [{"num_nodes": 2}])) == {("body", 0, "id"): MISSING}
    assert tenant.read(f"/jobs/{job['id']}")["num_nodes"] == 1


def test_a_job_cannot_name_a_batch_job_that_is_not_there(tenant, app):
    job = tenant.job(app)
    for r in (tenant.put(f"/jobs/{job['id']}", {"batch_job_id": ABSENT}), tenant.patch("/jobs/", [{"id": job["id"], "batch_job_id": ABSENT}])):
        assert r.status_code == 400
        documented_error(r)


def test_one_job_is_deleted_with_its_events_and_items(fresh):
    app = fresh.app(fresh.site(), transfers=SLOTS)
    job = fresh.job(app, transfers={"input": {"location_alias": "lab", "path": "/x"}})
    expect(fresh.delete(f"/jobs/{job['id']}"), 204)
    expect(fresh.delete(f"/jobs/{job['id']}"), 404)
    assert fresh.page("/events/")["count"] == fresh.page("/transfers/")["count"] == fresh.page("/jobs/")["count"] == 0


def test_a_held_job_is_not_deleted_and_the_answer_is_204(fresh):
    site = fresh.site()
    job = fresh.job(fresh.app(site))
    fresh.set_state(job, "PREPROCESSED")
    session = fresh.session(site)
    fresh.acquire(session)
    expect(fresh.delete(f"/jobs/{job['id']}"), 204)
    assert fresh.read(f"/jobs/{job['id']}")["session_id"] == session["id"]


def test_cancel_ends_what_waits_and_needs_a_filter(fresh):
    app = fresh.app(fresh.site())
    jobs = [fresh.job(app, tags={"n": str(i)}) for i in range(3)]
    fresh.set_state(jobs[2], "RUNNING")
    assert expect(fresh.post(f"/jobs/{jobs[0]['id']}/cancel", {"reason": "no need"}), 200) == {"cancelled": 1, "requested": 0}
    assert fresh.events(jobs[0])[-1]["data"] == {"message": "cancelled", "reason": "no need"}
    assert fresh.post("/jobs/cancel", {}).status_code == 422
    documented_error(fresh.post("/jobs/cancel", {}))
    assert expect(fresh.post("/jobs/cancel", None, params={"tags": "n:2"}), 200) == {"cancelled": 0, "requested": 1}
    assert [j["state"] for j in fresh.page("/jobs/")["results"]] == ["FAILED", "STAGED_IN", "RUNNING"] and fresh.read(f"/jobs/{jobs[2]['id']}")["cancel"] is True
    assert expect(fresh.post(f"/jobs/{ABSENT}/cancel", {}), 404)["error"] == "Not found"


def test_an_array_makes_one_job_for_each_combination(fresh):
    app = fresh.app(fresh.site())
    body = {"template": {"app_id": app["id"], "tags": {"sweep": "1"}, "parameters": {"k": "x"}}, "workdir": "s/{{a}}-{{b}}", "parameters": {"a": [1, 2], "b": ["p", "q"]}}
    got = expect(fresh.post("/jobs/array", body), 201)
    jobs = fresh.page("/jobs/", tags="sweep:1")["results"]
    assert got == {"count": 4, "ids": [j["id"] for j in jobs]}
    assert [(j["workdir"], j["parameters"]) for j in jobs] == [(f"s/{a}-{b}", {"k": "x", "a": a, "b": b}) for a in (1, 2) for b in "pq"]
    assert expect(fresh.post("/jobs/array", {**body, "combine": "zip", "workdir": "z/{{a}}{{b}}"}), 201)["count"] == 2
    for wrong in ({"workdir": "same"}, {"parameters": {"a": []}}, {"parameters": {"a": 1}}, {"combine": "zip", "parameters": {"a": [1], "b": [1, 2]}}, {"parameters": {"a": list(range(400)), "b": list(range(400))}}):
        r = fresh.post("/jobs/array", {**body, **wrong})
        assert r.status_code in (400, 422), f"{wrong}: {r.status_code} {r.text[:300]}"
        documented_error(r)
    assert fresh.page("/jobs/")["count"] == 6


def test_a_job_says_why_it_does_not_run(fresh):
    app = fresh.app(fresh.site(), transfers=SLOTS)
    parent = fresh.job(app)
    child = fresh.job(app, parent_ids=[parent["id"]])
    wet = fresh.job(app, transfers={"input": {"location_alias": "lab", "path": "/x"}})
    ready = fresh.job(app)
    fresh.set_state(ready, "PREPROCESSED")

    def codes(job):
        got = fresh.read(f"/jobs/{job['id']}/explain")
        assert set(got) == {"id", "state", "reasons"} and all(set(r) == {"code", "text", "ids"} for r in got["reasons"])
        return {r["code"]: r["ids"] for r in got["reasons"]}

    assert codes(child)["parents"] == [parent["id"]] and "transfers" in codes(wet) and "no_allocation" in codes(ready)
    fresh.set_state(parent, "JOB_FINISHED")
    assert "done" in codes(parent)
    assert expect(fresh.get(f"/jobs/{ABSENT}/explain"), 404)["error"] == "Not found"


# ------------------------------------------------------------------ batch jobs

def test_a_batch_job_has_defaults_and_every_field_comes_back(tenant, site):
    made = tenant.batch_job(site)
    assert made == {"id": made["id"], "site_id": site["id"], "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 10, "job_mode": "mpi", "optional_params": {}, "filter_tags": {}, "partitions": None,
                    "state": "pending_submission", "scheduler_id": None, "status_info": {}, "start_time": None, "end_time": None}
    body = {"optional_params": {"a": 1}, "filter_tags": {"b": 2.0}, "partitions": [{"job_mode": "mpi", "num_nodes": 1}, {"job_mode": "serial", "num_nodes": 2, "filter_tags": {"c": "d"}}], "job_mode": "serial",
            "num_nodes": 3, "state": "running", "scheduler_id": 5, "status_info": {"x": "y"}}
    made = tenant.batch_job(site, **body)
    assert made["optional_params"] == {"a": "1"} and made["filter_tags"] == {"b": "2.0"} and made["state"] == "pending_submission" and made["scheduler_id"] is None and made["status_info"] == {}
    assert made["partitions"] == [{"job_mode": "mpi", "num_nodes": 1, "filter_tags": {}}, {"job_mode": "serial", "num_nodes": 2, "filter_tags": {"c": "d"}}]
    assert tenant.read(f"/batch-jobs/{made['id']}") == made


@pytest.mark.parametrize("field", ["site_id", "project", "queue", "num_nodes", "wall_time_min", "job_mode"])
def test_a_batch_job_needs_each_of_its_fields(tenant, site, field):
    body = {"site_id": site["id"], "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 10, "job_mode": "mpi"}
    del body[field]
    assert issues(tenant.post("/batch-jobs/", body)) == {("body", field): MISSING}


def test_a_batch_job_of_an_absent_site_is_400(tenant):
    body = {"site_id": ABSENT, "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 10, "job_mode": "mpi"}
    assert isinstance(expect(tenant.post("/batch-jobs/", body), 400)["detail"], str)


@pytest.mark.parametrize("field, value", [("project", "x" * 65), ("queue", "x" * 65), ("num_nodes", -1), ("partitions", [{"job_mode": "mpi"}]), ("partitions", {}), ("filter_tags", None)])
def test_a_batch_job_is_checked(tenant, site, field, value):
    body = {"site_id": site["id"], "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 10, "job_mode": "mpi", field: value}
    assert all(loc[:2] == ("body", field) for loc in issues(tenant.post("/batch-jobs/", body)))


def test_a_batch_job_is_updated_field_by_field(tenant, site):
    b = tenant.batch_job(site)
    change = {"state": "queued", "scheduler_id": 12, "status_info": {"submit_script": "/x"}, "start_time": "2026-01-01T00:00:00.5", "end_time": "2026-01-02T00:00:00Z"}
    got = expect(tenant.put(f"/batch-jobs/{b['id']}", {**change, "project": "other", "num_nodes": 5, "site_id": 1, "status": "x", "id": 7}), 200)
    assert got == {**b, **change, "start_time": "2026-01-01T00:00:00.500000", "end_time": "2026-01-02T00:00:00"}
    got = expect(tenant.put(f"/batch-jobs/{b['id']}", {"scheduler_id": None, "start_time": None, "end_time": None, "status_info": {}}), 200)
    assert got == {**b, "state": "queued"}
    assert issues(tenant.put(f"/batch-jobs/{b['id']}", {"state": None, "status_info": None})) == {("body", "state"): NULL, ("body", "status_info"): NULL}
    assert expect(tenant.put(f"/batch-jobs/{b['id']}", {}), 200) == got == tenant.read(f"/batch-jobs/{b['id']}")


def test_what_is_to_be_deleted_only_becomes_finished(tenant, site):
    b = tenant.batch_job(site)
    expect(tenant.put(f"/batch-jobs/{b['id']}", {"state": "pending_deletion"}), 200)
    for state in ("running", "queued", "submit_failed", "pending_submission"):
        got = expect(tenant.put(f"/batch-jobs/{b['id']}", {"state": state, "scheduler_id": 9, "status_info": {"s": state}}), 200)
        assert got["state"] == "pending_deletion" and got["scheduler_id"] == 9 and got["status_info"] == {"s": state}
    assert expect(tenant.patch("/batch-jobs/", [{"id": b["id"], "state": "running"}]), 200)[0]["state"] == "pending_deletion"
    assert expect(tenant.patch("/batch-jobs/", [{"id": b["id"], "state": "finished"}]), 200)[0]["state"] == "finished"
    assert expect(tenant.put(f"/batch-jobs/{b['id']}", {"state": "running"}), 200)["state"] == "running", "any state may follow any other"


def test_a_patch_of_batch_jobs_answers_in_the_order_of_ids_and_the_last_item_wins(tenant, site):
    a, b = tenant.batch_job(site), tenant.batch_job(site)
    got = expect(tenant.patch("/batch-jobs/", [{"id": b["id"], "scheduler_id": 2}, {"id": a["id"], "scheduler_id": 1}, {"id": b["id"], "scheduler_id": 3}]), 200)
    assert [(x["id"], x["scheduler_id"]) for x in got] == [(a["id"], 1), (b["id"], 3)]
    assert got == [tenant.read(f"/batch-jobs/{x['id']}") for x in (a, b)]
    body = expect(tenant.patch("/batch-jobs/", [{"id": a["id"], "scheduler_id": 5}, {"id": ABSENT}]), 400)
    assert isinstance(body["detail"], str) and tenant.read(f"/batch-jobs/{a['id']}")["scheduler_id"] == 1


def test_jobs_and_sessions_outlive_their_batch_job(fresh):
    site = fresh.site()
    job = fresh.job(fresh.app(site))
    fresh.set_state(job, "PREPROCESSED")
    b = fresh.batch_job(site)
    session = fresh.session(site, batch_job_id=b["id"])
    assert fresh.acquire(session)[0]["batch_job_id"] == b["id"]
    expect(fresh.delete(f"/batch-jobs/{b['id']}"), 204)
    got = fresh.read(f"/jobs/{job['id']}")
    assert got["batch_job_id"] is None and got["session_id"] == session["id"]
    assert fresh.page("/sessions/")["results"][0]["batch_job_id"] is None
    expect(fresh.delete(f"/batch-jobs/{b['id']}"), 404)


# ------------------------------------------------------------------ transfers

def test_a_transfer_item_is_made_from_its_slot(fresh):
    site = fresh.site()
    app = fresh.app(site, transfers=SLOTS)
    job = fresh.job(app, transfers={"input": {"location_alias": "lab", "path": "/a//b"}, "output": {"location_alias": "lab", "path": "/c"}})
    items = {i["direction"]: i for i in fresh.page("/transfers/")["results"]}
    common = {"job_id": job["id"], "location_alias": "lab", "task_id": "", "transfer_info": {}}
    assert items["in"] == {**common, "id": items["in"]["id"], "direction": "in", "local_path": "input.dat", "remote_path": "/a/b", "recursive": False, "state": "pending"}
    assert items["out"] == {**common, "id": items["out"]["id"], "direction": "out", "local_path": "out/result.dat", "remote_path": "/c", "recursive": True, "state": "awaiting_job"}
    assert fresh.read(f"/transfers/{items['in']['id']}") == items["in"]
    expect(fresh.put(f"/apps/{app['id']}", {"transfers": {}}), 200)
    assert fresh.read(f"/transfers/{items['in']['id']}") == items["in"], "later changes of the app do not matter"


def test_each_item_belongs_to_its_own_job(fresh):
    app = fresh.app(fresh.site(), transfers=SLOTS)
    jobs = expect(fresh.post("/jobs/", [{"workdir": w, "app_id": app["id"], "transfers": {"input": {"location_alias": "lab", "path": f"/{w}"}}} for w in "bac"]), 201)
    for job in jobs:
        (item,) = fresh.page("/transfers/", job_id=job["id"])["results"]
        assert item["remote_path"] == f"/{job['workdir']}"


def test_a_transfer_item_is_updated_field_by_field(fresh):
    app = fresh.app(fresh.site(), transfers=SLOTS)
    fresh.job(app, transfers={"input": {"location_alias": "lab", "path": "/x"}})
    (item,) = fresh.page("/transfers/")["results"]
    change = {"state": "active", "task_id": "rsync:1", "transfer_info": {"bytes": 5, "deep": {"a": None}}}
    got = expect(fresh.put(f"/transfers/{item['id']}", {**change, "job_id": 1, "remote_path": "/other"}), 200)
    assert got == {**item, **change}
    assert expect(fresh.patch("/transfers/", [{"id": item["id"], "task_id": "a"}, {"id": item["id"], "task_id": "b"}]), 200) == [{**got, "task_id": "b"}]
    assert issues(fresh.put(f"/transfers/{item['id']}", {"state": None, "task_id": None, "transfer_info": None})) == {("body", f): NULL for f in ("state", "task_id", "transfer_info")}
    assert issues(fresh.put(f"/transfers/{item['id']}", {"state": "finished"})).keys() == {("body", "state")}
    body = expect(fresh.patch("/transfers/", [{"id": item["id"], "task_id": "z"}, {"id": ABSENT, "state": "done"}]), 400)
    assert isinstance(body["detail"], str) and fresh.read(f"/transfers/{item['id']}")["task_id"] == "b"
