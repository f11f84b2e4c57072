"""The contract between client and centre: transport, slashes, methods, error bodies and their order."""
import json

import pytest

from api import ABSENT, Wire, compact, documented_error, expect, issues, unique

LISTS = ["/sites/", "/apps/", "/jobs/", "/events/", "/batch-jobs/", "/transfers/", "/sessions/"]
MISSING = ("value_error.missing", "field required")
NOT_DICT = ("type_error.dict", "value is not a valid dict")
NOT_LIST = ("type_error.list", "value is not a valid list")


# ------------------------------------------------------------------ 1.1 transport

@pytest.mark.parametrize("path", LISTS)
def test_lists_are_served_with_and_without_the_slash(tenant, path):
    assert expect(tenant.get(path), 200).keys() == {"count", "results"}
    r = tenant.get(path.rstrip("/"))
    assert r.status_code in (200, 307)
    assert r.status_code != 307 or r.headers["location"] == tenant.root + path


@pytest.mark.parametrize("method, path", [("POST", "/sites"), ("POST", "/jobs"), ("PATCH", "/batch-jobs"), ("PATCH", "/transfers"), ("PUT", "/jobs")])
def test_the_other_spelling_keeps_method_and_body(tenant, method, path):
    body = {"name": unique("slash"), "path": "/x"} if path == "/sites" else {} if method == "PUT" else []
    r = tenant.http.request(method, tenant.root + path, json=body, timeout=30)
    assert r.status_code in (200, 201), r.text


def test_details_are_served_with_and_without_the_slash(tenant, site):
    assert expect(tenant.get(f"/sites/{site['id']}"), 200) == expect(tenant.get(f"/sites/{site['id']}/"), 200)


@pytest.mark.parametrize("content_type", ["application/json", None, "application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])
def test_a_json_body_has_a_json_type_or_none(tenant, content_type):
    name = unique("type")
    r = tenant.raw("POST", "/sites/", compact({"name": name, "path": "/x"}).encode(), content_type)
    assert expect(r, 201)["name"] == name


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "application/jsonx", "json"])
def test_any_other_type_is_no_dict(tenant, content_type):
    r = tenant.raw("POST", "/sites/", compact({"name": "x", "path": "/x"}).encode(), content_type)
    assert issues(r) == {("body",): NOT_DICT}


def test_answers_are_compact_json_and_never_cached(tenant, site):
    r = tenant.get(f"/sites/{site['id']}")
    assert r.headers["content-type"] == "application/json" and r.headers["cache-control"] == "no-store"
    assert b"\n" not in r.content and b'  ' not in r.content  # (jsonb columns keep PostgreSQL's space behind a colon)
    name = "é中\U0001F332\"\\\n\t"
    r = tenant.post("/sites/", {"name": name, "path": "/ü"})
    assert expect(r, 201)["name"] == name and expect(tenant.get(f"/sites/{r.json()['id']}"), 200)["path"] == "/ü"


def test_unknown_keys_are_ignored_at_every_level(tenant):
    body = {"name": unique("keys"), "path": "/x", "extra": [{"deep": [None]}], "owner_id": 1, "id": 7, "allowed_queues": {"q": {
        "max_nodes": 1, "max_walltime": 2, "max_queued_jobs": 3, "colour": "red"}}}
    made = expect(tenant.post("/sites/", body), 201)
    assert made["allowed_queues"] == {"q": {"max_nodes": 1, "max_walltime": 2, "max_queued_jobs": 3}} and "extra" not in made


def test_unknown_query_keys_are_ignored(tenant, site):
    assert tenant.ids("/sites/", ids="999999", nonsense="") == tenant.ids("/sites/")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_is_compared_without_case(tenant, scheme):
    expect(tenant.anonymous("GET", "/sites/", token=f"{scheme} {tenant.token}"), 200)


@pytest.mark.parametrize("path", [*LISTS, "/sites/1", "/jobs/1", "/jobs/cancel", "/sessions/1", "/auth/how", "/auth/password/login", "/openapi.json", "/"])
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_head_and_options_are_405_with_allow(tenant, method, path):
    r = tenant.call(method, path)
    assert r.status_code == 405 and r.headers["allow"]
    assert method not in r.headers["allow"]
    assert r.content == b"" if method == "HEAD" else r.json() == {"detail": "Method Not Allowed"}


