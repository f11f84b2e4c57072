"""What a client written for the paper's system sends, byte for byte as its HTTP library builds it: forms, repeated keys, str() of
times, objects with all their fields, pages of 100,000. It knows nothing of ours, follows redirects, and compares what it gets."""
from datetime import datetime, timedelta, timezone
from enum import Enum

import pytest
import requests

from api import unique

PAGE = 100_000
RUNNABLE = {"PREPROCESSED", "RESTART_READY"}


class State(str, Enum):
    staged_in = "STAGED_IN"
    preprocessed = "PREPROCESSED"


class OldClient:
    """One session, form login, JSON by keyword arguments, filters by query parameters; any status from 400 is an exception."""

    def __init__(self, centre):
        self.root, self.http = centre.root.rstrip("/") + "/", requests.Session()
        self.http.verify, self.http.trust_env = centre.ca, False
        who = {"username": unique("old"), "password": "s3cret words"}
        self.call("POST", "auth/password/register", json=who)
        login = self.call("POST", "auth/password/login", data=who)
        assert set(login) >= {"access_token", "token_type", "expiration"}
        self.left = datetime.fromisoformat(login["expiration"]) - datetime.utcnow()  # raises if aware
        self.http.headers["Authorization"] = f"Bearer {login['access_token']}"

    def call(self, method, path, **kw):
        r = self.http.request(method, self.root + path, timeout=(6.2, 120), **kw)
        r.raise_for_status()
        return None if method == "DELETE" else r.json()

    def get(self, path, /, **filters):
        return self.call("GET", path, params=filters)

    def pages(self, path, /, ordering=None, limit=None, offset=None, **filters):
        """(count, rows) as a query of the old client fetches them."""
        page = PAGE if limit is None else min(limit, PAGE)
        query = {**filters, **({"ordering": ordering} if ordering else {}), "limit": page, "offset": offset or 0}
        got = self.get(path, **query)
        return got["count"], got["results"]

    def count(self, path, /, **filters):
        return self.get(path, **filters, limit=0, offset=0)["count"]

    def post(self, path, /, **fields):
        return self.call("POST", path, json=fields)

    def site(self, **fields):
        return self.post("sites/", **{"name": unique("site"), "path": "/projects/x", "globus_endpoint_id": None, "backfill_windows": {}, "queued_jobs": {},
                                      "optional_batch_job_params": {}, "allowed_projects": [], "allowed_queues": {}, "transfer_locations": {}, **fields})

    def app(self, site, **fields):
        return self.post("apps/", **{"site_id": site["id"], "name": unique("App"), "serialized_class": "txt", "source_code": "txt", "description": "",
                                     "parameters": {}, "transfers": {}, **fields})

    def new_job(self, app, workdir, **fields):
        """Every field of a job that is created, defaults and nulls as well."""
        return {"workdir": workdir, "tags": {}, "serialized_parameters": "gASVAQAAAAAAAAB9lC4=", "data": {}, "return_code": None, "num_nodes": 1,
                "ranks_per_node": 1, "threads_per_rank": 1, "threads_per_core": 1, "launch_params": {}, "gpus_per_rank": 0, "node_packing_count": 1,
                "wall_time_min": 0, "app_id": app["id"], "parent_ids": [], "transfers": {}, **fields}

    def jobs(self, app, n, **fields):
        return self.call("POST", "jobs/", json=[self.new_job(app, f"test/{i:05d}", **fields) for i in range(n)])

    def batch_job(self, site, **fields):
        return self.post("batch-jobs/", **{"num_nodes": 128, "wall_time_min": 30, "job_mode": "mpi", "optional_params": {}, "filter_tags": {"system": "H2O"},
                                           "partitions": None, "site_id": site["id"], "project": "datascience", "queue": "default", **fields})


@pytest.fixture
def old(api_centre):
    return OldClient(api_centre)


