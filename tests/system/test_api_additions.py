"""What Abies adds to the contract for jobs, through gateway and services: explain, arrays, retries, quotas, notices,
and requests that are done once."""
import concurrent.futures
import subprocess


from api import ABSENT, Tenant, documented_error, expect, issues, unique
from centre import BIN, wait_for
from fresh import app, place, t  # noqa: F401 (fixtures)
from test_api_events import listen


def sweep(app, **fields):
    return {"template": {"app_id": app["id"], "parameters": {"seed": 7}}, "workdir": "run/{{n}}-{{mode}}",
            "parameters": {"n": [1, 2], "mode": ["fast", "safe"]}, **fields}


# ------------------------------------------------------------------ explain

def why(t, job):
    got = expect(t.get(f"/jobs/{job['id']}/explain"), 200)
    assert set(got) == {"id", "state", "reasons"} and got["id"] == job["id"]
    for reason in got["reasons"]:
        assert set(reason) == {"code", "text", "ids"} and reason["text"] and isinstance(reason["ids"], list)
    return got["state"], [(r["code"], r["ids"]) for r in got["reasons"]]


def test_a_job_says_what_it_waits_for(t, place, app):
    parent = t.job(app)
    child = t.job(app, parent_ids=[parent["id"]])
    assert why(t, child) == ("AWAITING_PARENTS", [("parents", [parent["id"]])])
    t.set_state(parent, "PREPROCESSED")
    assert why(t, parent) == ("PREPROCESSED", [("no_allocation", [])])
    batch = t.batch_job(place)
    assert why(t, parent) == ("PREPROCESSED", [("queued", [batch["id"]])])
    session = t.session(place, batch_job_id=batch["id"])
    t.acquire(session)
    assert why(t, parent) == ("PREPROCESSED", [("held", [session["id"]])])
    t.set_state(parent, "JOB_FINISHED")
    assert why(t, parent) == ("JOB_FINISHED", [("done", [])])


def test_nobody_else_is_told(api_centre, t, app):
    job = t.job(app)
    stranger = Tenant(api_centre)
    for number in (job["id"], ABSENT):
        assert documented_error(stranger.get(f"/jobs/{number}/explain"))["error"] == "Not found"
    assert stranger.get("/jobs/x/explain").status_code == 422
    assert t.post(f"/jobs/{job['id']}/explain", {}).status_code == 405


# ------------------------------------------------------------------ arrays

def test_an_array_is_one_job_for_each_combination(t, app):
    made = expect(t.post("/jobs/array", sweep(app)), 201)
    assert set(made) == {"count", "ids"} and made["count"] == len(made["ids"]) == 4
    jobs = t.page("/jobs/", *(("id", i) for i in made["ids"]))["results"]
    assert [(j["workdir"], j["parameters"]) for j in jobs] == [
        (f"run/{n}-{mode}", {"seed": 7, "n": n, "mode": mode}) for n in (1, 2) for mode in ("fast", "safe")]
    assert all(t.history(j) == ["STAGED_IN"] for j in jobs)


def test_wrong_patterns_are_named(t, app):
    for fields, says in (({"workdir": "run/{{m}}"}, "{{m}}"), ({"workdir": "run/{{n"}, "without }}"), ({"workdir": "run/{{n}}"}, "{{mode}}"),
                         ({"combine": "zip", "parameters": {"n": [1, 2], "mode": ["a"]}}, "one length")):
        found = issues(t.post("/jobs/array", sweep(app, **fields)))
        assert list(found) == [("body",)] and says in found[("body",)][1], found
    assert ("body", "combine") in issues(t.post("/jobs/array", sweep(app, combine="sum")))
    assert ("body", "template", "app_id") in issues(t.post("/jobs/array", sweep(app, template={})))
    assert t.page("/jobs/")["count"] == 0


def test_a_hundred_thousand_jobs_are_one_request(t, app):
    body = {"template": {"app_id": app["id"]}, "workdir": "w/{{a}}/{{b}}", "parameters": {"a": list(range(400)), "b": list(range(250))}}
    key = {"Idempotency-Key": unique("large")}
    made = expect(t.post("/jobs/array", body, headers=key, timeout=120), 201)
    assert made["count"] == len(set(made["ids"])) == 100_000
    again = t.post("/jobs/array", body, headers=key, timeout=120)
    assert expect(again, 201) == made and again.headers["idempotent-replayed"] == "true"
    assert t.page("/jobs/", limit=0)["count"] == 100_000
    body["parameters"]["b"].append(250)
    assert "more than 100000" in issues(t.post("/jobs/array", body))[("body",)][1]


# ------------------------------------------------------------------ retries

