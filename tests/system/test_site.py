"""What a site does between the centre and the launcher: hooks, transfers, and what happens to them when things are missing.

No launcher runs here: the tests report runs themselves."""
import base64
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import time

import pytest

from centre import BIN, Centre, ROOT, alive, temporary_folder, wait_for

SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "beat": "250ms", "dead": "1500ms"}

HOOKED = """
name: hooked
command: [./program, "{{n}}"]
parameters:
  n: {type: int, default: 1}
  word: {default: none}
hooks:
  preprocess: [./hook.sh, "{{word}}"]
  postprocess: [./hook.sh, "{{word}}"]
  handle_error: [./hook.sh, "{{word}}"]
hook_timeout_sec: 2
cleanup_files: ["*.tmp", "scratch/**"]
"""

HOOK = """#!/bin/sh
printf '%s\\n' "$@" >> args
echo "$ABIES_HOOK of $ABIES_JOB_ID here: $(pwd)"
env | grep -c '^ABIES_' > variables
case $1 in
    fail) echo broken >&2; exit 3 ;;
    hang) sleep 60 ;;
    show*) cp "$ABIES_JOB_FILE" job ;;
    again) [ $ABIES_HOOK != handle_error ] || echo '{"state": "RESTART_READY", "data": {"tries": 2}, "tags": {"again": "yes"}}' > "$ABIES_RESULT_FILE" ;;
    nonsense) echo '{"state": "DREAMING"}' > "$ABIES_RESULT_FILE" ;;
    torn) echo '{"state": ' > "$ABIES_RESULT_FILE" ;;
esac
"""

PLAIN = """
name: plain
command: cat in.txt
transfers:
  input: {direction: in, local_path: in.txt}
  output: {direction: out, local_path: out.txt}
"""


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("site"), settings=SETTINGS) as centre:
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    site = centre.site("alpha")
    (site.path / "apps" / "hook.sh").write_text(HOOK)
    (site.path / "apps" / "hook.sh").chmod(0o755)
    site.hooked = site.app("hooked", HOOKED)
    site.plain = site.app("plain", PLAIN)
    return site


@pytest.fixture
def add(centre, site, request):
    """add(app, parameters...) makes one job in a work directory of its own."""
    count = iter(range(1000))

    def make(app, **fields):
        workdir = f"{request.node.name[:40]}/{os.urandom(3).hex()}-{next(count)}"
        return centre.post("/jobs/", [{"app_id": app, "workdir": workdir, **fields}])[0]
    return make


def state_of(centre, job):
    return centre.get(f"/jobs/{job['id']}")["state"]


def reaches(centre, job, state, deadline=30):
    return wait_for(lambda: state_of(centre, job) == state, deadline, f"job {job['id']} in {state}")


def why(centre, job, state="FAILED"):
    events = centre.get(f"/events/?job_id={job['id']}&to_state={state}")["results"]
    assert len(events) == 1, events
    return events[0]["data"].get("message", "")


# ---------------------------------------------------------------------- hooks

def test_a_hook_runs_in_the_work_directory_with_its_words_whole(centre, site, add):
    word = "a b; touch /tmp/owned $(touch /tmp/owned) 'x' \"y\""
    job = add(site.hooked, parameters={"word": word})
    reaches(centre, job, "PREPROCESSED")
    folder = site.path / "data" / job["workdir"]
    assert (folder / "args").read_text() == word + "\n"
    assert f"preprocess of {job['id']} here: {folder}" in (folder / "abies.log").read_text()
    assert not pathlib.Path("/tmp/owned").exists()


def test_the_environment_of_a_hook_holds_nothing_of_ours(site, centre, add):
    job = add(site.hooked)
    reaches(centre, job, "PREPROCESSED")
    # ID WORKDIR APP ATTEMPT SITE_PATH NUM_NODES RANKS_PER_NODE THREADS_PER_RANK HOOK JOB_FILE RESULT_FILE
    assert (site.path / "data" / job["workdir"] / "variables").read_text() == "11\n"


@pytest.mark.parametrize("word, text", [("fail", "ended with status 3"), ("hang", "took longer than 2 s"),
                                        ("nonsense", "DREAMING"), ("torn", "JSON"), ("--option", "starts with `-`")])
def test_a_hook_that_goes_wrong_fails_its_job_with_the_reason(centre, site, add, word, text):
    job = add(site.hooked, parameters={"word": word})
    reaches(centre, job, "FAILED")
    assert text.lower() in why(centre, job).lower()