def test_it_finds_its_way_in(api_centre, old):
    methods = requests.get(api_centre.root + "/auth/how", verify=api_centre.ca, timeout=30).json()
    assert "LoginMethod.password" in methods and all(isinstance(m, str) for m in methods)
    assert timedelta(hours=47) < old.left <= timedelta(hours=48)
    with pytest.raises(requests.HTTPError, match="401"):
        old.call("POST", "auth/password/login", data={"username": "nobody at all", "password": "x"})
    assert old.get("sites/") == {"count": 0, "results": []}


def test_a_site_is_the_same_however_it_is_read(old):
    site = old.site(transfer_locations={"lab": "globus://123e4567-e89b-12d3-a456-426614174000"})
    changes = {"backfill_windows": {"default": [{"num_nodes": 31, "wall_time_min": 45}]}, "allowed_projects": ["a", "b"],
               "queued_jobs": {123: {"scheduler_id": 123, "state": "queued", "queue": "q", "num_nodes": 1, "wall_time_min": 3, "project": "p",
                                     "time_remaining_min": 3, "queued_time_min": 1}}}
    changed = old.call("PUT", f"sites/{site['id']}", json=changes)
    assert old.pages("sites/", id=site["id"]) == (1, [changed])
    assert changed["last_refresh"] > site["last_refresh"] and list(changed["queued_jobs"]) == ["123"]
    recently = datetime.utcnow() - timedelta(minutes=2)
    assert old.count("sites/", last_refresh_after=recently) == 1 == old.count("sites/", last_refresh_after=recently.replace(tzinfo=timezone.utc))
    assert old.count("sites/", last_refresh_after=datetime.utcnow() + timedelta(minutes=1)) == 0
    assert old.count("sites/", path="/projects") == 1 and old.count("sites/", name=site["name"][:-1]) == 0


def test_thousands_of_jobs_are_made_listed_changed_and_deleted(old):
    app = old.app(old.site())
    made = old.jobs(app, 5000, tags={"k": "v"})
    assert [j["workdir"] for j in made] == [f"test/{i:05d}" for i in range(5000)]
    ids = [j["id"] for j in made]
    assert old.jobs(app, 5000) and old.count("jobs/") == 10000
    count, rows = old.pages("jobs/")
    assert count == 10000 == len({r["id"] for r in rows}) and [r["id"] for r in rows[:5000]] == ids
    # ids are sent 500 at a time, in a URL
    assert sum(old.count("jobs/", id=ids[i:i + 500]) for i in range(0, 5000, 500)) == 5000
    assert old.call("PUT", "jobs/", json={"state": "PREPROCESSED"}, params={"id": ids[:500]}) == 500
    assert old.call("PATCH", "jobs/", json=[{"id": i, "state": "RUNNING", "state_data": {}} for i in ids]) == 5000
    with pytest.raises(requests.HTTPError, match="400"):
        old.call("PATCH", "jobs/", json=[{"id": i, "num_nodes": 2} for i in range(1, 5002)])
    # and all at once when it deletes
    old.call("DELETE", "jobs/", params={"id": ids[:4500]})
    assert old.count("jobs/", tags="k:v") == 500
    old.call("DELETE", "jobs/", params={})
    assert old.count("jobs/") == 0


def test_slices_orders_and_filters_of_jobs(old):
    site = old.site()
    app = old.app(site)
    jobs = old.call("POST", "jobs/", json=[old.new_job(app, f"test/{i}", tags={"foo": i, "bar": i * 2}) for i in range(8)])

    def places(**query):
        return [j["workdir"].rpartition("/")[2] for j in old.pages("jobs/", **query)[1]]

    assert places(ordering="workdir", limit=4, offset=0) == list("0123") and places(ordering="workdir", offset=5) == list("567")
    assert places(ordering="-workdir", limit=2, offset=5) == list("21") and places(limit=1, offset=7) == ["7"] and places(limit=1, offset=8) == []
    assert old.pages("jobs/", limit=2)[0] == 8
    assert places(tags="foo:1") == ["1"] and places(tags=["foo:2", "bar:3"]) == [] and places(tags=["foo:2", "bar:4"]) == ["2"]
    assert old.call("PUT", "jobs/", json={"state": State.preprocessed.value}, params={"tags": ["foo:3"]}) == 1
    assert places(state=State.preprocessed) == ["3"] == places(state=RUNNABLE) == places(state__ne=State.staged_in)
    assert len(places(state={"STAGED_IN", "PREPROCESSED"}, site_id=[site["id"]], app_id=app["id"], pending_file_cleanup=True, tags=None)) == 8
    assert places(workdir__contains="est/4") == ["4"] and places(id={jobs[5]["id"], jobs[6]["id"]}) == ["5", "6"]
    assert len(places(last_update_before=datetime.utcnow())) == 8 and places(last_update_after=datetime.now(timezone.utc)) == []
    (child,) = old.call("POST", "jobs/", json=[old.new_job(app, "test/c", parent_ids=[jobs[0]["id"], jobs[0]["id"]])])
    assert child["parent_ids"] == [jobs[0]["id"]] and child["state"] == "AWAITING_PARENTS"
    assert places(parent_id=jobs[0]["id"]) == ["c"] == places(parent_id=[jobs[0]["id"], 1])