@pytest.mark.parametrize("method, path, allow", [
    ("POST", "/events/", {"GET"}), ("PUT", "/events/", {"GET"}), ("POST", "/transfers/", {"GET", "PATCH"}), ("DELETE", "/transfers/1", {"GET", "PUT"}),
    ("GET", "/sessions/1", {"POST", "PUT", "DELETE"}), ("DELETE", "/sites/", {"GET", "POST"}), ("PATCH", "/sites/1", {"GET", "PUT", "DELETE"}),
    ("PUT", "/batch-jobs/", {"GET", "POST", "PATCH"}), ("POST", "/jobs/1", {"GET", "PUT", "DELETE"}), ("BREW", "/jobs/", {"GET", "POST", "PATCH", "PUT", "DELETE"})])
def test_a_wrong_method_is_405_with_those_that_are_right(tenant, method, path, allow):
    r = tenant.call(method, path)
    assert expect(r, 405) == {"detail": "Method Not Allowed"}
    assert set(r.headers["allow"].split(", ")) == allow


def test_500_repeated_ids_and_many_more_fit_into_a_line(tenant, site):
    ids = [("id", str(i)) for i in range(ABSENT, ABSENT + 500)] + [("id", str(site["id"]))]
    assert tenant.ids("/sites/", *ids) == [site["id"]]
    ids = [("id", str(i)) for i in range(ABSENT, ABSENT + 5000)] + [("id", str(site["id"]))]  # 75 kB
    assert tenant.ids("/sites/", *ids) == [site["id"]]


def test_put_takes_500_repeated_ids(tenant, app):
    job = tenant.job(app)
    ids = [("id", str(i)) for i in range(ABSENT, ABSENT + 499)] + [("id", str(job["id"]))]
    expect(tenant.put("/jobs/", {"num_nodes": 3}, params=ids), 200, 1)
    assert tenant.read(f"/jobs/{job['id']}")["num_nodes"] == 3


def test_a_delete_line_may_have_a_mebibyte(tenant, app):
    jobs = tenant.jobs(app, 1) + tenant.jobs(app, 1)
    line = "/jobs/?" + "&".join(f"id={ABSENT + i}" for i in range(74000)) + f"&id={jobs[0]['id']}"
    assert 1_000_000 < len(line) < 1 << 20
    expect(tenant.delete(line), 204)
    expect(tenant.get(f"/jobs/{jobs[0]['id']}"), 404)
    expect(tenant.get(f"/jobs/{jobs[1]['id']}"), 200)


def test_a_longer_line_is_414(tenant):
    r = tenant.delete("/jobs/?" + "&".join(f"id={ABSENT + i}" for i in range(90000)))
    assert r.status_code == 414
    documented_error(r)


def test_openapi_and_docs_need_no_token_and_fetch_nothing(tenant):
    r = tenant.anonymous("GET", "/openapi.json")
    assert expect(r, 200)["openapi"].startswith("3.")
    r = tenant.anonymous("GET", "/docs")
    assert r.status_code == 200 and r.headers["content-type"].startswith("text/html")
    assert "//" not in r.text.replace("https://www.w3.org", "")


def test_the_root_gives_some_answer(tenant):
    assert tenant.anonymous("GET", "/").status_code == 200


def test_no_stray_bytes_follow_a_204(tenant, app):
    wire = Wire(tenant)
    for _ in range(3):
        job = tenant.job(app)
        wire.send("DELETE", f"/jobs/{job['id']}")
        assert wire.answer("DELETE") == (204, b"")
    wire.send("GET", "/auth/how")
    assert wire.answer()[0] == 200