def test_a_job_waits_for_its_next_attempt_and_then_runs_again(t, place, app):
    """By the clock of the real service: its timer, not a test's, puts the job into the queue."""
    job = t.job(app, retry={"max_attempts": 2, "on": ["exit"], "backoff_sec": 2})
    t.set_state(job, "PREPROCESSED")
    session = t.session(place)
    t.acquire(session)
    t.set_state(job, "RUNNING")
    t.set_state(job, "RUN_ERROR", state_data={"returncode": 1})
    assert why(t, job)[1][0] == ("retry_wait", [])
    assert t.acquire(session) == []
    held = wait_for(lambda: t.acquire(session), 20, "the job is leased again")
    assert [j["id"] for j in held] == [job["id"]]
    again, first = (e for e in t.events(job) if e["to_state"] in ("RUN_ERROR", "RESTART_READY")), None
    first, again = sorted(again, key=lambda e: e["timestamp"])
    assert (first["to_state"], again["to_state"]) == ("RUN_ERROR", "RESTART_READY")
    assert again["data"]["attempt"] == 1 and again["data"]["max_attempts"] == 2 and again["data"]["cause"] == "exit"
    t.set_state(job, "RUNNING")
    t.set_state(job, "RUN_ERROR", state_data={"returncode": 1})
    assert t.read(f"/jobs/{job['id']}")["state"] == "FAILED"
    assert t.read(f"/jobs/{job['id']}")["attempts"] == 2


def test_a_lost_launcher_is_a_cause_of_its_own(t, place, app):
    job = t.job(app, retry={"max_attempts": 2, "on": ["node_loss"]})
    t.set_state(job, "PREPROCESSED")
    t.acquire(t.session(place))
    t.set_state(job, "RUNNING")
    wait_for(lambda: t.read(f"/jobs/{job['id']}")["state"] == "RESTART_READY", 30, "the session is swept")
    assert t.events(job)[-1]["data"]["cause"] == "node_loss"


# ------------------------------------------------------------------ quotas