@pytest.mark.parametrize("parameters, text", [({"n": "many"}, "whole number"), ({"m": 1}, "no parameter m"), ({"n": [1]}, "must be a text"),
                                              ({"word": "a\u0001b"}, "control character")])
def test_parameters_that_do_not_fit_fail_the_job_with_the_reason(centre, site, add, parameters, text):
    job = add(site.hooked, parameters=parameters)
    reaches(centre, job, "FAILED")
    assert text in why(centre, job)


def test_a_hook_gets_pickled_values_as_its_words_and_in_its_file(centre, site, add):
    pickled = lambda v: base64.b64encode(pickle.dumps(v)).decode()
    job = add(site.hooked, serialized_parameters=pickled({"word": "show me"}))
    reaches(centre, job, "PREPROCESSED")
    folder = site.path / "data" / job["workdir"]
    assert (folder / "args").read_text() == "show me\n"
    assert json.loads((folder / "job").read_text())["parameters"] == {"word": "show me"}
    job = add(site.hooked, serialized_parameters=pickled({"word": {1, 2}}))
    reaches(centre, job, "FAILED")
    assert "serialized_parameters: is a set (EMPTY_SET" in why(centre, job)


def test_an_error_hook_may_send_the_job_back_and_note_why(centre, site, add):
    job = add(site.hooked, parameters={"word": "again"}, tags={"mine": "1"}, data={"kept": True})
    reaches(centre, job, "PREPROCESSED")
    centre.patch("/jobs/", [{"id": job["id"], "state": "RUN_ERROR"}])
    reaches(centre, job, "RESTART_READY")
    now = centre.get(f"/jobs/{job['id']}")
    assert now["tags"] == {"mine": "1", "again": "yes"}
    assert now["data"] == {"kept": True, "tries": 2}


def test_without_hooks_the_contract_s_next_state_follows(centre, site, add):
    for state, following in (("RUN_DONE", "JOB_FINISHED"), ("RUN_ERROR", "FAILED"), ("RUN_TIMEOUT", "RESTART_READY")):
        job = add(site.plain)
        reaches(centre, job, "PREPROCESSED")
        centre.patch("/jobs/", [{"id": job["id"], "state": state}])
        reaches(centre, job, following)


def test_an_app_without_a_file_fails_its_jobs(centre, site, add):
    made = centre.post("/apps/", {"site_id": site.id, "name": "ghost", "serialized_class": "", "source_code": ""})
    job = add(made["id"])
    reaches(centre, job, "FAILED")
    assert "ghost" in why(centre, job)


@pytest.mark.parametrize("workdir", ["../outside", "a/../../outside", "link/x"])
def test_a_work_directory_cannot_lie_elsewhere(centre, site, workdir):
    link = site.path / "data" / "link"
    if not link.is_symlink():
        (site.path / "data").mkdir(exist_ok=True)
        link.symlink_to("/tmp")
    job = centre.post("/jobs/", [{"app_id": site.hooked, "workdir": workdir}])[0]
    reaches(centre, job, "FAILED")
    assert not (site.path / "outside").exists()


# ---------------------------------------------------------------------- transfers

def with_files(site, name, content="x\n"):
    if content is not None:
        (site.beamline / f"{name}.in").write_text(content)
    return {slot: {"location_alias": "beamline", "path": f"/{name}.{slot}"} for slot in ("input", "output")} | {
        "input": {"location_alias": "beamline", "path": f"/{name}.in"}}


def test_files_come_in_and_go_out(centre, site, add):
    job = add(site.plain, transfers=with_files(site, "there", "hello\n"))
    reaches(centre, job, "PREPROCESSED")
    folder = site.path / "data" / job["workdir"]
    assert (folder / "in.txt").read_text() == "hello\n"
    (folder / "out.txt").write_text("bye\n")
    centre.patch("/jobs/", [{"id": job["id"], "state": "RUN_DONE"}])
    reaches(centre, job, "JOB_FINISHED")
    assert (site.beamline / "there.output").read_text() == "bye\n"


def test_a_missing_file_is_an_error_of_its_item_until_somebody_tries_again(centre, site, add):
    job = add(site.plain, transfers=with_files(site, "late", None))
    items = lambda: centre.get(f"/transfers/?job_id={job['id']}&direction=in")["results"]
    wait_for(lambda: items()[0]["state"] == "error", 20, "the item fails")
    assert "late.in" in items()[0]["transfer_info"]["error"]
    assert state_of(centre, job) == "READY"
    (site.beamline / "late.in").write_text("now\n")
    centre.patch("/transfers/", [{"id": items()[0]["id"], "state": "pending"}])
    reaches(centre, job, "PREPROCESSED")