def test_the_heartbeat_is_four_bytes(tenant, site):
    session = tenant.session(site)
    r = tenant.put(f"/sessions/{session['id']}")
    assert r.status_code == 200 and r.content == b"null"
    for body in (b"", b"{}", b"[1]", b"anything"):
        r = tenant.raw("PUT", f"/sessions/{session['id']}", body)
        assert (r.status_code, r.content) == (200, b"null"), body
    expect(tenant.delete(f"/sessions/{session['id']}"), 204)


# ------------------------------------------------------------------ 2 errors

def test_no_token_is_not_authenticated(tenant):
    for token in (None, "", "Basic YTpi", tenant.token, f"Token {tenant.token}"):
        r = tenant.anonymous("GET", "/jobs/", token=token)
        assert expect(r, 401) == {"detail": "Not authenticated"} and r.headers["www-authenticate"] == "Bearer", token


def test_a_bad_token_cannot_be_validated(tenant):
    head, claims, signature = tenant.token.split(".")
    none = "eyJhbGciOiJub25lIn0"
    for token in ("x", "a.b.c", f"{head}.{claims}.", f"{head}.{claims}.{'A' * len(signature)}", f"{none}.{claims}.", f"{head}.{claims[:-2]}.{signature}", "x" * 5000):
        r = tenant.anonymous("GET", "/jobs/", token=f"Bearer {token}")
        assert expect(r, 401) == {"detail": "Could not validate credentials"} and r.headers["www-authenticate"] == "Bearer", token


@pytest.mark.parametrize("method, path", [("GET", "/sites/{}"), ("PUT", "/sites/{}"), ("DELETE", "/sites/{}"), ("GET", "/apps/{}"), ("PUT", "/apps/{}"),
                                          ("DELETE", "/apps/{}"), ("GET", "/jobs/{}"), ("DELETE", "/jobs/{}"), ("GET", "/batch-jobs/{}"),
                                          ("PUT", "/batch-jobs/{}"), ("DELETE", "/batch-jobs/{}"), ("GET", "/transfers/{}"), ("PUT", "/transfers/{}"),
                                          ("PUT", "/sessions/{}"), ("DELETE", "/sessions/{}"), ("GET", "/sites/{}/backlog")])
def test_an_absent_row_is_404_with_error(tenant, method, path):
    r = tenant.call(method, path.format(ABSENT), json={} if method == "PUT" else None)
    body = expect(r, 404)
    assert body["error"] == "Not found" and "detail" not in body


def test_acquire_and_apps_of_an_absent_row_are_404_with_error(tenant):
    assert expect(tenant.post(f"/sessions/{ABSENT}", {"max_num_jobs": 1, "filter_tags": {}}), 404)["error"] == "Not found"
    app = {"site_id": ABSENT, "name": "A", "serialized_class": "", "source_code": ""}
    assert expect(tenant.post("/apps/", app), 404)["error"] == "Not found"


def test_an_app_cannot_move_to_an_absent_site(tenant, app):
    assert expect(tenant.put(f"/apps/{app['id']}", {"site_id": ABSENT}), 404)["error"] == "Not found"
    assert tenant.read(f"/apps/{app['id']}") == app


@pytest.mark.parametrize("path", ["/nothing", "/sites/1/2", "/users/me", "/jobs//1", "/site", "/Sites/", "/sites/1/backlog/x"])
def test_an_unknown_route_is_404_with_detail(tenant, path):
    assert expect(tenant.get(path), 404) == {"detail": "Not Found"}
    assert expect(tenant.anonymous("GET", path), 404) == {"detail": "Not Found"}


def test_put_of_an_absent_job_is_400(tenant):
    assert set(expect(tenant.put(f"/jobs/{ABSENT}", {}), 400)) >= {"detail"}


