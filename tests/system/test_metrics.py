"""What every process says of itself: figures in Prometheus' format that move with the work, and one trace through all of them."""
import collections
import json
import os
import re
import signal
import socket
import uuid

import psycopg2
import pytest

from centre import ROOT, Centre, temporary_folder, wait_for
from exposition import parse, scrape

SETTINGS = {"figures_period": "200ms", "log_level": "debug", "session_ttl": "30s"}
TRACE = re.compile(r"\btrace=([0-9a-f]{32})\b")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("met"), gateways=2, settings=SETTINGS) as centre:
        for line in ("log_statement = 'all'", "log_line_prefix = '%m [%p] app=%a '"):
            sql(centre, "ALTER SYSTEM SET " + line)
        sql(centre, "SELECT pg_reload_conf()")
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    site = centre.site("met", settings={"idle_ttl_sec": "30"}, start=False)
    path = site.path / "settings.yml"
    path.write_text(path.read_text().replace("listen: null ", f"listen: 127.0.0.1:{free_port()} "))
    site.start()
    site.ok = site.app("ok", "name: ok\ncommand: sleep 0.1\n")
    site.bad = site.app("bad", "name: bad\ncommand: sh -c 'exit 3'\n")
    site.address = wait_for(lambda: json.loads((site.path / "run/health.json").read_text()).get("metrics"), 20, "the port of the site")
    return site


def sql(centre, text):
    db = psycopg2.connect((centre.home / "secrets" / "url-abies").read_text().strip())
    try:
        db.autocommit = True
        with db.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else []
    finally:
        db.close()


def everything(centre, site):
    """{process: figures}, of all that run."""
    found = {row["name"]: scrape(row["health"]) for row in centre.processes() if row.get("health")}
    found["site"] = scrape(site.address)
    return found


def run_some(centre, site, ok, bad):
    """Jobs that succeed and jobs that fail, to their end, in an allocation that goes on."""
    jobs = [{"app_id": site.ok if i < ok else site.bad, "workdir": f"m/{uuid.uuid4().hex}", "node_packing_count": 8} for i in range(ok + bad)]
    ids = [j["id"] for j in centre.post("/jobs/", jobs)]
    query = "&".join(f"id={i}" for i in ids)
    wait_for(lambda: all(j["state"] in ("JOB_FINISHED", "FAILED") for j in centre.get(f"/jobs/?{query}")["results"]), 60, "the jobs to end")


def test_the_figures_of_every_process_are_well_formed_and_move_with_the_work(centre, site):
    site.allocate(minutes=10)
    run_some(centre, site, 1, 0)  # everything has been used once, so every family is there
    wait_for(lambda: scrape(site.address).sum("abies_launcher_runs_ended_total", end="done") >= 1, 20, "the launcher's figures")
    before = everything(centre, site)
    assert {name.split(".")[0] for name in before} == {"gateway", "jobs", "sessions", "transfers", "auth", "site"}
    run_some(centre, site, 4, 2)

    def grown(process, name, /, **labels):
        both = [sum(f.sum(name, **labels) for p, f in seen.items() if p.split(".")[0] == process) for seen in (before, after)]
        return both[1] - both[0]

    def all_has_arrived():
        nonlocal after
        after = everything(centre, site)
        return grown("site", "abies_launcher_runs_ended_total", end="done") == 4 and grown("site", "abies_site_updates_sent_total") > 0 \
            and after["sessions.0"].sum("abies_jobs", state="FAILED") == 2
    after = before
    wait_for(all_has_arrived, 30, "the figures of the site", every=0.5)

    assert grown("gateway", "abies_http_requests_total", verb="job.create", code="201") == 1
    assert grown("gateway", "abies_http_request_seconds_count", verb="job.create") == 1
    assert grown("jobs", "abies_requests_total", verb="job.create", code="201") == 1
    assert grown("jobs", "abies_request_seconds_count", verb="job.create") == 1
    assert 0 < grown("jobs", "abies_database_seconds_total", verb="job.create") < grown("jobs", "abies_request_seconds_sum", verb="job.create")
    assert grown("gateway", "abies_bus_sent_total", service="sessions") > 0
    assert grown("sessions", "abies_leases_granted_total") >= 6
    assert grown("sessions", "abies_event_last_id") >= 6 * 5
    assert grown("sessions", "abies_jobs", state="JOB_FINISHED") == 4
    assert grown("sessions", "abies_timer_runs_total", timer="waiting") > 0
    assert after["sessions.0"].sum("abies_sessions") >= 1
    assert grown("site", "abies_launcher_runs_started_total") == 6
    assert grown("site", "abies_launcher_runs_ended_total", end="error") == 2
    assert grown("site", "abies_client_requests_total", verb="PATCH /jobs/", code="200") > 0
    assert grown("site", "abies_module_state", module="processing", name="done") >= 12
    assert after["site"].labels("abies_module_cycle_seconds_count", "module") == {"processing", "transfer", "scheduler"}
    assert after["site"].sum("abies_site_module_up") == 3 and after["site"].sum("abies_site_uplink_reached") == 1
    for name, figures in after.items():
        assert figures.sum("abies_up") == (5 if name == "site" else 1), f"{name}: of a site the broker, three modules, a launcher"


def test_the_lag_of_events_is_measured_from_the_news_to_the_frame(centre, site):
    before = sum(f.sum("abies_event_lag_seconds_count") for f in everything(centre, site).values())
    follow = centre.run(["sh", "-c", f"timeout 5 {os.environ.get('ABIES_BUILD', ROOT / 'build/asan')}/bin/abies watch >watched 2>&1 & sleep 1.5;"
                                     " echo"], timeout=20)
    assert follow.returncode == 0
    run_some(centre, site, 1, 0)
    wait_for(lambda: sum(f.sum("abies_event_lag_seconds_count") for f in everything(centre, site).values()) > before, 20, "a measured lag")