def test_a_child_stages_in_only_after_its_parent_has_staged_out(centre, site, add):
    parent = add(site.plain, transfers=with_files(site, "parent"))
    child = add(site.plain, parent_ids=[parent["id"]],
                transfers={"input": {"location_alias": "beamline", "path": "/parent.output"}})
    reaches(centre, parent, "PREPROCESSED")
    time.sleep(1)  # several cycles in which the child must not be touched
    assert centre.get(f"/transfers/?job_id={child['id']}")["results"][0]["state"] == "pending"
    (site.path / "data" / parent["workdir"] / "out.txt").write_text("from the parent\n")
    centre.patch("/jobs/", [{"id": parent["id"], "state": "RUN_DONE"}])
    reaches(centre, child, "PREPROCESSED")
    assert (site.path / "data" / child["workdir"] / "in.txt").read_text() == "from the parent\n"


def test_a_big_copy_goes_on_while_its_module_is_killed(centre, site, add):
    size = 300 * 1024 * 1024
    with open(site.beamline / "big.in", "wb") as f:
        f.truncate(size)
    job = add(site.plain, transfers=with_files(site, "big", None))
    wait_for(lambda: centre.get(f"/transfers/?job_id={job['id']}&direction=in")["results"][0]["state"] != "pending", 20, "it begins")
    for pid in site.processes("abies-module-transfer"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    reaches(centre, job, "PREPROCESSED", 60)
    assert (site.path / "data" / job["workdir"] / "in.txt").stat().st_size == size
    assert centre.get(f"/events/?job_id={job['id']}&to_state=STAGED_IN")["count"] == 1
    os.unlink(site.path / "data" / job["workdir"] / "in.txt")


def test_an_item_whose_task_is_lost_is_done_again(centre, site, add):
    site.stop()
    job = add(site.plain, transfers=with_files(site, "orphan"))
    item = centre.get(f"/transfers/?job_id={job['id']}&direction=in")["results"][0]
    centre.patch("/transfers/", [{"id": item["id"], "state": "active", "task_id": "local:00000000-0000-7000-8000-000000000000"}])
    site.start()
    reaches(centre, job, "PREPROCESSED")


def test_rsync_brings_and_fetches_over_ssh(centre, add):
    ssh = centre.folder / "ssh"
    subprocess.run([ROOT / "tests" / "lib" / "sshd.sh", ssh, "start"], check=True, timeout=30)
    try:
        far = centre.folder / "far"
        far.mkdir()
        (far / "a.in").write_text("from afar\n")
        site = centre.site("rsync", start=False)
        text = (site.path / "settings.yml").read_text()
        text = text.replace(f"local://localhost{site.beamline}", f"rsync://ci{far}").replace("transfers:\n", f"transfers:\n  ssh_config: {ssh}/ssh_config\n")
        (site.path / "settings.yml").write_text(text)
        site.start()
        app = site.app("plain", PLAIN)
        wait_for(lambda: centre.get(f"/sites/{site.id}")["transfer_locations"]["beamline"].startswith("rsync:"), 20, "the site's fields")
        job = add(app, transfers={"input": {"location_alias": "beamline", "path": "/a.in"}, "output": {"location_alias": "beamline", "path": "/out/a.txt"}})
        reaches(centre, job, "PREPROCESSED")
        folder = site.path / "data" / job["workdir"]
        assert (folder / "in.txt").read_text() == "from afar\n"
        (folder / "out.txt").write_text("back\n")
        centre.patch("/jobs/", [{"id": job["id"], "state": "RUN_DONE"}])
        reaches(centre, job, "JOB_FINISHED")
        assert (far / "out" / "a.txt").read_text() == "back\n"
        site.stop()
    finally:
        subprocess.run([ROOT / "tests" / "lib" / "sshd.sh", ssh, "stop"], check=True, timeout=30)


# ---------------------------------------------------------------------- the agent

def health(site):
    try:
        return json.loads((site.path / "run" / "health.json").read_text())
    except FileNotFoundError:
        return None


def test_what_happens_while_the_centre_is_away_is_told_later_and_once(centre, site, add):
    slow = site.app("slow", "name: slow\ncommand: 'true'\nhooks: {preprocess: [sleep, '2']}\n")
    jobs = [add(slow) for _ in range(4)]
    wait_for(lambda: (site.path / "run" / "spool" / "hooks" / f"{jobs[0]['id']}.pid").exists(), 20, "hooks run")
    gateways = [row["pid"] for row in centre.processes("gateway")]
    for pid in gateways:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: health(site)["outbox"]["updates"] > 0, 20, "an update waits in the outbox")
        broker = site.processes("abies-site")
        os.kill(broker[0], signal.SIGKILL)
        wait_for(lambda: not alive(broker[0]) and not site.processes("abies-module-"), 20, "broker and modules are gone")
    finally:
        for pid in gateways:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
    site.start()
    for job in jobs:
        reaches(centre, job, "PREPROCESSED", 60)
        assert centre.get(f"/events/?job_id={job['id']}&to_state=PREPROCESSED")["count"] == 1
    wait_for(lambda: health(site)["outbox"]["updates"] == 0, 20, "the outbox is empty")


