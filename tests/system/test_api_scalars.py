"""What the contract (1.2) takes as a number, a text, a time .., and how each is given back."""
from datetime import datetime, timedelta, timezone

import pytest

from api import AWARE, NAIVE, expect, issues, unique

INT_ERROR = ("type_error.integer", "value is not a valid integer")


@pytest.fixture(scope="module")
def job(tenant, app):
    return tenant.job(app)


def change(tenant, job, **fields):
    expect(tenant.put(f"/jobs/{job['id']}", fields), 200, 1)
    return tenant.read(f"/jobs/{job['id']}")


# ------------------------------------------------------------------ numbers

@pytest.mark.parametrize("sent, stored", [(5, 5), (3.7, 3), (58.93, 58), (True, 1), ("7", 7), (" 8 ", 8), ("+9", 9), ("-4", -4), (-3.7, -3), (False, 0),
                                          (1e3, 1000), (2147483647, 2147483647), (-2147483648, -2147483648)])
def test_an_int_takes_what_python_makes_an_int(tenant, job, sent, stored):
    assert change(tenant, job, return_code=sent)["return_code"] == stored


@pytest.mark.parametrize("sent", ["3.7", "", "x", "1e3", [], {}, [1], "0x10", "１x"])
def test_an_int_takes_nothing_else(tenant, job, sent):
    assert issues(tenant.put(f"/jobs/{job['id']}", {"return_code": sent})) == {("body", "return_code"): INT_ERROR}


@pytest.mark.parametrize("sent", [2147483648, -2147483649, 10**30, 1e300])
def test_an_int_out_of_range_is_422(tenant, job, sent):
    assert issues(tenant.put(f"/jobs/{job['id']}", {"return_code": sent})).keys() == {("body", "return_code")}


@pytest.mark.parametrize("sent, stored", [(0.5, 0.5), (2, 2), ("0.25", 0.25), (" 1e-3 ", 0.001), (True, 1), (0.1, 0.1), (1 / 3, 1 / 3)])
def test_a_float_keeps_every_bit(tenant, job, sent, stored):
    assert change(tenant, job, gpus_per_rank=sent)["gpus_per_rank"] == stored


@pytest.mark.parametrize("sent", ["x", "", [], {}, "0x1p3", "nan", "inf", "-Infinity", None])
def test_a_float_takes_nothing_else(tenant, job, sent):
    assert issues(tenant.put(f"/jobs/{job['id']}", {"gpus_per_rank": sent})).keys() == {("body", "gpus_per_rank")}


@pytest.mark.parametrize("sent", [True, 1, 1.0, "on", "T", "true", "TRUE", "y", "Yes", "1"])
def test_a_bool_is_true(tenant, job, sent):
    assert change(tenant, job, pending_file_cleanup=sent)["pending_file_cleanup"] is True


@pytest.mark.parametrize("sent", [False, 0, "off", "f", "False", "n", "NO", "0"])
def test_a_bool_is_false(tenant, job, sent):
    assert change(tenant, job, pending_file_cleanup=sent)["pending_file_cleanup"] is False


@pytest.mark.parametrize("sent", ["maybe", 2, [], {}, "", "yess", None, 0.5])
def test_a_bool_is_nothing_else(tenant, job, sent):
    assert issues(tenant.put(f"/jobs/{job['id']}", {"pending_file_cleanup": sent})).keys() == {("body", "pending_file_cleanup")}


# ------------------------------------------------------------------ texts

@pytest.mark.parametrize("sent, stored", [("x", "x"), (1, "1"), (2.0, "2.0"), (1e16, "1e+16"), (True, "True"), (False, "False"), (0.1, "0.1"), (-5, "-5"),
                                          (1e15, "1000000000000000.0"), (1e-5, "1e-05"), ("", ""), ("é\U0001F332", "é\U0001F332")])
def test_a_text_takes_scalars_as_python_prints_them(tenant, job, sent, stored):
    got = change(tenant, job, serialized_parameters=sent, tags={"k": sent}, launch_params={"p": sent})
    assert got["serialized_parameters"] == stored and got["tags"] == {"k": stored} and got["launch_params"] == {"p": stored}


@pytest.mark.parametrize("sent", [[], {}, None])
def test_a_text_takes_nothing_else(tenant, job, sent):
    r = tenant.put(f"/jobs/{job['id']}", {"serialized_parameters": sent, "tags": {"k": sent}})
    assert issues(r).keys() == {("body", "serialized_parameters"), ("body", "tags", "k")}


def test_numeric_tags_come_back_as_texts(tenant, app):
    job = tenant.job(app, tags={"mass": 1.0, "n": 3, "ok": True})
    assert job["tags"] == {"mass": "1.0", "n": "3", "ok": "True"}
    assert tenant.ids("/jobs/", tags="mass:1.0") == [job["id"]]


