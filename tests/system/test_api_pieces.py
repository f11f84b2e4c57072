"""Calls that change very many rows, through gateways and services: one answer, however many pieces it took.

The centre of these tests commits a piece after a millisecond."""

from api import expect
from fresh import app, place, t  # noqa: F401 (fixtures)

MANY = 5000


def many(t, app, n=MANY, **fields):
    jobs = [{"app_id": app["id"], "workdir": f"run/{i}", "tags": {"many": "yes"}, **fields} for i in range(n)]
    return [j["id"] for j in expect(t.post("/jobs/", jobs), 201)]


def count(t, query=""):
    return expect(t.get(f"/jobs/?limit=0{query}"), 200)["count"]


def test_a_filtered_delete_has_no_size_limit_and_spares_what_does_not_match(t, app):
    many(t, app)
    (kept,) = many(t, app, 1, tags={"many": "no"})
    expect(t.delete("/jobs/?tags=many:yes"), 204)
    assert t.ids("/jobs/") == [kept]
    expect(t.delete("/jobs/"), 204)
    assert count(t) == 0
    assert expect(t.get("/events/?limit=1"), 200)["count"] == 0


def test_a_cancel_answers_with_the_sum_of_its_pieces_and_a_repeat_with_the_same(t, app):
    ids = many(t, app)
    expect(t.patch("/jobs/", [{"id": i, "state": "RUNNING"} for i in ids[:10]]), 200)
    headers = {"Idempotency-Key": f"cancel-{t.name}"}
    first = t.post("/jobs/cancel?tags=many:yes", {}, headers=headers)
    assert expect(first, 200) == {"cancelled": MANY - 10, "requested": 10}
    assert "idempotent-replayed" not in first.headers
    assert count(t, "&state=FAILED") == MANY - 10
    again = t.post("/jobs/cancel?tags=many:yes", {}, headers=headers)
    assert expect(again, 200) == {"cancelled": MANY - 10, "requested": 10}
    assert again.headers["idempotent-replayed"] == "true"
    assert expect(t.get("/events/?limit=1&to_state=FAILED"), 200)["count"] == MANY - 10


def test_an_app_and_a_site_go_with_all_their_jobs(t, place, app):
    many(t, app)
    second = t.app(place)
    many(t, second)
    expect(t.delete(f"/apps/{app['id']}"), 204)
    assert count(t) == MANY
    expect(t.delete(f"/sites/{place['id']}"), 204)
    assert count(t) == 0
    expect(t.get(f"/apps/{second['id']}"), 404)


def test_a_large_session_frees_all_its_jobs_before_the_answer(t, place, app):
    ids = many(t, app)
    expect(t.put("/jobs/", {"state": "PREPROCESSED"}), 200)
    session = t.session(place)
    taken = 0
    while got := len(t.acquire(session, max_num_jobs=2048)):
        taken += got
    assert taken == MANY
    expect(t.patch("/jobs/", [{"id": i, "state": "RUNNING"} for i in ids[:100]]), 200)
    expect(t.delete(f"/sessions/{session['id']}"), 204)
    assert count(t, "&state=RUN_TIMEOUT") == 100
    assert count(t, "&state=PREPROCESSED") == MANY - 100
    second = t.session(place)
    assert len(t.acquire(second, max_num_jobs=2048)) == 2048
    expect(t.delete(f"/sessions/{second['id']}"), 204)
