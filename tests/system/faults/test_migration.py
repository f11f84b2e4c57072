"""A database that programs of version 4 filled is migrated to the newest version, and everybody goes on: nothing is lost, leases,
tokens, cursors and repeated requests of then are good now.

version4/ holds what those programs wrote (data.sql), sealed with (seal.key) and told their clients (told.json); see make.py there."""
import asyncio
import json
import pathlib
import threading

import pytest
import requests
import websockets

from centre import ROOT, wait_for
from mesh import Mesh

FROM = 4
THEN = pathlib.Path(__file__).parent / "version4"
MIGRATIONS = sorted((ROOT / "common/db/migrations").glob("[0-9]*.sql"))
TABLES = """SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
            AND c.relname <> 'schema_version' GROUP BY c.relname"""


def rows(mesh, tables):
    return {table: [r[0] for r in mesh.query(f"SELECT (ROW({columns}))::text FROM {table} ORDER BY 1")] for table, columns in tables.items()}


def version_4(mesh):
    secrets = mesh.folder / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "seal.key").write_text((THEN / "seal.key").read_text())
    (secrets / "seal.key").chmod(0o600)
    for file in MIGRATIONS[:FROM]:
        mesh.query(file.read_text())
    mesh.query("CREATE TABLE schema_version (version int PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now())")
    for n, file in enumerate(MIGRATIONS[:FROM], 1):
        mesh.query("INSERT INTO schema_version (version, name) VALUES (%s, %s)", n, file.name)
    mesh.query((THEN / "data.sql").read_text())
    # what was young then is young now
    mesh.query("UPDATE sessions SET heartbeat = now()")
    mesh.query("UPDATE requests SET created = now()")
    mesh.query("UPDATE jobs SET not_before = now() + interval '1 hour' WHERE not_before IS NOT NULL")
    mesh.tables = dict(mesh.query(TABLES))
    mesh.before = rows(mesh, mesh.tables)


@pytest.fixture(scope="module")
def told():
    return json.loads((THEN / "told.json").read_text())


@pytest.fixture(scope="module")
def mesh(tmp_path_factory, pg, told):
    """Migrated and running; `lists` is what is answered at first."""
    with Mesh(tmp_path_factory.mktemp("version4"), pg, fill=version_4) as mesh:
        mesh.after = rows(mesh, mesh.tables)
        mesh.everything()
        mesh.lists = {name: {path: mesh.call(mesh.session(told[name], mesh.url), "GET", f"{path}?limit=1000{ordering(path)}", status=200).json()
                             for path in told["lists"][name]} for name in told["lists"]}
        yield mesh


def ordering(path):
    return "&ordering=timestamp" if path == "/events/" else ""


@pytest.fixture
def tenant(mesh, told):
    return mesh.session(told["tenant"], mesh.url)


def state(mesh, user, job):
    return mesh.call(user, "GET", f"/jobs/{job}", status=200).json()["state"]


def refresh(mesh, token):
    return requests.post(mesh.url + "/auth/token/refresh", json={"refresh_token": token}, timeout=40)


# ------------------------------------------------------------------ it is there

def test_the_data_of_then_leaves_no_table_empty(mesh):
    assert sorted(mesh.tables) == sorted(mesh.before)
    assert len(mesh.tables) > 20
    assert [table for table, found in mesh.before.items() if not found] == []


def test_every_row_of_every_table_is_there(mesh):
    assert mesh.query("SELECT max(version) FROM schema_version")[0][0] == len(MIGRATIONS) > FROM
    for table, found in mesh.before.items():
        more = [row for row in mesh.after[table] if row not in found]
        assert [row for row in mesh.after[table] if row in found] == found, table
        assert not more or table == "audit" and "schema 4 -> " in more[0], table  # who migrated is written down as well


def test_every_list_shows_what_it_showed(mesh, told):
    for name, lists in told["lists"].items():
        for path, then in lists.items():
            now = mesh.lists[name][path]
            assert now["count"] == then["count"], path
            for a, b in zip(then["results"], now["results"]):
                moved = {"heartbeat"} if path == "/sessions/" else set()
                assert {k: b.get(k, "gone") for k in a if k not in moved} == {k: v for k, v in a.items() if k not in moved}, path


# ------------------------------------------------------------------ tokens