def test_a_second_agent_of_the_same_site_is_refused(centre, site):
    wait_for(lambda: health(site), 20, "the site runs")
    second = centre.run([BIN / "abies-site", "--site", str(site.path)], check=False)
    assert second.returncode == 3
    assert "already runs" in second.stderr
    assert health(site)["pid"] in site.processes("abies-site")


def test_a_stopped_site_gives_back_what_it_held(centre, site, add):
    hang = site.app("waits", "name: waits\ncommand: 'true'\nhooks: {preprocess: [sleep, '60']}\n")
    jobs = [add(hang) for _ in range(3)]
    wait_for(lambda: all(centre.get(f"/jobs/{j['id']}")["session_id"] for j in jobs), 20, "all are held")
    begun = time.monotonic()
    site.stop()
    assert time.monotonic() - begun < 10
    assert not site.processes("abies-module-") and not site.processes("sleep 60")
    for job in jobs:
        now = centre.get(f"/jobs/{job['id']}")
        assert now["session_id"] is None and now["state"] == "STAGED_IN"
    centre.request("DELETE", "/jobs/?" + "&".join(f"id={j['id']}" for j in jobs), status=204)
    site.start()


def test_wrong_settings_are_said_at_start(centre, site):
    site.stop()
    file = site.path / "settings.yml"
    right = file.read_text()
    file.write_text(right.replace("prefetch_depth", "prefetch_dept"))
    try:
        done = centre.run([BIN / "abies-site", "--site", str(site.path)], check=False)
        assert done.returncode == 1
        assert "prefetch_depth" in done.stderr
    finally:
        file.write_text(right)
    site.start()


def test_files_of_finished_jobs_are_cleaned_up(centre, site, add):
    site.stop()
    file = site.path / "settings.yml"
    file.write_text(file.read_text() + "\nfile_cleaner: {service_period: 0.2s}\n")
    site.start()
    job = add(site.hooked)
    reaches(centre, job, "PREPROCESSED")
    folder = site.path / "data" / job["workdir"]
    (folder / "scratch" / "deep").mkdir(parents=True)
    for name in ("a.tmp", "keep.txt", "scratch/deep/x"):
        (folder / name).write_text("")
    centre.patch("/jobs/", [{"id": job["id"], "state": "RUN_DONE"}])
    wait_for(lambda: not centre.get(f"/jobs/{job['id']}")["pending_file_cleanup"], 30, "the cleaner is done")
    assert (folder / "keep.txt").exists()
    assert not (folder / "a.tmp").exists() and not (folder / "scratch" / "deep" / "x").exists()


def test_a_site_stops_in_ten_seconds_while_the_centre_is_away(centre, site):
    wait_for(lambda: health(site), 20, "the site runs")
    gateways = [row["pid"] for row in centre.processes("gateway")]
    for pid in gateways:
        os.kill(pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        site.stop()
        assert time.monotonic() - begun < 10
        assert not site.processes("abies-module-") and not site.processes("abies-site")
    finally:
        for pid in gateways:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
    centre.ready()
    site.start()


def test_the_token_is_renewed_before_it_ends(centre, site, add):
    site.stop()
    file = site.path / "client.yml"
    before = file.read_text()
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 60))
    assert "refresh_token" in before and "token_expiry" in before
    file.write_text(re.sub(r"(?m)^token_expiry:.*$", f"token_expiry: '{soon}'", before))
    site.start()
    wait_for(lambda: soon not in file.read_text(), 20, "the token is renewed")
    after = file.read_text()
    assert re.search(r"(?m)^refresh_token:.*$", after)[0] != re.search(r"(?m)^refresh_token:.*$", before)[0]
    assert file.stat().st_mode & 0o777 == 0o600
    job = add(site.plain)
    reaches(centre, job, "PREPROCESSED")
