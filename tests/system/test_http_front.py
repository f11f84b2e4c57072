"""The gateway's HTTP front against a real gateway process: every trap of a REST API, one line each, and more.

Behind it are echo replicas (tests/lib/echo_replica.c), so nothing here needs a database.
"""
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

import pytest
import requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from centre import wait_for  # noqa: E402
from front import ADMIN, READ, SITE, USER, Front  # noqa: E402


@pytest.fixture(scope="module", params=["plain", "tls"])
def front(request, tmp_path_factory):
    """Once plain, once as in production: TLS in front, CURVE behind."""
    secure = request.param == "tls"
    with Front(tmp_path_factory.mktemp(request.param), tls=secure, curve=secure) as f:
        yield f


@pytest.fixture(autouse=True)
def no_scripts_left(request):
    yield
    if "front" in request.fixturenames:
        f = request.getfixturevalue("front")
        for path in f.folder.iterdir():
            if "." in path.name and path.name not in ("token.key",) or path.name == "rows":
                path.unlink()
        assert f.gateway.poll() is None, f.gateway_log()


def body_request(front, line, body, *lines):
    return front.head(line, "Content-Type: application/json", f"Content-Length: {len(body)}", *lines) + body


# ---- long lines and heads

def test_five_hundred_ids_arrive(front):
    ids = list(range(1, 501))
    got = front.get("/jobs/", params={"id": ids})
    assert got.status_code == 200 and got.json()["count"] == 3


def test_a_delete_line_of_nearly_a_mebibyte_arrives_whole(front):
    with front.raw() as raw:
        ids = "&".join(f"id={i}" for i in range(1, 99_001))
        assert len(ids) > 850_000
        raw.send(front.head(f"DELETE /jobs/?{ids} HTTP/1.1"))
        assert raw.answer().status == 204
        raw.send(front.head())  # and the connection goes on
        assert raw.answer().json()["request"]["id"] == 5


def test_one_argument_of_seventy_thousand_bytes_is_whole(front):
    got = front.call("PUT", "/jobs/", params={"workdir__contains": "x" * 70_000}, json={"num_nodes": 1})
    assert got.status_code in (200, 422)  # too long for the field, perhaps; never lost
    if got.status_code == 422:
        assert got.json()["detail"][0]["loc"] == ["query", "workdir__contains"]
    else:
        assert got.json()["request"]["q"]["workdir__contains"] == "x" * 70_000


def test_a_line_over_a_mebibyte_is_414(front):
    with front.raw() as raw:
        raw.send(b"GET /jobs/?" + b"x" * 1_700_000 + b" HTTP/1.1\r\n\r\n")
        got = raw.answer()
        assert got.status == 414 and "detail" in got.json() and got.headers["connection"] == "close"


def test_headers_over_the_limit_are_431(front):
    with front.raw() as raw:
        raw.send(front.head("GET /jobs/5 HTTP/1.1", "X-Big: " + "x" * 70_000))
        assert raw.answer().status == 431


# ---- bodies

@pytest.mark.parametrize("method,path,status", [
    ("GET", "/jobs/5", 200), ("POST", "/sites/", 201), ("PUT", "/jobs/5", 200), ("PATCH", "/jobs/", 200),
    ("DELETE", "/jobs/5", 204)])
def test_a_body_is_read_whatever_the_method(front, method, path, status):
    body = {"POST": b'{"name":"a","path":"/a"}', "PUT": b'{"num_nodes":2}', "PATCH": b'[{"id":1}]'}.get(method, b"ignored")
    with front.raw() as raw:
        raw.send(body_request(front, f"{method} {path} HTTP/1.1", body) + front.head())
        assert raw.answer().status == status
        assert raw.answer().json()["verb"] == "job.get"


def test_a_body_over_the_routes_limit_is_413_before_it_is_sent(front):
    with front.raw() as raw:
        raw.send(front.head("POST /sites/ HTTP/1.1", "Content-Length: 1048577"))
        got = raw.answer()
        assert got.status == 413 and got.headers["connection"] == "close"