def test_access_tokens_of_then_are_good(mesh, told, tenant):
    assert mesh.call(tenant, "GET", "/auth/password/me", status=200).json()["username"] == "tenant"
    for token, status in ((told["stranger"], 200), (told["gone"], 401), (told["ended"]["access_token"], 401), (told["login"]["access_token"], 200)):
        wait_for(lambda: mesh.call(mesh.session(token, mesh.url), "GET", "/auth/password/me").status_code == status, 10, f"{status} for a token")
    site = mesh.session(told["site_token"]["access_token"], mesh.url)
    assert [s["id"] for s in mesh.call(site, "GET", "/sites/", status=200).json()["results"]] == [told["site"]]
    reader = mesh.session(told["reader"]["access_token"], mesh.url)
    mesh.call(reader, "GET", "/jobs/?limit=1", status=200)
    mesh.call(reader, "DELETE", f"/jobs/{told['ready'][0]}", status=403)
    listed = {t["id"]: t for t in mesh.call(tenant, "GET", "/auth/tokens", status=200).json()}
    for then in told["tokens"]:
        assert {k: v for k, v in listed[then["id"]].items() if k in then and k != "last_used"} == {k: v for k, v in then.items() if k != "last_used"}


@pytest.mark.parametrize("name", ["site_token", "reader", "login"])
def test_refresh_tokens_of_then_are_exchanged_once(mesh, told, name):
    token = told[name]["refresh_token"]
    first = refresh(mesh, token)
    assert first.status_code == 200, first.text
    assert refresh(mesh, token).json()["refresh_token"] == first.json()["refresh_token"]
    second = refresh(mesh, first.json()["refresh_token"])
    assert second.status_code == 200
    mesh.call(mesh.session(second.json()["access_token"], mesh.url), "GET", "/sites/", status=200)


def test_a_password_of_then_logs_in(mesh):
    form = {"username": "tenant", "password": "tenant-secret-1"}
    assert requests.post(mesh.url + "/auth/password/login", data=form, timeout=40).status_code == 200
    assert requests.post(mesh.url + "/auth/password/login", data={**form, "password": "other"}, timeout=40).status_code == 401


# ------------------------------------------------------------------ requests

def test_a_request_of_then_that_comes_again_gets_its_answer(mesh, told, tenant):
    for key, then in told["keyed"].items():
        headers = {"Idempotency-Key": f"version-4-{key}"}
        r = mesh.call(tenant, "POST", "/jobs/", then["body"], 201, headers=headers)
        assert r.headers["idempotent-replayed"] == "true"
        for a, b in zip(then["answer"], r.json(), strict=True):
            assert {k: b.get(k, "gone") for k in a} == a
        mesh.call(tenant, "POST", "/jobs/", then["body"][:1] * 2, 422, headers=headers)
    assert mesh.query("SELECT count(*) FROM job_specs WHERE workdir LIKE 'large/%'")[0][0] == len(told["keyed"]["large"]["body"])


# ------------------------------------------------------------------ events

async def listen(mesh, told, job):
    """Events behind the cursor of then, until one of this job comes."""
    url, seen = mesh.url.replace("http", "ws", 1) + f"/events/stream?since={told['cursor']}", []
    async with websockets.connect(url, extra_headers={"Authorization": f"Bearer {told['tenant']}"}) as ws:
        while job not in [e["job_id"] for e in seen]:
            seen += json.loads(await asyncio.wait_for(ws.recv(), 20))["events"]
    return seen


def test_a_cursor_of_then_goes_on_without_gap_or_repeat(mesh, told, tenant):
    behind = told["behind"]
    page = mesh.call(tenant, "GET", f"/events/?since={told['cursor']}&limit=1000", status=200).json()
    assert [e["id"] for e in page["results"]][:len(behind)] == behind
    (job,) = mesh.call(tenant, "POST", "/jobs/", [{"app_id": told["app"], "workdir": "now"}], 201).json()
    seen = asyncio.run(listen(mesh, told, job["id"]))
    assert [e["id"] for e in seen][:len(behind)] == behind
    assert len({e["id"] for e in seen}) == len(seen)


# ------------------------------------------------------------------ leases