def test_a_request_that_fails_is_counted_by_its_status(centre, site):
    def count(code):
        return sum(f.sum("abies_http_requests_total", verb="job.get", code=code) for f in everything(centre, site).values())
    before = count("404"), count("422")
    centre.request("GET", "/jobs/999999999", status=404)
    centre.request("GET", "/jobs/none", status=422)
    wait_for(lambda: (count("404"), count("422")) == (before[0] + 1, before[1] + 1), 10, "both counted")


def test_every_figure_has_its_line_in_the_operators_guide(centre, site):
    text = (ROOT / "docs" / "operations.md").read_text()
    missing = {family for figures in everything(centre, site).values() for family in figures.families if f"`{family}" not in text}
    assert not missing


def test_a_dead_modules_figures_are_replaced_and_a_stopped_sites_are_gone(centre, site):
    old = site.modules("transfer")
    os.kill(old[0], signal.SIGKILL)
    wait_for(lambda: scrape(site.address).sum("abies_site_module_restarts_total", module="transfer") >= 1, 20, "the restart is counted")
    site.stop()
    wait_for(lambda: not list((site.path / "run/metrics").glob("*.prom")), 20, "no file is left")
    site.start()
    site.address = wait_for(lambda: json.loads((site.path / "run/health.json").read_text()).get("metrics"), 20, "the port of the site")


def lines(centre, pattern):
    return [line for path in sorted(centre.home.glob(pattern)) for line in path.read_text(errors="replace").splitlines()]


def test_one_trace_leads_from_the_client_to_the_statements(centre, site):
    trace = uuid.uuid4().hex
    answer = centre.request("GET", "/jobs/?limit=3", status=200, headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    request = answer.headers["x-request-id"]
    gateway = wait_for(lambda: [x for x in lines(centre, "log/gateway*") if f"req={request}" in x], 10, "the gateway's line")
    assert all(TRACE.search(x)[1] == trace for x in gateway), gateway

    def statements():
        return [x for x in lines(centre, "log/postgres*") if trace in x]
    wait_for(lambda: [x for x in statements() if "/*trace=" in x], 10, "a statement with the trace in a comment")
    assert [x for x in statements() if f"app=jobs {trace}" in x and "/*trace=" not in x], "prepared statements have it as %a"

    refused = centre.request("GET", "/jobs/999999998", status=404, headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    said = wait_for(lambda: [x for x in lines(centre, "log/jobs*") if f"req={refused.headers['x-request-id']}" in x], 10, "the service's line")
    assert all(TRACE.search(x)[1] == trace for x in said), said


@pytest.mark.parametrize("header", [None, "", "00-zz-zz-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "x" * 4000, "'; DROP TABLE jobs; --"])
def test_a_request_without_a_usable_trace_has_its_own_number_as_one(centre, header):
    answer = centre.request("GET", "/jobs/?limit=2", status=200, headers={} if header is None else {"traceparent": header})
    request = answer.headers["x-request-id"]
    said = wait_for(lambda: [x for x in lines(centre, "log/gateway*") if f"req={request}" in x], 10, "the gateway's line")
    assert TRACE.search(said[0])[1] == request.replace("-", "")


def test_the_command_line_passes_on_the_trace_that_it_is_given(centre, site):
    trace = uuid.uuid4().hex
    centre.cli("site", "ls", env={"TRACEPARENT": f"00-{trace}-b7ad6b7169203331-01"})
    wait_for(lambda: [x for x in lines(centre, "log/postgres*") if f"/*trace={trace}*/" in x], 10, "a statement of it, with its comment")


def test_the_calls_of_a_site_carry_traces_of_their_own(centre, site):
    """A module's call, through the broker, and a launcher's own: what they say of it has the trace of the gateway's line and of the
    statements in PostgreSQL."""
    site.allocate(minutes=5)
    run_some(centre, site, 2, 0)
    seen = collections.Counter(TRACE.search(x)[1] for x in lines(centre, "log/gateway*") if "event=http.done" in x and TRACE.search(x))
    statements = "\n".join(lines(centre, "log/postgres*"))
    for what, files in {"modules": (site.path / "log").glob("*"), "launchers": (site.path / "qsubmit").glob("*.output")}.items():
        told = {m[1] for path in files if path.is_file() for m in TRACE.finditer(path.read_text(errors="replace"))}
        assert told & set(seen), f"no line of the {what} can be matched with the gateway's"
        assert [t for t in told & set(seen) if f" {t}" in statements or f"trace={t}" in statements], f"no line of the {what} with a statement"


def test_the_parser_of_this_test_is_strict():
    head = "# HELP abies_x_total x\n# TYPE abies_x_total counter\n"
    parse(head + 'abies_x_total{a="b\\"c"} 1\n')
    for bad in ("abies_x_total 1\n", head + "abies_x_total 1", head + "abies_x_total{a=b} 1\n", head + "abies_x_total 1\nabies_x_total 1\n",
                head + "abies_y_total 1\n", head + head, head + "abies_x_total -1\n", head + 'abies_x_total{a="b",} 1\n',
                "# HELP abies_h h\n# TYPE abies_h histogram\nabies_h_bucket{le=\"1\"} 2\nabies_h_bucket{le=\"+Inf\"} 1\nabies_h_sum 1\nabies_h_count 1\n"):
        with pytest.raises((AssertionError, KeyError)):
            parse(bad)