def test_bulk_calls_name_each_bad_item(tenant, app):
    job = tenant.job(app)
    body = expect(tenant.patch("/jobs/", [{"id": job["id"], "num_nodes": 9}, {"id": ABSENT}, {"id": ABSENT + 1}]), 400)
    assert isinstance(body["detail"], str)
    assert [(i["index"], i["id"]) for i in body["items"]] == [(1, ABSENT), (2, ABSENT + 1)]
    assert tenant.read(f"/jobs/{job['id']}")["num_nodes"] == 1
    body = expect(tenant.post("/jobs/", [{"workdir": "a", "app_id": ABSENT}, {"workdir": "b", "app_id": app["id"]}, {"workdir": "c", "app_id": ABSENT}]), 404)
    assert isinstance(body["detail"], str) and [i["index"] for i in body["items"]] == [0, 2]
    body = expect(tenant.post("/jobs/", [{"workdir": "a", "app_id": app["id"], "parent_ids": [job["id"], ABSENT]}]), 404)
    assert isinstance(body["detail"], str) and [i["index"] for i in body["items"]] == [0]
    assert str(ABSENT) in body["items"][0]["reason"]
    for path in ("/batch-jobs/", "/transfers/"):
        body = expect(tenant.patch(path, [{"id": ABSENT + 1}, {"id": ABSENT}]), 400)
        assert {(i["index"], i["id"]) for i in body["items"]} == {(0, ABSENT + 1), (1, ABSENT)}, path
    found = issues(tenant.post("/jobs/", [{"workdir": f"w{i}", "app_id": "x"} for i in range(5000)]))
    assert list(found) == [("body", i, "app_id") for i in range(5000)]


def test_broken_json_is_422_even_without_a_token(tenant):
    for token in (None, "Bearer x", f"Bearer {tenant.token}"):
        r = tenant.anonymous("POST", "/sites/", token=token, data=b'{"name": "x",', headers={"content-type": "application/json"})
        (entry,) = documented_error(r)["detail"]
        assert r.status_code == 422 and entry["type"] == "value_error.jsondecode" and entry["loc"] == ["body", 13]
        assert set(entry["ctx"]) == {"msg", "doc", "pos", "lineno", "colno"} and entry["ctx"]["pos"] == 13
        assert (entry["ctx"]["lineno"], entry["ctx"]["colno"]) == (1, 14)


def test_401_comes_before_validation_and_validation_before_404(tenant):
    assert expect(tenant.anonymous("POST", "/sites/", json={}), 401) == {"detail": "Not authenticated"}
    assert expect(tenant.anonymous("GET", "/jobs/?limit=x"), 401) == {"detail": "Not authenticated"}
    assert issues(tenant.put(f"/sites/{ABSENT}", {"name": []})).keys() == {("body", "name")}


def test_errors_of_path_query_and_body_come_together_in_field_order(tenant):
    r = tenant.put("/jobs/", {"num_nodes": "x", "workdir": "/abs", "return_code": []}, params={"limit": "x", "id": ["1", "y"], "state": "nope"})
    assert list(issues(r)) == [("query", "limit"), ("query", "id", 1), ("query", "state", 0), ("body", "workdir"), ("body", "return_code"), ("body", "num_nodes")]
    assert issues(tenant.put("/sites/abc", {"name": None})) == {
        ("path", "site_id"): ("type_error.integer", "value is not a valid integer"), ("body", "name"): ("type_error.none.not_allowed", "none is not an allowed value")}


@pytest.mark.parametrize("path, name", [("/sites/x", "site_id"), ("/apps/x", "app_id"), ("/jobs/x", "job_id"), ("/batch-jobs/x", "batch_job_id"), ("/transfers/x", "transfer_id")])
def test_a_path_parameter_that_is_no_number_is_named(tenant, path, name):
    assert issues(tenant.get(path)) == {("path", name): ("type_error.integer", "value is not a valid integer")}


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"3", b'"x"', b"true"])
def test_a_body_of_the_wrong_form_is_told_at_body(tenant, data):
    got = issues(tenant.raw("POST", "/sites/", data))
    assert got == {("body",): MISSING if data in (b"", b"null") else NOT_DICT}
    if data != b"[]":
        got = issues(tenant.raw("POST", "/jobs/", data))
        assert got == {("body",): MISSING if data in (b"", b"null") else NOT_LIST}