def test_what_is_saved_comes_back_as_it_was(old):
    app = old.app(old.site())
    (job,) = old.jobs(app, 1)
    at = datetime.utcnow() + timedelta(minutes=1)
    change = {"state": "RUN_ERROR", "state_timestamp": at.isoformat(), "state_data": {"message": "OK: done!"}, "data": {"e": [1, 2.5, None, {"a": "ü"}]},
              "serialized_return_value": "x" * 512000, "serialized_exception": "e", "return_code": -9}
    assert old.call("PUT", f"jobs/{job['id']}", json=change) == 1
    (read,) = old.pages("jobs/", id=job["id"])[1]
    assert all(read[k] == v for k, v in change.items() if not k.startswith("state_"))
    assert read == old.get(f"jobs/{job['id']}") and read["serialized_parameters"] == job["serialized_parameters"]
    assert datetime.fromisoformat(read["last_update"]) > datetime.fromisoformat(job["last_update"]) and read["last_update"].endswith("+00:00")
    newest, first = old.get("events/", job_id=job["id"])["results"]
    assert (newest["from_state"], newest["to_state"], first["from_state"]) == ("STAGED_IN", "RUN_ERROR", "CREATED")
    assert datetime.fromisoformat(newest["timestamp"]) == at  # to the microsecond, and naive
    assert old.count("events/", data="message:OK: done!") == 1 == old.count("events/", timestamp_after=datetime.utcnow() + timedelta(seconds=30))


def test_batch_jobs_after_a_patch_equal_those_that_are_read(old):
    site = old.site()
    made = [old.batch_job(site, partitions=p) for p in (None, [{"job_mode": "mpi", "num_nodes": 1, "filter_tags": {}}, {"job_mode": "serial", "num_nodes": 127, "filter_tags": {}}])]
    start = datetime.now(timezone.utc)
    got = old.call("PATCH", "batch-jobs/", json=[{"id": b["id"], "state": "queued", "scheduler_id": 7 + i, "status_info": {"a": "b"}, "start_time": start.isoformat()}
                                                 for i, b in enumerate(made)])
    assert old.pages("batch-jobs/", site_id=site["id"]) == (2, got)
    assert old.pages("batch-jobs/", scheduler_id=8, site_id=site["id"], ordering="-start_time") == (1, got[1:])
    assert datetime.fromisoformat(got[0]["start_time"]) == start.replace(tzinfo=None)
    assert old.count("batch-jobs/", filter_tags="system:H2O", queue="default", state=["queued", "running"]) == 2
    assert old.call("PUT", f"batch-jobs/{made[0]['id']}", json={"scheduler_id": 31415, "status": "running"})["scheduler_id"] == 31415
    old.call("DELETE", f"batch-jobs/{made[0]['id']}")
    assert old.count("batch-jobs/") == 1


