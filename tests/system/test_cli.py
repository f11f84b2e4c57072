"""The command line program against a real centre: what people and scripts type."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from centre import BIN, Centre, ROOT, alive, temporary_folder, wait_for

SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "beat": "250ms", "dead": "1500ms"}

ECHO = """
name: echo
description: says a word
command: echo {{word}} {{n}}
parameters:
  word: {type: string, help: what to say}
  n: {type: int, default: 1}
transfers:
  input: {direction: in, local_path: in.txt, required: false, description: a file}
"""


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("cli"), settings=SETTINGS) as centre:
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    site = centre.site("one")
    site.app("echo", ECHO)
    return site


@pytest.fixture(scope="module")
def quiet(centre):
    """A site whose agent does not run: jobs change their state only when a test says so."""
    site = centre.site("quiet", start=False)
    site.app("echo", ECHO)
    def cli(*args, **kw):
        return centre.cli(*args, env=site.env, **kw)
    return cli


@pytest.fixture
def here(site):
    """The command line inside of the site."""
    def cli(*args, **kw):
        return site.centre.cli(*args, env=site.env, **kw)
    return cli


def make(here, tag, n=1, app="echo"):
    jobs = [{"app": app, "workdir": f"{tag}/{i}", "parameters": {"word": "w"}, "tags": {"t": tag}} for i in range(n)]
    return [int(x) for x in here("job", "create", "--from", "-", stdin=json.dumps(jobs)).stdout.split()]


# ------------------------------------------------------------------ help and mistakes

def commands():
    text = subprocess.run([BIN / "abies", "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", text, re.M)


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_and_json(centre, command):
    done = centre.cli(*command.split(), "--help")
    assert done.stdout.startswith(f"Usage: abies {command}")
    assert "--json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 140
    assert centre.cli("help", *command.split()).stdout == done.stdout


def test_man_pages_are_current():
    subprocess.run([ROOT / "scripts" / "man", "--check", BIN.parent], check=True)
    pages = {p.name for p in (ROOT / "docs" / "man").glob("*.1")}
    of_commands = {f"abies-{c.replace(' ', '-')}.1" for c in commands()} | {"abies.1"}
    of_programs = {f"{p.name}.1" for p in BIN.glob("abies-*")}
    assert of_commands <= pages, "every command has its page"
    assert pages <= of_commands | of_programs, "every page is of something"


def test_mistakes_say_what_to_do(centre):
    for args, text in ((["jbo"], "did you mean `job`?"), (["job", "lst"], "did you mean `job ls`?"), (["job", "ls", "--stat=x"], "did you mean --state?"),
                       (["job", "ls", "--site", "all", "--state", "FINISHED"], "did you mean JOB_FINISHED?"), (["job", "rm"], "Give ids"),
                       (["queue", "submit"], "needed: -n NODES"), (["site", "start", "/nowhere"], "/nowhere"), (["job", "show"], "Give its id"),
                       (["job", "show", "x"], "no id"), (["job", "show", "999999"], "no job 999999"), (["app", "sync"], "in no site")):
        done = centre.cli(*args, check=False)
        assert done.returncode in (1, 2) and text in done.stderr, (args, done.stderr)
        assert done.stderr.startswith("abies") and done.stderr.count("\n") == 1
    assert centre.cli("job", check=False).returncode == 2


def test_without_a_client_file_it_says_how_to_get_one(centre):
    done = centre.cli("job", "ls", check=False, env={"ABIES_CLIENT_PATH": str(centre.folder / "none.yml")})
    assert done.returncode == 1 and "abies up" in done.stderr and "abies login" in done.stderr


# ------------------------------------------------------------------ accounts

def test_register_login_logout(centre):
    path = centre.folder / "tenant.yml"
    env = {"ABIES_CLIENT_PATH": str(path)}
    password = "correct horse battery"
    where = ["--url", centre.root, "--ca-file", centre.ca, "--username", "tenant", "--password-file", "-"]
    assert "registered and logged in as tenant" in centre.cli("register", *where, env=env, stdin=password + "\n").stdout
    assert path.stat().st_mode & 0o777 == 0o600 and password not in path.read_text()
    assert centre.cli_json("whoami", env=env)["username"] == "tenant"
    assert "already logged in as tenant" in centre.cli("login", env=env).stdout
    centre.cli("logout", env=env)
    assert centre.cli("whoami", env=env, check=False).returncode == 1
    done = centre.cli("login", "--username", "tenant", "--password-file", "-", env=env, stdin="wrong\n", check=False)
    assert done.returncode == 1
    centre.cli("login", "--username", "tenant", "--password-file", "-", env=env, stdin=password)
    assert centre.cli_json("whoami", env=env)["username"] == "tenant"
    done = centre.cli("register", *where, env=env, stdin=password, check=False)
    assert done.returncode == 1 and "tenant" in done.stderr


def test_nobody_is_asked_where_there_is_no_terminal(centre):
    done = subprocess.run([BIN / "abies", "login", "--url", centre.root, "--force"], env=centre.env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, start_new_session=True, timeout=30)
    assert done.returncode == 1 and "no terminal" in done.stderr


# ------------------------------------------------------------------ sites

def test_a_site_is_a_new_folder_with_a_token_of_its_own(centre, site):
    assert {p.name for p in site.path.iterdir()} >= {".abies-site", "settings.yml", "client.yml", "job-template.sh", "apps", "data", "log", "qsubmit"}
    assert (site.path / "client.yml").stat().st_mode & 0o777 == 0o600
    user = (centre.user_home / ".abies" / "client.yml").read_text()
    token = re.search(r"^token: (\S+)", (site.path / "client.yml").read_text(), re.M)[1]
    assert token not in user
    http = centre.session(token)
    assert http.get(f"{centre.root}/sites/{site.id}", timeout=10).status_code == 200
    assert http.post(f"{centre.root}/sites/", json={"name": "more", "path": "/more"}, timeout=10).status_code == 403
    done = centre.cli("site", "init", site.path, check=False)
    assert done.returncode == 1 and "exists already" in done.stderr


def test_a_failed_init_leaves_neither_folder_nor_record(centre):
    path = centre.folder / "broken"
    before = centre.get("/sites/")["count"]
    for location in ("beamline", "x=nothing", "=local://localhost/"):
        done = centre.cli("site", "init", "--location", location, path, check=False)
        assert done.returncode == 1 and "--location" in done.stderr
        assert not path.exists()
    assert centre.cli("site", "init", "--location", "b=foo://host/x", path, check=False).returncode in (0, 1)
    if not path.exists():
        assert centre.get("/sites/")["count"] == before
    else:
        centre.cli("site", "rm", "-y", path)
    done = centre.cli("site", "init", "--name", "x" * 300, path, check=False)  # refused by the centre
    assert done.returncode == 1 and not path.exists()
    assert centre.get("/sites/")["count"] == before


def test_start_and_stop_are_idempotent(centre, site):
    first = centre.cli_json("site", "start", site.path)
    assert first["was_running"] and first["reached"]
    assert "runs already" in centre.cli("site", "start", site.path).stdout
    row = [x for x in centre.cli("site", "ls").stdout.splitlines() if str(site.path) in x]
    assert "runs here" in row[0]
    centre.cli("site", "stop", site.path)
    assert not alive(first["pid"])
    assert "does not run" in centre.cli("site", "stop", site.path).stdout
    assert "stopped" in centre.cli("site", "ls").stdout
    assert not centre.cli_json("site", "start", env=site.env)["was_running"]  # by ABIES_SITE_PATH


def test_a_wrong_settings_file_is_said_at_start(centre):
    site = centre.site("wrong", start=False)
    with open(site.path / "settings.yml", "a") as f:
        f.write("\nprocesing: {}\n")
    done = centre.cli("site", "start", site.path, check=False)
    assert done.returncode == 1 and "procesing" in done.stderr and "did you mean `processing`?" in done.stderr, done.stderr


def test_settings_that_the_centre_refuses_are_said_at_start(centre):
    site = centre.site("refused", start=False)
    text = (site.path / "settings.yml").read_text()
    (site.path / "settings.yml").write_text(re.sub(r"(    beamline:) .*", r'\1 "rsync://two..dots/x"', text))
    done = centre.cli("site", "start", site.path)
    assert "does not take" in done.stderr and "beamline" in done.stderr, done.stderr
    centre.cli("site", "stop", site.path)
    (site.path / "settings.yml").write_text(text)
    assert centre.cli("site", "start", site.path).stderr == ""
    assert centre.get(f"/sites/{site.id}")["transfer_locations"]["beamline"], "the centre knows it when `site start` is back"


def test_a_site_is_deleted_with_its_jobs(centre):
    site = centre.site("gone", start=False)
    site.app("echo", ECHO)
    make(lambda *a, **k: centre.cli(*a, env=site.env, **k), "gone", 3)
    done = centre.cli("site", "rm", site.path, check=False)
    assert done.returncode == 1 and "its 3 jobs" in done.stderr and "--yes" in done.stderr
    assert centre.cli_json("site", "rm", "-y", site.path) == {"deleted": site.id, "jobs": 3}
    assert not site.path.exists()
    assert centre.request("GET", f"/sites/{site.id}").status_code == 404
    centre.sites.remove(site)


def test_a_site_whose_folder_is_lost_is_deleted_by_its_id(centre):
    site = centre.site("lost", start=False)
    centre.sites.remove(site)
    shutil.rmtree(site.path)
    done = centre.cli("site", "rm", str(site.id), check=False)
    assert done.returncode == 1 and "not on this machine" in done.stderr
    assert centre.cli_json("site", "rm", "-y", str(site.id)) == {"deleted": site.id, "jobs": 0}
    assert "there is no site" in centre.cli("site", "rm", "-y", str(site.id), check=False).stderr
    assert f"there is no site {site.id}" in centre.cli("job", "ls", "--site", str(site.id), check=False).stderr


def test_a_location_that_nothing_can_reach_is_said_at_init(centre):
    for url, why in {"ftp://host/data": "ftp", "local://elsewhere/data": "rsync://elsewhere", "/data": "ALIAS="}.items():
        done = centre.cli("site", "init", "--location", f"a={url}", centre.folder / "never", check=False)
        assert done.returncode == 1 and why in done.stderr, done.stderr
    assert not (centre.folder / "never").exists()


@pytest.mark.parametrize("command", ["down", "status", "whoami", "logout", "site ls", "app ls", "queue ls", "login --url https://127.0.0.1"])
def test_an_argument_too_many_stops_a_command_before_it_does_anything(centre, command):
    done = centre.cli(*command.split(), "extra", check=False)
    assert done.returncode == 1 and "unexpected argument `extra`" in done.stderr, done.stderr


# ------------------------------------------------------------------ apps

def test_app_sync_creates_updates_and_names_what_is_wrong(centre, site, here):
    (site.path / "apps" / "more.yml").write_text("name: more\ncommand: echo more\n")
    rows = {r["name"]: r for r in json.loads(here("app", "sync", "--json").stdout)}
    assert rows["more"]["result"] == "created" and rows["echo"]["result"] == "unchanged"
    (site.path / "apps" / "more.yml").write_text("name: more\ncommand: echo less\n")
    rows = {r["name"]: r for r in json.loads(here("app", "sync", "more", "--json").stdout)}
    assert list(rows) == ["more"] and rows["more"]["result"] == "updated"
    (site.path / "apps" / "bad.yml").write_text("name: bad\ncomand: x\n")
    done = here("app", "sync", check=False)
    assert done.returncode == 1 and "did you mean `command`?" in done.stderr
    (site.path / "apps" / "bad.yml").unlink()
    assert {a["name"] for a in json.loads(here("app", "ls", "--json").stdout)} == {"echo", "more"}
    assert "word*, n=1" in here("app", "ls", "-v").stdout
    assert json.loads(here("app", "rm", "-y", "more", "--json").stdout)["jobs"] == 0
    (site.path / "apps" / "more.yml").unlink()


# ------------------------------------------------------------------ jobs

def test_one_job_from_options(centre, site, here):
    out = here("job", "create", "-y", "-w", "a/b", "-a", "echo", "-tag", "x=1", "--tag", "y=a=b", "--param", "word=hello", "-rpn", "2", "-npc", "3",
               "-lp", "opt=1", "-t", "7", "--priority", "5", "-g", "0.5").stdout
    job = centre.get(f"/jobs/{int(out)}")
    assert job["workdir"] == "a/b" and job["tags"] == {"x": "1", "y": "a=b"} and job["parameters"] == {"word": "hello"}
    assert (job["ranks_per_node"], job["node_packing_count"], job["wall_time_min"], job["priority"], job["gpus_per_rank"]) == (2, 3, 7, 5, 0.5)
    assert job["launch_params"] == {"opt": "1"}
    child = json.loads(here("job", "create", "-y", "-w", "c", "-a", "echo", "-p", "word=x", "-pid", out.strip(), "-s", "input=beamline:/d/in.txt", "--json").stdout)
    assert child[0]["parent_ids"] == [int(out)] and child[0]["state"] == "AWAITING_PARENTS"
    shown = json.loads(here("job", "show", child[0]["id"], "--json").stdout)[0]
    assert shown["transfers"][0]["remote_path"] == "/d/in.txt"
    assert [e["to_state"] for e in shown["events"]] == ["AWAITING_PARENTS"]
    assert "/d/in.txt" in here("job", "show", child[0]["id"]).stdout


def test_a_wrong_job_is_not_created(centre, here):
    before = centre.get("/jobs/?limit=0")["count"]
    for args, text in ((["-p", "wrd=x"], "did you mean `word`?"), ([], "needs parameter `word`"), (["-p", "word"], "KEY=VALUE"),
                       (["-p", "word=x", "-s", "input=nowhere"], "SLOT=LOCATION:/PATH"), (["-p", "word=x", "-pid", "99999999"], "only 0 of the 1 parents"),
                       (["-p", "word=x", "-s", "inptu=a:/x"], "did you mean `input`?"), (["-p", "word=x", "-n", "0"], "num_nodes")):
        done = here("job", "create", "-y", "-w", "w", "-a", "echo", *args, check=False)
        assert done.returncode == 1 and text in done.stderr, (args, done.stderr)
    assert here("job", "create", "-y", "-w", "w", "-a", "ecoh", check=False).returncode == 1
    assert "app sync" in here("job", "create", "-y", "-w", "w", "-a", "ecoh", check=False).stderr
    assert centre.get("/jobs/?limit=0")["count"] == before


def test_many_jobs_from_a_file_in_order(centre, quiet):
    ids = make(quiet, "many", 6001)  # more than one request
    assert len(ids) == 6001 and ids == sorted(ids)
    assert centre.get("/jobs/?tags=t:many&limit=0")["count"] == 6001
    assert centre.get(f"/jobs/{ids[6000]}")["workdir"] == "many/6000"
    rows = json.loads(quiet("job", "ls", "-t", "t=many", "--limit", "0", "--json").stdout)
    assert [r["id"] for r in rows] == ids
    done = quiet("job", "ls", "-t", "t=many", "-n", "2")
    assert len(done.stdout.splitlines()) == 3 and f"{ids[6000]}" in done.stdout and "the last 2 of 6001" in done.stderr
    assert json.loads(quiet("job", "rm", "-y", "-t", "t=many", "--json").stdout) == {"deleted": 6001}


def test_a_wrong_file_names_the_job(centre, here):
    good = {"app": "echo", "workdir": "w", "parameters": {"word": "w"}}
    for text, said in (("{}", "a JSON list"), ("[", "-:"), (json.dumps([good, 3]), "job 2"), (json.dumps([good, {"app": "none"}]), "job 2")):
        done = here("job", "create", "--from", "-", stdin=text, check=False)
        assert done.returncode == 1 and said in done.stderr, (text, done.stderr)
    assert here("job", "create", "--from", "/no/such/file", check=False).returncode == 1


def test_ls_by_state_and_filters(centre, quiet):
    ids = make(quiet, "filters", 3)
    centre.patch("/jobs/", [{"id": ids[0], "state": "FAILED"}])
    counts = json.loads(quiet("job", "ls", "-t", "t=filters", "--by-state", "--json").stdout)
    assert counts["FAILED"] == 1 and sum(counts.values()) == 3
    def found(*args):
        return [r["id"] for r in json.loads(quiet("job", "ls", "-t", "t=filters", *args, "--json").stdout)]
    assert found("-s", "failed") == [ids[0]]
    assert found("-ns", "FAILED") == ids[1:]
    assert found("-w", "filters/2") == [ids[2]]
    assert found("-a", "echo") == ids
    assert found(str(ids[1])) == [ids[1]]
    assert [r["id"] for r in centre.cli_json("job", "ls", "-i", f"{ids[0]},{ids[2]}")] == [ids[0], ids[2]]  # outside of a site
    quiet("job", "modify", "-y", "-t", "t=filters", "-s", "restart_ready")
    assert found("-s", "RESTART_READY") == ids
    assert json.loads(quiet("job", "cancel", "-y", "-t", "t=filters", "--reason", "enough", "--json").stdout)["cancelled"] == 3
    assert "enough" in quiet("job", "show", ids[0]).stdout
    assert quiet("job", "rm", "-t", "t=filters", check=False).returncode == 1  # nobody to ask
    quiet("job", "rm", "-y", "-t", "t=filters")


def test_nothing_in_a_job_reaches_the_terminal(centre, quiet):
    jobs = [{"app": "echo", "workdir": "esc", "parameters": {"word": "\x1b[2J"}, "tags": {"t": "esc", "\x1b]0;x\x07": "\x1b[31m"}}]
    id = quiet("job", "create", "--from", "-", stdin=json.dumps(jobs)).stdout.strip()
    for args in (["job", "ls", "-v", "-t", "t=esc"], ["job", "show", id]):
        assert "\x1b" not in quiet(*args).stdout
    quiet("job", "rm", "-y", id)


def test_tables_fit_the_terminal(centre, here):
    make(here, "a-rather-long-name-for-a-workflow-of-some-user", 2)
    for width in ("60", "80", "120"):
        out = here("job", "ls", "-v").stdout if width == "0" else centre.cli("job", "ls", "--site", "all", env={"COLUMNS": width}).stdout
        assert max(map(len, out.splitlines())) <= int(width)


# ------------------------------------------------------------------ wait, times, watch, queue: a workflow

def test_wait_counts_failures_and_gives_up_in_time(centre, quiet):
    ids = make(quiet, "wait", 2)
    began = time.monotonic()
    done = quiet("job", "wait", "-t", "t=wait", "--timeout", "700ms", check=False)
    assert done.returncode == 1 and "the time is over" in done.stdout and time.monotonic() - began < 10
    waiter = subprocess.Popen([BIN / "abies", "job", "wait", "-t", "t=wait", "--json"], env=centre.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    centre.patch("/jobs/", [{"id": ids[0], "state": "JOB_FINISHED"}])
    centre.patch("/jobs/", [{"id": ids[1], "state": "FAILED", "state_data": {"message": "out of luck"}}])
    out, err = waiter.communicate(timeout=30)
    assert waiter.returncode == 1 and json.loads(out) == {"jobs": 2, "finished": 1, "failed": 1, "timeout": False}
    assert f"job {ids[1]} failed: message=out of luck" in err
    assert quiet("job", "wait", str(ids[0])).stdout == "1 job: 1 finished, 0 failed\n"
    assert quiet("job", "wait", "-t", "t=nothing", check=False).returncode == 1


def test_times_come_from_the_events(centre, quiet):
    ids = make(quiet, "times", 2)
    base = 1800000000
    for i, id in enumerate(ids):
        for state, at in (("PREPROCESSED", 10), ("RUNNING", 13), ("RUN_DONE", 20 + i), ("POSTPROCESSED", 22), ("JOB_FINISHED", 30)):
            centre.patch("/jobs/", [{"id": id, "state": state, "state_timestamp": base + at}])
    stages = {s["stage"]: s for s in json.loads(quiet("job", "times", "-t", "t=times", "--json").stdout)["stages"]}
    assert stages["stage in"]["count"] == 0
    assert stages["queue"] == {"stage": "queue", "count": 2, "median": 3, "p95": 3, "max": 3}
    assert (stages["run"]["median"], stages["run"]["p95"]) == (7, 8)
    assert stages["stage out"]["count"] in (0, 2)
    assert "stage out" in quiet("job", "times", *map(str, ids)).stdout


def test_watch_shows_events_as_they_happen(centre, quiet):
    ids = make(quiet, "watch", 1)
    watcher = subprocess.Popen([BIN / "abies", "watch", "-t", "t=watch", "-n", "2", "--timeout", "60s", "--json"], env=centre.env, stdout=subprocess.PIPE,
                               text=True)
    def two_changes():
        centre.patch("/jobs/", [{"id": ids[0], "state": "RUNNING"}])
        centre.patch("/jobs/", [{"id": ids[0], "state": "RUN_DONE"}])
        return watcher.poll() is not None
    wait_for(two_changes, 30, "two events", every=0.3)
    events = [json.loads(line) for line in watcher.stdout]
    watcher.stdout.close()
    assert watcher.returncode == 0 and len(events) == 2 and {e["job_id"] for e in events} == set(ids)
    quiet = centre.cli("watch", "--site", "all", "-i", ids[0], "-s", "FAILED", "-n", "1", "--timeout", "500ms", check=False)
    assert quiet.returncode == 1 and quiet.stdout == ""
    interrupted = subprocess.Popen([BIN / "abies", "watch"], env=centre.env)
    wait_for(lambda: "S" in open(f"/proc/{interrupted.pid}/stat").read(), 5)
    time.sleep(0.5)  # it has no sign of being ready to wait for
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait(10) in (0, -signal.SIGINT)


def test_queue_submit_is_checked_against_the_site(centre, site, here):
    wait_for(lambda: centre.get(f"/sites/{site.id}")["allowed_queues"], 30, "the site's queues")
    base = ["queue", "submit", "-n", "1", "-t", "5", "-q", "local", "-A", "local", "-j", "serial"]
    for change, text in ((["-q", "lcal"], "it has `local`"), (["-n", "3"], "from 1 to 1 nodes"), (["-t", "99999"], "1440 minutes"), (["-A", "x"], "project"),
                         (["-j", "seril"], "did you mean serial?"), (["-x", "a=b"], "takes no parameter"), (["-p", "mpi:2"], "--num-nodes is 1"),
                         (["-p", "mpi"], "MODE:NODES")):
        done = here(*base, *change, check=False)
        assert done.returncode == 1 and text in done.stderr, (change, done.stderr)
    made = json.loads(here(*base, "-tag", "none=such", "-p", "serial:1:a=b", "--json").stdout)
    assert made["filter_tags"] == {"none": "such"} and made["partitions"][0]["filter_tags"] == {"a": "b"}
    def listed(*args):
        return [r["id"] for r in json.loads(here("queue", "ls", *args, "--json").stdout)]
    assert listed() == [made["id"]]
    here("queue", "rm", made["id"])
    wait_for(lambda: made["id"] not in listed(), 30, "the batch job's end")
    assert made["id"] in listed("--history")
    done = here("queue", "rm", made["id"], check=False)
    assert done.returncode == 1 and "over already" in done.stderr


def test_a_job_runs_from_submission_to_its_output(centre, site, here):
    id = here("job", "create", "-y", "-w", "real", "-a", "echo", "-p", "word=hello there", "-p", "n=3", "--tag", "t=real").stdout.strip()
    here("queue", "submit", "-n", "1", "-t", "5", "-q", "local", "-A", "local", "-j", "serial", "--tag", "t=real")
    assert here("job", "wait", id, "--timeout", "60s", timeout=90).stdout == "1 job: 1 finished, 0 failed\n"
    assert (site.path / "data" / "real" / "job.out").read_text() == "hello there 3\n"
    stages = {s["stage"]: s["count"] for s in json.loads(here("job", "times", id, "--json").stdout)["stages"]}
    assert stages["run"] == 1 and stages["whole"] == 1