def test_items_of_a_list_are_numbered(tenant, app):
    r = tenant.post("/jobs/", [{"workdir": "a", "app_id": app["id"]}, {"workdir": "b"}, 3, {"workdir": "c", "app_id": app["id"], "num_nodes": None}])
    assert issues(r) == {("body", 1, "app_id"): MISSING, ("body", 2): NOT_DICT, ("body", 3, "num_nodes"): ("type_error.none.not_allowed", "none is not an allowed value")}
    assert issues(tenant.patch("/jobs/", [{"state": "NOPE"}])).keys() == {("body", 0, "id"), ("body", 0, "state")}


def test_nested_fields_have_their_whole_path(tenant, site):
    app = {"site_id": site["id"], "name": "A", "serialized_class": "", "source_code": "", "parameters": {"a": {"required": True, "default": []}}}
    assert list(issues(tenant.post("/apps/", app))) == [("body", "parameters", "a", "default")]


ENUM = "value is not a valid enumeration member; permitted: 'mpi', 'serial'"


@pytest.mark.parametrize("method, path, body, loc, kind, msg, ctx", [
    ("POST", "/sites/", {"path": "/x"}, ["body", "name"], "value_error.missing", "field required", None),
    ("POST", "/sites/", {"name": None, "path": "/x"}, ["body", "name"], "type_error.none.not_allowed", "none is not an allowed value", None),
    ("POST", "/sites/", {"name": {}, "path": "/x"}, ["body", "name"], "type_error.str", "str type expected", None),
    ("POST", "/sites/", {"name": "x", "path": 7}, ["body", "path"], "type_error.path", "value is not a valid path", None),
    ("POST", "/sites/", {"name": "x", "path": "/x", "globus_endpoint_id": "zz"}, ["body", "globus_endpoint_id"], "type_error.uuid", "value is not a valid uuid", None),
    ("POST", "/sites/", {"name": "x", "path": "/x", "allowed_projects": {}}, ["body", "allowed_projects"], "type_error.list", "value is not a valid list", None),
    ("POST", "/sites/", {"name": "x", "path": "/x", "transfer_locations": {"a": "nohost"}}, ["body", "transfer_locations", "a"], "value_error.url.scheme", "invalid or missing URL scheme", None),
    ("POST", "/sites/", {"name": "x", "path": "/x", "transfer_locations": {"a": "rsync:///p"}}, ["body", "transfer_locations", "a"], "value_error.url.host", "URL host invalid", None),
    ("POST", "/batch-jobs/", {"site_id": 1, "project": "p", "queue": "q", "num_nodes": "x", "wall_time_min": 1, "job_mode": "mpi"}, ["body", "num_nodes"], "type_error.integer", "value is not a valid integer", None),
    ("POST", "/batch-jobs/", {"site_id": 1, "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 1, "job_mode": "Mpi"}, ["body", "job_mode"], "type_error.enum", ENUM, {"enum_values": ["mpi", "serial"]}),
    ("PUT", "/jobs/1", {"gpus_per_rank": "x"}, ["body", "gpus_per_rank"], "type_error.float", "value is not a valid float", None),
    ("PUT", "/jobs/1", {"pending_file_cleanup": "maybe"}, ["body", "pending_file_cleanup"], "type_error.bool", "value could not be parsed to a boolean", None),
    ("PUT", "/jobs/1", {"tags": []}, ["body", "tags"], "type_error.dict", "value is not a valid dict", None),
    ("PUT", "/jobs/1", {"state_timestamp": "yesterday"}, ["body", "state_timestamp"], "value_error.datetime", "invalid datetime format", None),
    ("GET", "/jobs/?limit=100001", None, ["query", "limit"], "value_error.number.not_le", "ensure this value is less than or equal to 100000", {"limit_value": 100000}),
    ("GET", "/jobs/?offset=-1", None, ["query", "offset"], "value_error.number.not_ge", "ensure this value is greater than or equal to 0", {"limit_value": 0})])
def test_each_kind_of_validation_error_has_its_type_text_and_context(tenant, method, path, body, loc, kind, msg, ctx):
    r = tenant.call(method, path, json=body)
    assert r.status_code == 422
    entry = {"loc": loc, "msg": msg, "type": kind, **({"ctx": ctx} if ctx else {})}
    assert r.json() == {"detail": [entry]}


def test_a_set_that_is_none_says_so(tenant, app):
    r = tenant.post("/jobs/", [{"workdir": "w", "app_id": app["id"], "parent_ids": 3}])
    assert issues(r) == {("body", 0, "parent_ids"): ("type_error.set", "value is not a valid set")}


def test_every_answer_has_a_request_id_of_its_own(tenant):
    ids = [tenant.get(p).headers["x-request-id"] for p in ("/sites/", "/sites/", "/nothing", f"/jobs/{ABSENT}", "/jobs/?limit=x", "/auth/how")]
    assert len(set(ids)) == len(ids)


# ------------------------------------------------------------------ exactly once

def test_an_idempotency_key_makes_a_repeat_harmless(tenant, app):
    key = {"Idempotency-Key": unique("key")}
    body = [{"workdir": "once", "app_id": app["id"]}]
    first = tenant.post("/jobs/", body, headers=key)
    again = tenant.post("/jobs/", body, headers=key)
    assert [j["id"] for j in expect(first, 201)] == [j["id"] for j in expect(again, 201)]
    assert "idempotent-replayed" not in first.headers and again.headers["idempotent-replayed"] == "true"
    assert len(tenant.ids("/jobs/", workdir__contains="once")) == 1
    assert tenant.post("/jobs/", [{"workdir": "other", "app_id": app["id"]}], headers=key).status_code == 422
    documented_error(tenant.post("/sites/", {"name": "x", "path": "/x"}, headers=key))


@pytest.mark.parametrize("key", ["x" * 256, "a b", "\x7f"])
def test_a_bad_idempotency_key_is_400(tenant, key):
    r = tenant.post("/sites/", {"name": unique("k"), "path": "/x"}, headers={"Idempotency-Key": key})
    assert r.status_code == 400
    documented_error(r)


# ------------------------------------------------------------------ requests that two parsers could read in two ways

DOUBTFUL = [
    b"GET /sites/ HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    b"GET /sites/ HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
    b"GET /sites/ HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /sites/ HTTP/1.1\r\nhost : x\r\n\r\n", b"GET /sites/ HTTP/1.1\r\nhost: x\r\n folded: y\r\n\r\n",
    b"GET /sites/\0 HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /sites/ HTTP/1.1\r\nhost: x\ny: z\r\n\r\n", b"GET  /sites/ HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET /sites/ HTTP/9.9\r\n\r\n", b"GET /sites/ HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    b"GET /sites/ HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n", b"GET /sites/?a=" + b"b" * 70000 + b" HTTP/1.1\r\nx: " + b"y" * 70000 + b"\r\n\r\n"]


def test_doubtful_requests_are_refused_and_the_connection_ends(tenant):
    wires = [Wire(tenant) for _ in DOUBTFUL]
    for wire, head in zip(wires, DOUBTFUL):
        wire.sock.sendall(head)
    for wire, head in zip(wires, DOUBTFUL):
        got = b""
        while piece := wire.sock.recv(65536):
            got += piece
        status, body = int(got.split(b" ")[1]), got.partition(b"\r\n\r\n")[2]
        assert status in (400, 411, 413, 431, 505) and isinstance(json.loads(body)["detail"], str), (head[:200], got)


def test_requests_in_one_segment_are_answered_in_their_order(tenant):
    wire = Wire(tenant)
    line = "GET /auth/how HTTP/1.1\r\nhost: x\r\n\r\nGET /nothing HTTP/1.1\r\nhost: x\r\n\r\n"
    wire.sock.sendall(line.encode())
    assert wire.answer()[0] == 200 and wire.answer()[0] == 404


# ------------------------------------------------------------------ what occurs twice

def test_of_repeated_keys_and_values_the_last_counts(tenant):
    name = unique("last")
    r = tenant.raw("POST", "/sites/", f'{{"name":"x","path":"/x","name":"{name}"}}'.encode())
    assert expect(r, 201)["name"] == name
    page = tenant.page("/sites/")
    assert expect(tenant.get("/sites/?limit=0&limit=1"), 200) == {"count": page["count"], "results": page["results"][:1]}