def test_a_lease_of_then_goes_on_and_a_silent_one_ends(mesh, told, tenant):
    held = {j["id"]: j["lease"] for j in told["held"]}
    ids, session = list(held), told["session"]
    running, cancelled = ids[5], ids[6]
    beat = lambda: mesh.call(tenant, "POST", f"/sessions/{session}/heartbeat", {"jobs": ids}, 200).json()
    said = beat()
    assert said["cancel"] == [cancelled] and running not in said["lost"]
    stop = threading.Event()

    def beats():
        while not stop.wait(0.5):
            beat()
    thread = threading.Thread(target=beats)
    thread.start()
    try:
        # its launcher reports; one that has lost the lease would not be heard
        patch = lambda job, status=200, **fields: mesh.call(tenant, "PATCH", "/jobs/", [{"id": job, **fields}], status)
        patch(running, 409, state="RUN_DONE", lease=held[running] + 1)
        patch(running, state="RUN_DONE", lease=held[running], return_code=0)
        assert [state(mesh, tenant, c) for c in told["children"]] == ["AWAITING_PARENTS", "AWAITING_PARENTS", "STAGED_IN"]
        patch(running, state="POSTPROCESSED")
        patch(running, state="JOB_FINISHED")
        assert [state(mesh, tenant, c) for c in told["children"]] == ["STAGED_IN"] * 3
        patch(cancelled, state="RUN_TIMEOUT", lease=held[cancelled])
        wait_for(lambda: state(mesh, tenant, cancelled) == "FAILED", 10, "a job whose cancellation was asked for then has FAILED")

        # the one that nobody hears of
        silent = [j["id"] for j in told["silent_held"]]
        assert [state(mesh, tenant, j) for j in silent] == ["RUNNING", "RUNNING", "PREPROCESSED"]
        (old,) = mesh.of("sessions")
        mesh.service("sessions", session_ttl="4s", sweep_period="200ms").ready()
        old.leave()
        wait_for(lambda: mesh.query("SELECT count(*) FROM jobs WHERE session_id = %s", told["silent"]) == [(0,)], 30, "its jobs are free")
        assert [state(mesh, tenant, j) for j in silent] == ["RUN_TIMEOUT", "RUN_TIMEOUT", "PREPROCESSED"]
        assert mesh.query("SELECT count(*) FROM jobs WHERE session_id = %s", session)[0][0] > 0, "the other lease has ended as well"

        # a job that waited for its next attempt
        retried = told["retried"]
        assert state(mesh, tenant, retried) == "RESTART_READY"
        mesh.query("UPDATE jobs SET not_before = now() WHERE id = %s", retried)
        wait_for(lambda: mesh.query("SELECT not_before FROM jobs WHERE id = %s", retried) == [(None,)], 30, "its time has come")
        got = mesh.call(tenant, "POST", f"/sessions/{session}", {"max_num_jobs": 2, "filter_tags": {}}, 200).json()
        assert [j["id"] for j in got][0] == retried and got[0]["lease"] == held[retried] + 1
        mesh.call(tenant, "DELETE", f"/sessions/{session}", None, 204)
    finally:
        stop.set()
        thread.join()


# ------------------------------------------------------------------ the rest of what clients do

def test_files_batch_jobs_and_sites_of_then_are_worked_on(mesh, told, tenant):
    mesh.call(tenant, "PATCH", "/transfers/", [{"id": told["active"], "state": "done"}], 200)
    assert state(mesh, tenant, told["files"][0]) == "STAGED_IN"
    mesh.call(tenant, "PUT", f"/batch-jobs/{told['batch']}", {"state": "finished"}, 200)
    mesh.call(tenant, "DELETE", f"/jobs/{told['files'][3]}", None, 204)
    second = mesh.lists["tenant"]["/apps/"]["results"]
    (site,) = {a["site_id"] for a in second if a["id"] == told["second"]}
    mesh.call(tenant, "DELETE", f"/sites/{site}", None, 204)
    assert mesh.query("SELECT count(*) FROM job_specs WHERE app_id = %s", told["second"]) == [(0,)]
    (job,) = mesh.call(tenant, "POST", "/jobs/", [{"app_id": told["app"], "workdir": "new"}], 201).json()
    assert job["id"] > max(j["id"] for j in mesh.lists["tenant"]["/jobs/"]["results"]), "an id was given twice"


def test_events_of_then_can_be_forgotten(mesh, told):
    """Partitions and marks know of the rows that were there before them."""
    assert mesh.query("SELECT low FROM event_low") == [(0,)]
    last = mesh.query("SELECT max(id) FROM events")[0][0]
    assert mesh.query("SELECT count(*) FROM event_marks WHERE id >= %s AND id <= %s", max(told["behind"]), last)[0][0] > 0