def test_a_user_has_so_many_jobs_and_no_more(api_centre, t, app):
    done = subprocess.run([BIN / "abies-admin", "users", "limit", "--home", str(api_centre.home), "--user", t.name, "--max-jobs", "3", "--max-sites", "1"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = t.jobs(app, 3)
    r = t.post("/jobs/", [{"app_id": app["id"], "workdir": "more"}])
    assert r.status_code == 403 and "may have 3 (max_jobs)" in documented_error(r)["detail"]
    assert t.post("/jobs/array", sweep(app)).status_code == 403
    assert ("quota", []) in why(t, jobs[0])[1]
    t.set_state(jobs[0], "FAILED")
    t.job(app)
    r = t.post("/sites/", {"name": unique("site"), "path": "/x"})
    assert r.status_code == 403 and "max_sites" in documented_error(r)["detail"]
    Tenant(api_centre).site()


# ------------------------------------------------------------------ notices

def test_jobs_are_told_of_when_they_are_made_changed_and_deleted(t, app):
    rows = {}

    def act():
        rows["made"] = t.jobs(app, 2)
        expect(t.put(f"/jobs/{rows['made'][0]['id']}", {"num_nodes": 2, "state": "POSTPROCESSED"}), 200)
        rows["array"] = expect(t.post("/jobs/array", sweep(app)), 201)
        expect(t.delete("/jobs/", params={"id": rows["array"]["ids"]}), 204)

    got = [(m["action"], m["type"], m["data"]) for m in listen(t, act, 4)]
    first = rows["made"][0]["id"]
    assert got == [("bulk-create", "job", rows["made"]), ("bulk-update", "job", [{"id": first, "state": "JOB_FINISHED", "num_nodes": 2}]),
                   ("bulk-create", "job", {"ids": rows["array"]["ids"], "count": 4}), ("bulk-delete", "job", {"ids": rows["array"]["ids"], "count": 4})]


# ------------------------------------------------------------------ once

def rows_of_changes(t, site, app):
    """(method, path, body, another body or path) of requests that change something."""
    job, other = t.jobs(app, 2)
    item_job = t.job(t.app(site, transfers={"m": {"required": False, "direction": "in", "local_path": "m"}}),
                     transfers={"m": {"location_alias": "lab", "path": "/m"}})
    (item,) = t.page("/transfers/", job_id=item_job["id"])["results"]
    batch, session = t.batch_job(site), t.session(site)
    return [
        ("POST", "/sites/", {"name": unique("s"), "path": "/x"}, {"name": unique("s"), "path": "/x"}),
        ("PUT", f"/sites/{site['id']}", {"path": "/y"}, {"path": "/z"}),
        ("POST", "/apps/", {"site_id": site["id"], "name": unique("A"), "serialized_class": "", "source_code": ""},
         {"site_id": site["id"], "name": unique("A"), "serialized_class": "", "source_code": ""}),
        ("PUT", f"/apps/{app['id']}", {"description": "a"}, {"description": "b"}),
        ("POST", "/jobs/", [{"app_id": app["id"], "workdir": "a"}], [{"app_id": app["id"], "workdir": "b"}]),
        ("POST", "/jobs/array", sweep(app), sweep(app, workdir="r/{{n}}/{{mode}}")),
        ("PATCH", "/jobs/", [{"id": job["id"], "state": "RUNNING"}], [{"id": job["id"], "state": "RUN_DONE"}]),
        ("PUT", f"/jobs/{job['id']}", {"num_nodes": 2}, {"num_nodes": 3}),
        ("PUT", f"/jobs/?id={job['id']}", {"num_nodes": 4}, {"num_nodes": 5}),
        ("POST", f"/jobs/{other['id']}/cancel", {}, {"reason": "r"}),
        ("POST", f"/jobs/cancel?id={other['id']}", {}, {"reason": "r"}),
        ("POST", "/batch-jobs/", {"site_id": site["id"], "project": "p", "queue": "q", "num_nodes": 1, "wall_time_min": 1, "job_mode": "mpi"},
         {"site_id": site["id"], "project": "p", "queue": "q", "num_nodes": 2, "wall_time_min": 1, "job_mode": "mpi"}),
        ("PUT", f"/batch-jobs/{batch['id']}", {"scheduler_id": 5}, {"scheduler_id": 6}),
        ("PATCH", "/batch-jobs/", [{"id": batch["id"], "state": "queued"}], [{"id": batch["id"], "state": "running"}]),
        ("POST", "/sessions/", {"site_id": site["id"]}, {"site_id": site["id"], "batch_job_id": batch["id"]}),
        ("POST", f"/sessions/{session['id']}", {"max_num_jobs": 1, "filter_tags": {}}, {"max_num_jobs": 2, "filter_tags": {}}),
        ("PUT", f"/transfers/{item['id']}", {"state": "active"}, {"state": "done"}),
        ("PATCH", "/transfers/", [{"id": item["id"], "state": "active"}], [{"id": item["id"], "state": "done"}]),
        ("DELETE", f"/sessions/{session['id']}", None, f"/sessions/{ABSENT}"),
        ("DELETE", f"/batch-jobs/{batch['id']}", None, f"/batch-jobs/{ABSENT}"),
        ("DELETE", f"/jobs/{other['id']}", None, f"/jobs/{job['id']}"),
        ("DELETE", f"/jobs/?id={job['id']}", None, f"/jobs/?id={other['id']}"),
        ("DELETE", f"/apps/{app['id']}", None, f"/apps/{ABSENT}"),
        ("DELETE", f"/sites/{site['id']}", None, f"/sites/{ABSENT}"),
    ]


def test_each_changing_request_is_done_once_and_its_repeat_says_so(t, place, app):
    for method, path, body, other in rows_of_changes(t, place, app):
        key = {"Idempotency-Key": unique("key")}
        first = t.call(method, path, json=body, headers=key)
        assert first.status_code in (200, 201, 204), f"{method} {path}: {first.status_code} {first.text}"
        assert "idempotent-replayed" not in first.headers, path
        again = t.call(method, path, json=body, headers=key)
        assert (again.status_code, again.content) == (first.status_code, first.content), path
        assert again.headers["idempotent-replayed"] == "true", path
        r = t.call(method, other if isinstance(other, str) else path, json=None if isinstance(other, str) else other, headers=key)
        assert "Idempotency-Key" in next(iter(issues(r).values()))[1], path


def test_twins_through_all_gateways_are_done_once(t, place, app):
    """Many at once, each on a connection of its own: the answers are one answer."""
    requests = [("/sites/", lambda: {"name": unique("twin"), "path": "/x"}), ("/jobs/", lambda: [{"app_id": app["id"], "workdir": unique("twin")}]),
                ("/jobs/array", lambda: sweep(app, workdir=unique("twin") + "/{{n}}/{{mode}}")), ("/sessions/", lambda: {"site_id": place["id"]})]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for path, make in requests:
            for _ in range(3):
                body, key = make(), {"Idempotency-Key": unique("twins")}
                twins = [pool.submit(t.anonymous, "POST", path, token=f"Bearer {t.token}", json=body, headers=key) for _ in range(8)]
                answers = [twin.result(60) for twin in twins]
                assert {(r.status_code, r.content) for r in answers} == {(201, answers[0].content)}, [r.text for r in answers]
                assert sum("idempotent-replayed" not in r.headers for r in answers) == 1
    assert t.page("/sites/")["count"] == 1 + 3
    assert t.page("/jobs/")["count"] == 3 + 3 * 4