def test_transfers_move_a_job(old):
    site = old.site(transfer_locations={"laptop": "globus://123e4567-e89b-12d3-a456-426614174000"})
    slot = {"required": True, "local_path": "inp.dat", "description": "", "recursive": False}
    app = old.app(site, transfers={"i": {**slot, "direction": "in"}, "o": {**slot, "direction": "out", "required": False}})
    (job,) = old.jobs(app, 1, transfers={"i": {"location_alias": "laptop", "path": "/path/to/input.dat"}, "o": {"location_alias": "laptop", "path": "/o"}})
    assert job["state"] == "READY" and old.count("transfers/", job_id=job["id"], state={"pending", "awaiting_job"}) == 2
    (item,) = old.pages("transfers/", site_id=site["id"], state={"pending"})[1]
    assert (item["task_id"], item["transfer_info"], item["remote_path"]) == ("", {}, "/path/to/input.dat")
    got = old.call("PATCH", "transfers/", json=[{"id": item["id"], "state": "active", "task_id": "abc", "transfer_info": {"bandwidth": 1.5}}])
    assert got == old.pages("transfers/", id=item["id"])[1]
    old.call("PATCH", "transfers/", json=[{"id": item["id"], "state": "done"}])
    assert old.get(f"jobs/{job['id']}")["state"] == "STAGED_IN"
    assert old.call("PUT", f"jobs/{job['id']}", json={"state": "POSTPROCESSED"}) == 1 and old.count("transfers/", direction="out", state="pending") == 1


def test_a_session_leases_ticks_reports_and_ends(old):
    site = old.site()
    app, batch_job = old.app(site), old.batch_job(site)
    jobs = old.jobs(app, 5)
    old.call("PATCH", "jobs/", json=[{"id": j["id"], "state": "PREPROCESSED"} for j in jobs])
    before = datetime.utcnow()
    session = old.post("sessions/", site_id=site["id"], batch_job_id=batch_job["id"])
    assert before < datetime.fromisoformat(session["heartbeat"]) < datetime.utcnow()
    spec = {"max_num_jobs": 8, "max_wall_time_min": None, "max_nodes_per_job": None, "max_aggregate_nodes": None, "serial_only": False, "sort_by": None,
            "filter_tags": {}, "states": list(RUNNABLE), "app_ids": []}
    first = old.post(f"sessions/{session['id']}", **{**spec, "max_wall_time_min": 58.93, "max_aggregate_nodes": 2.5, "sort_by": "long_large_first"})
    rest = old.post(f"sessions/{session['id']}", **spec)
    assert (len(first), len(rest)) == (2, 3) and all(j["batch_job_id"] == batch_job["id"] for j in first + rest)
    assert old.call("PUT", f"sessions/{session['id']}", json={}) is None
    at = datetime.utcnow().isoformat()
    for state in ("RUNNING", "RUN_DONE"):  # as the status updater of a launcher does
        report = [{"id": j["id"], "state": state, "state_timestamp": at, "state_data": {"nodes": ["n1"]}, "return_code": 0} for j in jobs]
        assert old.call("PATCH", "jobs/", json=report) == 5
    assert old.count("events/", batch_job_id=batch_job["id"], to_state="RUN_DONE") == 5
    assert old.get("sessions/")["count"] == 1
    old.call("DELETE", f"sessions/{session['id']}")
    with pytest.raises(requests.HTTPError, match="404"):
        old.call("PUT", f"sessions/{session['id']}", json={})


@pytest.mark.parametrize("path", ["/jobs", "jobs/", "/events", "/apps", "batch-jobs", "/batch-jobs/", "/transfers", "/sessions", "/sites"])
def test_it_writes_its_paths_as_it_likes(old, path):
    assert old.get(path.lstrip("/"), ids=[1, 2], nonsense="") == {"count": 0, "results": []}


def test_its_connection_is_kept_through_every_kind_of_answer(old):
    app = old.app(old.site())
    (job,) = old.jobs(app, 1)
    old.call("DELETE", f"jobs/{job['id']}")
    with pytest.raises(requests.HTTPError, match="404"):
        old.get(f"jobs/{job['id']}")
    with pytest.raises(requests.HTTPError, match="422"):
        old.get("jobs/", limit=PAGE + 1)
    old.get("jobs/")
    pool = old.http.get_adapter(old.root).poolmanager.connection_from_url(old.root)
    assert pool.num_connections == 1, "one TCP and TLS connection for all of them"