@pytest.mark.parametrize("sent, stored", [("./in//x.dat", "in/x.dat"), ("", "."), ("a/./b/", "a/b"), ("a/../b", "a/../b"), ("a//b///c", "a/b/c"), (".", "."), ("..", "..")])
def test_a_path_is_normalised(tenant, job, sent, stored):
    assert change(tenant, job, workdir=sent)["workdir"] == stored


def test_the_remote_path_of_a_transfer_is_normalised(tenant, site):
    app = tenant.app(site, transfers={"x": {"required": True, "direction": "in", "local_path": "./a//b/"}})
    job = tenant.job(app, transfers={"x": {"location_alias": "lab", "path": "/data//x/./y/"}})
    (item,) = tenant.page("/transfers/", job_id=job["id"])["results"]
    assert (item["remote_path"], item["local_path"]) == ("/data/x/y", "a/b")


@pytest.mark.parametrize("sent", ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000",
                                  "{123e4567-e89b-12d3-a456-426614174000}", "urn:uuid:123e4567-e89b-12d3-a456-426614174000"])
def test_a_uuid_has_many_forms_and_one_answer(tenant, site, sent):
    assert expect(tenant.put(f"/sites/{site['id']}", {"globus_endpoint_id": sent}), 200)["globus_endpoint_id"] == "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize("sent", ["x", "123e4567", "123e4567-e89b-12d3-a456-42661417400g", 7, [], ""])
def test_a_uuid_is_nothing_else(tenant, site, sent):
    assert issues(tenant.put(f"/sites/{site['id']}", {"globus_endpoint_id": sent})).keys() == {("body", "globus_endpoint_id")}


def test_a_uuid_may_be_cleared(tenant, site):
    assert expect(tenant.put(f"/sites/{site['id']}", {"globus_endpoint_id": None}), 200)["globus_endpoint_id"] is None


@pytest.mark.parametrize("url", ["globus://123e4567-e89b-12d3-a456-426614174000", "rsync://user@host", "rsync://user@host/some/path", "local://localhost/x", "http://a.b:8080/x?y=z"])
def test_a_url_comes_back_as_given(tenant, site, url):
    got = expect(tenant.put(f"/sites/{site['id']}", {"transfer_locations": {"a": url, "lab": "rsync://lab"}}), 200)
    assert got["transfer_locations"] == {"a": url, "lab": "rsync://lab"}


@pytest.mark.parametrize("url", ["host", "//host", "rsync:host", "1rsync://host", "rsync://", "rsync:///path", "", "rsync://ho st", 7, None])
def test_a_url_needs_scheme_and_host(tenant, site, url):
    assert issues(tenant.put(f"/sites/{site['id']}", {"transfer_locations": {"a": url}})).keys() == {("body", "transfer_locations", "a")}


def test_a_set_drops_duplicates(tenant, app):
    parents = [j["id"] for j in tenant.jobs(app) + tenant.jobs(app)]
    job = tenant.job(app, parent_ids=[parents[1], parents[0], str(parents[1]), float(parents[0])])
    assert sorted(job["parent_ids"]) == parents


def test_an_enum_is_compared_exactly(tenant, job):
    assert issues(tenant.put(f"/jobs/{job['id']}", {"state": "running"})).keys() == {("body", "state")}
    assert issues(tenant.put(f"/jobs/{job['id']}", {"state": 1})).keys() == {("body", "state")}


@pytest.mark.parametrize("data", [{}, {"a": [1, 2.5, None, {"b": True}], "é": "\U0001F332", "deep": [[[[]]]]}, {"big": 12345678901234567890, "e": 1e-7}])
def test_free_json_comes_back_whole(tenant, job, data):
    assert change(tenant, job, data=data)["data"] == data


def test_nul_in_a_text_is_422(tenant, job, site):
    assert issues(tenant.put(f"/jobs/{job['id']}", {"serialized_parameters": "a\0b"})).keys() == {("body", "serialized_parameters")}
    assert issues(tenant.put(f"/sites/{site['id']}", {"name": "\0"})).keys() == {("body", "name")}
    assert issues(tenant.put(f"/jobs/{job['id']}", {"tags": {"a\0": "b"}}))
    assert issues(tenant.put(f"/jobs/{job['id']}", {"data": {"a": ["\0"]}}))
    assert issues(tenant.get("/sites/?name=%00")).keys() == {("query", "name")}


# ------------------------------------------------------------------ times