def test_the_413_reaches_a_client_that_is_still_sending(front):
    body = b"x" * 3_000_000
    got = front.call("POST", "/sites/", data=body, headers={"Content-Type": "application/json"})
    assert got.status_code == 413


def test_a_chunked_request_is_411(front):
    with front.raw() as raw:
        raw.send(front.head("POST /sites/ HTTP/1.1", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n")
        assert raw.answer().status == 411
        assert raw.at_end()


def test_the_body_is_asked_for_with_100_continue(front):
    body = b'{"name":"a","path":"/a"}'
    with front.raw() as raw:
        raw.send(front.head("POST /sites/ HTTP/1.1", "Expect: 100-continue", f"Content-Length: {len(body)}"))
        assert raw.answer().status == 100
        raw.send(body)
        assert raw.answer().status == 201


@pytest.mark.parametrize("lines,status", [
    (["Authorization: Bearer x", "Content-Length: 10"], 401),
    (["Authorization: Bearer x", "Content-Length: 99999999"], 413)])
def test_no_body_is_asked_for_that_would_be_refused(front, lines, status):
    with front.raw() as raw:
        raw.send("\r\n".join(["POST /sites/ HTTP/1.1", "Host: x", "Expect: 100-continue", *lines, "", ""]).encode())
        got = raw.answer()
        assert got.status == status
        assert raw.at_end()


@pytest.mark.parametrize("size", [100, 20_000, 400_000, 3_000_000])
def test_bodies_of_any_size_come_through_unchanged(front, size):
    jobs = [{"workdir": f"run/{i}", "app_id": 1, "serialized_parameters": "p" * 400} for i in range(max(1, size // 450))]
    got = front.call("POST", "/jobs/", json=jobs)
    assert got.status_code == 201
    sent = got.json()["request"]["b"]
    assert [j["workdir"] for j in sent] == [j["workdir"] for j in jobs]
    assert all(j["serialized_parameters"] == "p" * 400 for j in sent)


# ---- what could be read in two ways

@pytest.mark.parametrize("data", [
    b"POST /sites/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /sites/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n",
    b"GET / HTTP/1.1\nHost: x\n\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\r\n\r\n",
])
def test_what_two_parsers_could_read_in_two_ways_is_400_and_closed(front, data):
    with front.raw() as raw:
        raw.send(data + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        got = raw.answer()
        assert got.status == 400 and got.headers["connection"] == "close" and "detail" in got.json()
        assert raw.at_end()  # and what stood behind it was not served


# ---- pipelining, pieces

def test_ten_pipelined_gets_get_ten_answers_in_order(front):
    with front.raw() as raw:
        raw.send(b"".join(front.head(f"GET /jobs/{i} HTTP/1.1") for i in range(1, 11)))
        assert [raw.answer().json()["request"]["id"] for _ in range(10)] == list(range(1, 11))


def test_ten_pipelined_posts_get_ten_answers_in_order(front):
    with front.raw() as raw:
        raw.send(b"".join(body_request(front, "POST /sites/ HTTP/1.1", json.dumps({"name": f"s{i}", "path": "/a"}).encode())
                          for i in range(10)))
        assert [raw.answer().json()["request"]["b"]["name"] for _ in range(10)] == [f"s{i}" for i in range(10)]


def test_two_posts_in_one_segment_are_two_requests(front):
    two = b"".join(body_request(front, f"PUT /jobs/{i} HTTP/1.1", b'{"num_nodes":%d}' % i) for i in (1, 2))
    with front.raw() as raw:
        raw.send(two)
        for i in (1, 2):
            assert raw.answer().json()["request"] == {"id": i, "b": {"num_nodes": i}}


def test_large_and_small_requests_in_one_pipeline_keep_their_order(front):
    big = json.dumps([{"workdir": f"r/{i}", "app_id": 1} for i in range(3000)]).encode()
    data = b""
    for i in range(1, 6):
        data += body_request(front, "POST /jobs/ HTTP/1.1", big) + front.head(f"GET /jobs/{i} HTTP/1.1")
    with front.raw() as raw:
        sender = threading.Thread(target=raw.send, args=(data,))
        sender.start()
        for i in range(1, 6):
            assert len(raw.answer().json()["request"]["b"]) == 3000
            assert raw.answer().json()["request"]["id"] == i
        sender.join()


def test_a_thousand_pipelined_requests_are_all_answered(front):
    n = 1000
    with front.raw(30) as raw:
        data = b"".join(front.head(f"GET /jobs/{i} HTTP/1.1") for i in range(1, n + 1))
        sender = threading.Thread(target=raw.send, args=(data,))
        sender.start()
        assert [raw.answer().json()["request"]["id"] for _ in range(n)] == list(range(1, n + 1))
        sender.join()


def test_requests_may_come_byte_by_byte(front):
    data = body_request(front, "PUT /jobs/1 HTTP/1.1", b'{"num_nodes":3}') + front.head("GET /jobs/2 HTTP/1.1")
    with front.raw() as raw:
        for i in range(len(data)):
            raw.send(data[i:i + 1])
        assert raw.answer().json()["request"] == {"id": 1, "b": {"num_nodes": 3}}
        assert raw.answer().json()["request"]["id"] == 2


# ---- answers

def test_a_204_has_no_body_and_the_next_answer_stands_right_behind_it(front):
    with front.raw() as raw:
        raw.send(front.head("DELETE /jobs/5 HTTP/1.1") + front.head())
        got = raw.answer()
        assert got.status == 204 and "content-length" not in got.headers
        assert raw.answer().status == 200


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PATCH"])
def test_a_wrong_method_on_a_known_path_is_405_with_allow(front, method):
    with front.raw() as raw:
        raw.send(front.head(f"{method} /jobs/5 HTTP/1.1") + front.head())
        got = raw.answer(method)
        assert got.status == 405 and set(got.headers["allow"].split(", ")) == {"GET", "PUT", "DELETE"}
        assert int(got.headers["content-length"]) == len(b'{"detail":"Method Not Allowed"}')
        if method != "HEAD":
            assert got.json() == {"detail": "Method Not Allowed"}
        assert raw.answer().status == 200  # no stray byte was left behind a HEAD


@pytest.mark.parametrize("path", ["/jobs", "/jobs/", "/sites", "/sites/", "/jobs/5", "/jobs/5/", "/batch-jobs", "/transfers"])
def test_both_spellings_of_the_last_slash_are_served(front, path):
    got = front.get(path, allow_redirects=False)
    assert got.status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/jobs/5/6", "//jobs", "/jobs//", "/users/me", "/Jobs/", "/%6Aobs/"])
def test_an_unknown_path_is_404(front, path):
    with front.raw() as raw:
        raw.send(front.head(f"GET {path} HTTP/1.1"))
        got = raw.answer()
        assert got.status == 404 and got.json() == {"detail": "Not Found"}


def test_connection_close_and_http_1_0_end_after_the_answer(front):
    for head in (b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
        with front.raw() as raw:
            raw.send(head)
            begin = time.monotonic()
            assert raw.answer().status == 200
            assert raw.at_end()
            assert time.monotonic() - begin < 1.0


def test_every_answer_names_its_request(front):
    ok, bad = front.get("/jobs/5"), front.get("/nothing")
    assert ok.headers["x-request-id"] == ok.json()["uuid"]
    assert len(bad.headers["x-request-id"]) == 36


# ---- long answers

def test_a_list_of_one_page_has_a_content_length(front):
    got = front.get("/jobs/")
    assert "content-length" in got.headers and len(got.json()["results"]) == got.json()["count"] == 3
    front.set_rows(0)
    assert front.get("/jobs/").json() == {"count": 0, "results": []}


@pytest.mark.parametrize("rows", [1000, 1001, 20_000])
def test_a_list_of_many_pages_is_whole_and_in_order(front, rows):
    front.set_rows(rows)
    got = front.get("/jobs/")
    body = got.json()
    assert body["count"] == rows and [r["id"] for r in body["results"]] == list(range(1, rows + 1))
    assert got.headers.get("transfer-encoding") == "chunked"


def test_http_1_0_gets_a_long_list_without_chunks(front):
    front.set_rows(3000)
    with front.raw() as raw:
        raw.send(front.head("GET /jobs/ HTTP/1.0"))
        got = raw.answer()
        assert "transfer-encoding" not in got.headers and len(got.json()["results"]) == 3000


def test_a_reader_that_stalls_costs_no_more_than_its_page(front):
    front.set_rows(100_000)
    before = front.metric("abies_gateway_pages_total")
    with front.raw(window=16384) as raw:
        raw.send(front.head("GET /jobs/ HTTP/1.1"))
        assert raw.file.readline().startswith(b"HTTP/1.1 200")
        counts = []  # the kernel's buffers fill first; then the count must stand still

        def stands_still():
            counts.append(front.metric("abies_gateway_pages_total"))
            return len(counts) > 8 and len(set(counts[-8:])) == 1

        wait_for(stands_still, 20, "an end of the fetching though nobody reads", every=0.1)
        assert front.replica("jobs").process.poll() is None and counts[-1] - before < 90
        assert front.get("/jobs/5").status_code == 200  # others do not wait
        import http.client as hc
        hc.parse_headers(raw.file)
        assert len(json.loads(raw.chunks())["results"]) == 100_000


def test_fifty_stalled_readers_leave_the_others_quick(front):
    front.set_rows(50_000)
    readers = [front.raw(window=16384) for _ in range(50)]
    try:
        for r in readers:
            r.send(front.head("GET /jobs/ HTTP/1.1"))
        for r in readers:
            assert r.file.readline().startswith(b"HTTP/1.1 200")
        begin = time.monotonic()
        for _ in range(50):
            assert front.get("/jobs/5").status_code == 200
        assert time.monotonic() - begin < 10
    finally:
        for r in readers:
            r.close()
    wait_for(lambda: front.metric("abies_gateway_connections") < 10, 20, "the readers' connections to end")


def resident_kb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(x for x in status.splitlines() if x.startswith("VmRSS")).split()[1])


def test_forty_megabytes_to_slow_clients_leave_the_gateway_as_small_as_it_was(tmp_path, monkeypatch):
    """Under the sanitizer freed memory is kept for a while; not here."""
    monkeypatch.setenv("ASAN_OPTIONS", os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:malloc_context_size=0")
    with Front(tmp_path, tls=True, curve=True) as front:
        processes = {"gateway": front.gateway.pid, "service": front.replica("jobs").process.pid}
        front.set_rows(2000)
        front.get("/jobs/")  # buffers that are kept are there now
        front.set_rows(140_000)
        before = {name: resident_kb(pid) for name, pid in processes.items()}
        most, read = dict(before), 0
        stalled = [front.raw(window=16384) for _ in range(5)]
        for raw in stalled:
            raw.send(front.head("GET /jobs/ HTTP/1.1"))
        with front.raw(window=16384) as raw:
            raw.send(front.head("GET /jobs/ HTTP/1.0"))
            while data := raw.file.read(1 << 17):
                read += len(data)
                time.sleep(0.003)  # that is how slow it is
                most = {name: max(most[name], resident_kb(pid)) for name, pid in processes.items()}
        for raw in stalled:
            raw.close()
    assert read > 43_000_000, read
    grown = {name: (most[name] - before[name]) / 1024 for name in processes}
    print(f"{read / 1e6:.1f} MB of list, MB grown: {grown}")
    assert all(mb < 12 for mb in grown.values()), f"MB more while {read / 1e6:.0f} MB went out: {grown}"


def test_a_page_that_fails_breaks_the_body_instead_of_shortening_the_list(front):
    front.set_rows(100_000)
    with front.raw() as raw:
        raw.send(front.head("GET /jobs/ HTTP/1.1"))
        assert raw.file.readline().startswith(b"HTTP/1.1 200")
        front.script("job.list", 500, {"kind": "error", "text": "broken on purpose"})
        import http.client as hc
        hc.parse_headers(raw.file)
        with pytest.raises((EOFError, AssertionError, ConnectionResetError, ValueError)):
            raw.chunks()


def test_a_reply_that_is_no_msgpack_is_502(front):
    path = front.folder / "job.get"
    path.write_bytes(b"200 0\n\xdf\xff\xff\xff\xff")
    got = front.get("/jobs/5")
    assert got.status_code == 502 and "detail" in got.json()
    path.unlink()


# ---- who may

def test_errors_of_tokens_have_the_contracts_form(front):
    for header, text in [(None, "Not authenticated"), ("Basic abc", "Not authenticated"), ("Bearer", "Not authenticated"),
                         ("Bearer x.y.z", "Could not validate credentials"),
                         (f"Bearer {front.token(seconds=-1)}", "Could not validate credentials"),
                         (f"Bearer {front.token()}x", "Could not validate credentials")]:
        with front.raw() as raw:
            line = f"Authorization: {header}\r\n" if header else ""
            raw.send(f"GET /jobs/5 HTTP/1.1\r\nHost: x\r\n{line}\r\n".encode())
            got = raw.answer()
            assert (got.status, got.json()) == (401, {"detail": text}), header
            assert got.headers["www-authenticate"] == "Bearer"


def test_the_scheme_is_read_in_any_case(front):
    token = front.token()
    assert front.get("/jobs/5", headers={"Authorization": f"bEARER {token}"}).status_code == 200


def test_broken_json_is_told_before_the_missing_token(front):
    def post(body, token=None):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}" if token else ""}
        with front.raw() as raw:
            lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items() if v)
            raw.send(f"POST /jobs/ HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return raw.answer()

    broken, wrong = b'[{"workdir":', b'[{"workdir":"/absolute"}]'
    assert post(broken).status == 422 and post(broken).json()["detail"][0]["type"] == "value_error.jsondecode"
    assert post(wrong).status == 401
    got = post(wrong, front.token())
    assert got.status == 422
    assert {tuple(d["loc"]) for d in got.json()["detail"]} >= {("body", 0, "app_id")}


def test_errors_of_path_query_and_body_come_together(front):
    got = front.call("PUT", "/jobs/abc", json={"num_nodes": None})
    assert got.status_code == 422
    assert got.json()["detail"][0]["loc"][0] == "path" and got.json()["detail"][-1]["loc"] == ["body", "num_nodes"]


def test_scopes_decide(front):
    read, site = front.token(scopes=READ), front.token(scopes=SITE, site=5)
    headers = {"Authorization": f"Bearer {read}"}
    assert front.get("/jobs/5", headers=headers).status_code == 200
    got = front.call("DELETE", "/jobs/5", headers=headers)
    assert got.status_code == 403 and "detail" in got.json()
    got = front.get("/jobs/5", headers={"Authorization": f"Bearer {site}"})
    assert got.json()["site"] == 5


def test_a_revoked_token_is_refused_at_once(front):
    token = front.token(jti="to-be-revoked")
    headers = {"Authorization": f"Bearer {token}"}
    assert front.get("/jobs/5", headers=headers).status_code == 200
    front.script("token.revoked", 200, [{"jti": "to-be-revoked", "expires": int(time.time()) + 3600}])
    front.replica("auth").say("hint r 0 to-be-revoked")
    wait_for(lambda: front.get("/jobs/5", headers=headers).status_code == 401, 3, "the revocation")
    front.unscript("token.revoked")


# ---- what the services say

@pytest.mark.parametrize("status,body,want", [
    (404, {"kind": "not_found", "text": "job 5 is not there"}, {"error": "Not found", "message": "job 5 is not there"}),
    (404, {"kind": "bad_reference", "text": "no app 9"}, {"detail": "no app 9"}),
    (400, {"kind": "bad_request", "text": "more than 5000"}, {"detail": "more than 5000"}),
    (409, {"kind": "conflict", "text": "lost", "items": [{"index": 1, "id": 7, "reason": "lease"}]},
     {"detail": "lost", "items": [{"index": 1, "id": 7, "reason": "lease"}]}),
    (422, {"kind": "schema", "text": "same key, other body"},
     {"detail": [{"loc": ["body"], "msg": "same key, other body", "type": "value_error"}]}),
    (500, {"kind": "internal", "text": "no luck"}, {"detail": "no luck"}),
])
def test_errors_of_services_get_the_contracts_form(front, status, body, want):
    front.script("job.get", status, body)
    got = front.get("/jobs/5")
    assert got.status_code == status and got.json() == want


def test_busy_services_say_when_to_come_back(front):
    front.script("job.get", 503, {"kind": "busy", "text": "later", "retry": 7})
    got = front.get("/jobs/5")
    assert got.status_code == 503 and got.headers["retry-after"] == "7"
    front.script("job.get", 429, {"kind": "rate", "text": "slowly"})
    assert front.get("/jobs/5").headers["retry-after"] == "1"


def test_idempotency_keys_travel_and_replays_are_told(front):
    got = front.call("PUT", "/jobs/5", json={}, headers={"Idempotency-Key": "abc-1"})
    assert got.json()["key"] == "abc-1" and "idempotent-replayed" not in got.headers
    front.script("job.update", 1200, 1)
    got = front.call("PUT", "/jobs/5", json={}, headers={"Idempotency-Key": "abc-1"})
    assert got.status_code == 200 and got.json() == 1 and got.headers["idempotent-replayed"] == "true"
    for bad in ("", "a b", "x" * 256, "\xe9"):
        with front.raw() as raw:
            raw.send(body_request(front, "PUT /jobs/5 HTTP/1.1", b"{}", f"Idempotency-Key: {bad}"))
            assert raw.answer().status == 400, bad


def test_a_public_route_needs_no_token(front):
    got = requests.get(front.url + "/auth/how", verify=str(front.tmp / "cert.pem") if front.tls else None, timeout=10)
    assert got.status_code == 200 and got.json()["verb"] == "auth.how" and got.json()["user"] == 0


def test_both_kinds_of_form_log_in(front):
    verify = str(front.tmp / "cert.pem") if front.tls else None
    url, fields = front.url + "/auth/password/login", {"username": "ann&b", "password": "a b%é"}
    for options in ({"data": fields}, {"files": {k: (None, v) for k, v in fields.items()}}):
        got = requests.post(url, verify=verify, timeout=10, **options)
        assert got.status_code == 200
        assert {k: got.json()["request"]["b"][k] for k in fields} == fields
    got = requests.post(url, verify=verify, timeout=10, json=fields)
    assert got.status_code == 422
    got = requests.post(url, data=b"--x\r\nbroken", headers={"Content-Type": "multipart/form-data; boundary=x"},
                        verify=verify, timeout=10)
    assert got.status_code == 422


# ---- the gateway's own pages

def test_own_pages_are_served(front):
    assert front.get("/").json()["name"] == "abies"
    assert front.get("/healthz").status_code == front.get("/readyz").status_code == 200
    document = front.get("/openapi.json").json()
    assert "/jobs/" in document["paths"] or "/jobs" in document["paths"]
    docs = front.get("/docs").text
    assert "<html" in docs and "http://" not in docs and "https://" not in docs
    assert requests.get(front.health + "/healthz", timeout=5).status_code == 200
    assert "abies_gateway_requests_total" in requests.get(front.health + "/metrics", timeout=5).text


def test_metrics_on_the_public_port_need_an_admin(front):
    assert front.get("/metrics").status_code == 403
    admin = front.token(scopes=ADMIN)
    got = front.get("/metrics", headers={"Authorization": f"Bearer {admin}"})
    assert got.status_code == 200 and "abies_bus_replicas" in got.text


# ---- time limits

def test_a_slow_sender_is_closed_after_ten_seconds(front):
    with front.raw(30) as raw:
        begin = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError, OSError)):
            for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 200:
                raw.send(bytes([byte]))
                time.sleep(0.1)
        assert 9 < time.monotonic() - begin < 14


def test_a_silent_connection_is_closed(front):
    idle = socket.create_connection(front.address, 30)  # under TLS not even a handshake
    begin = time.monotonic()
    assert idle.recv(1) == b""
    assert 8 < time.monotonic() - begin < 25
    idle.close()