@pytest.mark.parametrize("sent, stored", [
    ("2026-01-02T03:04:05", "2026-01-02T03:04:05"), ("2026-01-02t03:04", "2026-01-02T03:04:00"), ("2026-01-02 03:04:05.000678", "2026-01-02T03:04:05.000678"),
    ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05"), ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05"), ("2026-01-02T03:04:05+0200", "2026-01-02T01:04:05"),
    ("2026-01-02 03:04:05.5-01", "2026-01-02T04:04:05.500000"), ("2026-01-02T03:04:05.123456789", "2026-01-02T03:04:05.123456"),
    (1767323045, "2026-01-02T03:04:05"), ("1767323045", "2026-01-02T03:04:05"), (1767323045000, "2026-01-02T03:04:05"), (1767323045.25, "2026-01-02T03:04:05.250000"),
    ("2026-01-02T03:04:05.000001", "2026-01-02T03:04:05.000001"), ("2026-12-31T23:59:59.999999", "2026-12-31T23:59:59.999999"), (0, "1970-01-01T00:00:00")])
def test_a_time_has_many_forms_and_is_stored_in_utc(tenant, site, sent, stored):
    batch_job = tenant.batch_job(site)
    got = expect(tenant.put(f"/batch-jobs/{batch_job['id']}", {"start_time": sent, "end_time": sent}), 200)
    assert got["start_time"] == stored and got["end_time"] == stored
    assert tenant.read(f"/batch-jobs/{batch_job['id']}")["start_time"] == stored


@pytest.mark.parametrize("sent", ["2026-01-02", "", "now", "2026-13-02T03:04:05", "2026-01-32T03:04", "2026-01-02T25:00", "03:04:05", [], {}, "2026-01-02T03:04:05+25:00x", "inf"])
def test_a_time_is_nothing_else(tenant, job, sent):
    assert issues(tenant.put(f"/jobs/{job['id']}", {"state_timestamp": sent})).keys() == {("body", "state_timestamp")}


def test_times_in_a_query_are_written_as_python_writes_them(tenant, app):
    job = tenant.job(app)
    at = datetime.fromisoformat(tenant.read(f"/jobs/{job['id']}")["last_update"])
    for text in (str(at), str(at.replace(tzinfo=None)), at.isoformat(), str(at.astimezone(timezone(timedelta(hours=5, minutes=30))))):
        assert tenant.ids("/jobs/", last_update_after=text, last_update_before=text) == [job["id"]], text
    later = str(at + timedelta(microseconds=1))
    assert tenant.ids("/jobs/", ("id", job["id"]), last_update_after=later) == []


def test_which_times_are_naive_and_which_are_aware(tenant, site, app):
    site = tenant.read(f"/sites/{site['id']}")
    assert NAIVE.match(site["last_refresh"]) and NAIVE.match(site["creation_date"])
    session = tenant.session(site)
    assert NAIVE.match(session["heartbeat"])
    assert NAIVE.match(tenant.page("/sessions/")["results"][0]["heartbeat"])
    (job,) = tenant.jobs(app)
    assert AWARE.match(job["last_update"]) and AWARE.match(tenant.read(f"/jobs/{job['id']}")["last_update"])
    assert AWARE.match(tenant.page("/jobs/", id=job["id"])["results"][0]["last_update"])
    tenant.set_state(job, "PREPROCESSED")
    (got,) = tenant.acquire(session, max_num_jobs=1)
    assert AWARE.match(got["last_update"])
    assert all(NAIVE.match(e["timestamp"]) for e in tenant.events(job))
    batch_job = tenant.batch_job(site)
    aware = datetime(2026, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=2))).isoformat()
    for r in (tenant.put(f"/batch-jobs/{batch_job['id']}", {"start_time": aware, "end_time": aware}), tenant.patch("/batch-jobs/", [{"id": batch_job["id"], "end_time": aware}])):
        row = expect(r, 200)
        row = row[0] if isinstance(row, list) else row
        assert row["start_time"] == row["end_time"] == "2026-05-06T05:08:09"
    expect(tenant.delete(f"/sessions/{session['id']}"), 204)


def test_microseconds_round_trip_exactly(tenant, app):
    jobs = tenant.jobs(app) + tenant.jobs(app) + tenant.jobs(app)
    sent = [datetime(2026, 3, 4, 5, 6, 7, us) for us in (1, 999999, 123456)]
    expect(tenant.patch("/jobs/", [{"id": j["id"], "state": "PREPROCESSED", "state_timestamp": t.isoformat()} for j, t in zip(jobs, sent)]), 200, 3)
    page = tenant.page("/events/", *[("job_id", j["id"]) for j in jobs], to_state="PREPROCESSED")
    assert {datetime.fromisoformat(e["timestamp"]) for e in page["results"]} == set(sent)


def test_a_date_of_now_lies_between_two_clock_readings(tenant):
    before = datetime.utcnow()
    site = tenant.site(name=unique("clock"))
    after = datetime.utcnow()
    assert before <= datetime.fromisoformat(site["creation_date"]) <= after
    assert site["creation_date"] == site["last_refresh"]
