"""The commands for what Abies adds to jobs: explain, array, retry policy, backlog; also as a person sees them, on a terminal."""
import fcntl
import json
import os
import pty
import re
import select
import subprocess
import termios
import time

import pytest

from api import unique
from centre import BIN

WORD = """
name: word
command: echo {{word}} {{n}}
parameters:
  word: {type: string}
  n: {type: int, default: 1}
transfers:
  input: {direction: in, local_path: in.txt, required: false}
"""


@pytest.fixture(scope="module")
def place(api_centre):
    """A site whose agent does not run: jobs stay where a test puts them."""
    site = api_centre.site(unique("cli"), start=False)
    site.app("word", WORD)
    return site


@pytest.fixture
def abies(place):
    def run(*args, **kw):
        return place.centre.cli(*args, env=place.env, **kw)
    return run


def fails(done):
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, (done.stdout, done.stderr)
    return done.stderr


class Terminal:
    """A command with a terminal of so many columns."""

    def __init__(self, place, *args, columns=80):
        master, slave = pty.openpty()
        env = {**place.centre.env, **place.env, "COLUMNS": str(columns), "TERM": "xterm"}
        self.process = subprocess.Popen([BIN / "abies", *map(str, args)], env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.fd, self.text = master, ""

    def until(self, wanted=None, deadline=30):
        """What it shows, until it has shown `wanted`, or to its end."""
        end = time.monotonic() + deadline
        while wanted is None or wanted not in self.text:
            assert select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], self.text
            try:
                piece = os.read(self.fd, 65536)
            except OSError:  # it has gone
                piece = b""
            if not piece:
                break
            self.text += piece.decode().replace("\r\n", "\n")
        assert wanted is None or wanted in self.text, self.text
        return self.text

    def type(self, line):
        os.write(self.fd, line.encode() + b"\n")

    def end(self):
        self.until()
        os.close(self.fd)
        return self.process.wait(30)


# ------------------------------------------------------------------ arrays

def array(abies, *args, **kw):
    return abies("job", "array", "-y", "-a", "word", *args, **kw)


def test_an_array_has_a_job_for_each_combination(api_centre, abies):
    out = array(abies, "-w", "a/{{n}}-{{word}}", "--sweep", "n=1..3", "--sweep", "word=x,y", "--tag", "t=array", "-n", "2", "--priority", "4",
                "-s", "input=beamline:/in/{{word}}.dat").stdout
    ids = [int(x) for x in out.split()]
    jobs = [api_centre.get(f"/jobs/{i}") for i in ids]
    assert [j["workdir"] for j in jobs] == ["a/1-x", "a/1-y", "a/2-x", "a/2-y", "a/3-x", "a/3-y"]
    assert jobs[3]["parameters"] == {"n": "2", "word": "y"}
    assert all((j["num_nodes"], j["priority"], j["tags"]) == (2, 4, {"t": "array"}) for j in jobs)
    assert {x["remote_path"] for x in api_centre.get(f"/transfers/?job_id={ids[4]}")["results"]} == {"/in/x.dat"}


def test_values_come_from_commas_ranges_files_and_standard_input(api_centre, abies, tmp_path):
    (tmp_path / "words").write_bytes("one\r\ntwo words\n\nthrée".encode())

    def workdirs(*args, **kw):
        made = json.loads(array(abies, *args, "--json", **kw).stdout)
        assert set(made) == {"count", "ids"} and made["count"] == len(made["ids"])
        return [api_centre.get(f"/jobs/{i}")["workdir"] for i in made["ids"]]

    assert workdirs("-w", "b/{{word}}", "--sweep", f"word=@{tmp_path}/words") == ["b/one", "b/two words", "b/thrée"]
    assert workdirs("-w", "c/{{n}}", "-p", "word=w", "--sweep", "n=@-", stdin="7\n8\n") == ["c/7", "c/8"]
    assert workdirs("-w", "d/{{n}}", "-p", "word=w", "--sweep", "n=-5..20..10") == ["d/-5", "d/5", "d/15"]
    assert workdirs("-w", "e/{{word}}", "--sweep", "word=a..b,1..2") == ["e/a..b", "e/1..2"]
    assert workdirs("-w", "f/{{word}}{{n}}", "--sweep", "word=a,b", "--sweep", "n=1..2", "--zip") == ["f/a1", "f/b2"]


def test_a_wrong_array_makes_nothing_and_says_why(api_centre, abies):
    before = api_centre.get("/jobs/?limit=0")["count"]
    for args, text in ((["--sweep", "word=x,,y"], "has an empty value"), (["--sweep", "word="], "has an empty value"), (["--sweep", "word=9..1"], "from the smaller number up"),
                       (["--sweep", "word=1..100001"], "more than 100000"), (["--sweep", "word"], "KEY=VALUE"), (["--sweep", "wrd=x"], "did you mean `word`?"),
                       (["--sweep", "n=1..2"], "needs parameter `word`"), (["--sweep", "word=@/no/such"], "/no/such"), (["--sweep", "word=@/dev/null"], "has no values"),
                       (["--sweep", "word=a,b", "--sweep", "n=1..3"], "workdir does not name {{n}}"),
                       (["--sweep", "word=a,b", "--sweep", "n=1..3", "--zip"], "n=1..3 has 3"), (["--sweep", "word=1..1000", "--sweep", "n=1..1000"], "at most 100000"),
                       ([], "--sweep NAME=VALUES")):
        assert text in fails(array(abies, "-w", "w/{{word}}", *args, check=False)), args
    assert api_centre.get("/jobs/?limit=0")["count"] == before


def test_an_array_asks_on_a_terminal(api_centre, place):
    t = Terminal(place, "job", "array", "-a", "word", "-w", "ask/{{n}}", "-p", "word=w", "--sweep", "n=1..40")
    t.until("Create 40 jobs of app word in ask/{{n}}? [y/N]")
    t.type("no")
    assert t.end() == 1 and "nothing was done" in t.text
    assert api_centre.get("/jobs/?workdir__contains=ask/&limit=0")["count"] == 0
    t = Terminal(place, "job", "array", "-a", "word", "-w", "ask/{{n}}", "-p", "word=w", "--sweep", "n=1..40")
    t.until("[y/N]")
    t.type("y")
    assert t.end() == 0 and api_centre.get("/jobs/?workdir__contains=ask/&limit=0")["count"] == 40


# ------------------------------------------------------------------ explain

def test_explain_says_what_is_in_the_way(api_centre, place, abies):
    parent, child = (int(abies("job", "create", "-y", "-a", "word", "-w", w, "-p", "word=w", *more).stdout)
                     for w, more in (("p", []), ("q", [])))
    child = int(abies("job", "create", "-y", "-a", "word", "-w", "r", "-p", "word=w", "--parent-id", parent).stdout)
    out = abies("job", "explain", child).stdout
    assert out.startswith(f"job {child} is AWAITING_PARENTS\n  parents: waits for") and out.endswith(f"[{parent}]\n")
    api_centre.patch("/jobs/", [{"id": parent, "state": "FAILED"}])
    both = abies("job", "explain", child, parent).stdout
    assert "RESTART_READY" in both and f"job {parent} is FAILED" in both
    rows = json.loads(abies("job", "explain", child, parent, "--json").stdout)
    assert [(r["id"], r["state"]) for r in rows] == [(child, "AWAITING_PARENTS"), (parent, "FAILED")] and rows[0]["reasons"][0]["code"] == "parents"
    assert "no job 999999999 of yours" in fails(abies("job", "explain", "999999999", check=False))
    assert "Give its id" in fails(abies("job", "explain", check=False))
    t = Terminal(place, "job", "explain", child, columns=50)
    assert t.end() == 0
    lines = t.text.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 50 and all(line.startswith("  ") for line in lines[1:])
    assert re.sub(r"\n  ", " ", t.text).split() == abies("job", "explain", child).stdout.split()


# ------------------------------------------------------------------ retries and priority

def test_a_job_is_created_with_a_retry_policy_and_it_can_be_changed(api_centre, place, abies):
    id = abies("job", "create", "-y", "-a", "word", "-w", "retry", "-p", "word=w", "--max-attempts", "3", "--retry-on", "exit,WALLTIME", "--backoff", "1500ms").stdout.strip()
    assert api_centre.get(f"/jobs/{id}")["retry"] == {"max_attempts": 3, "on": ["exit", "walltime"], "backoff_sec": 2}
    assert json.loads(abies("job", "modify", "-y", id, "--max-attempts", "5", "--priority", "-7", "--json").stdout) == {"modified": 1}
    job = api_centre.get(f"/jobs/{id}")
    assert job["priority"] == -7 and job["retry"]["max_attempts"] == 5 and job["state"] == "STAGED_IN"
    for args, text in ((["--retry-on", "exit"], "--max-attempts"), (["--max-attempts", "2", "--retry-on", "crash"], "there are exit, signal"), (["--max-attempts", "2", "--backoff", "soon"], "30s, 10m"),
                       (["--max-attempts", "2", "--backoff", "2d"], "a day at most"), (["--max-attempts", "-1"], "max_attempts"), (["--priority", "1001"], "from -1000 to 1000"),
                       (["--priority", "high"], "from -1000 to 1000"), ([], "what shall change?")):
        assert text in fails(abies("job", "modify", "-y", id, *args, check=False)), args
    assert api_centre.get(f"/jobs/{id}") == job
    t = Terminal(place, "job", "modify", id, "-s", "restart_ready", "--priority", "3")
    t.until("Set state RESTART_READY, priority 3 of 1 job? [y/N]")
    t.type("y")
    assert t.end() == 0 and api_centre.get(f"/jobs/{id}")["state"] == "RESTART_READY"


def test_a_job_is_shown_before_it_is_made(api_centre, place):
    t = Terminal(place, "job", "create", "-a", "word", "-w", "shown", "-p", "word=hello", "-t", "9", "--max-attempts", "2")
    t.until("Create this job of app word? [y/N]")
    assert re.search(r"^workdir +shown$", t.text, re.M) and re.search(r"^parameters +word=hello$", t.text, re.M) and re.search(r"^wall time \(min\) +9$", t.text, re.M)
    t.type("")
    assert t.end() == 1 and api_centre.get("/jobs/?workdir__contains=shown&limit=0")["count"] == 0


# ------------------------------------------------------------------ backlog

def test_the_backlog_of_a_site(api_centre):
    site = api_centre.site(unique("backlog"), start=False)
    site.app("word", WORD)

    def abies(*args, **kw):
        return api_centre.cli(*args, env=site.env, **kw)

    assert abies("site", "backlog").stdout == "no jobs\nno batch jobs that wait or run\n"
    ids = json.loads(array(abies, "-w", "{{n}}", "-p", "word=w", "--sweep", "n=1..5", "-n", "2", "--json").stdout)["ids"]
    api_centre.patch("/jobs/", [{"id": i, "state": "PREPROCESSED"} for i in ids[:3]])
    api_centre.patch("/jobs/", [{"id": ids[0], "state": "RUNNING"}])
    site.allocate(nodes=4)
    lines = [re.sub(" +", " ", x) for x in abies("site", "backlog").stdout.splitlines()]
    assert lines[:4] == ["JOBS COUNT", "PREPROCESSED 2", "RUNNING 1", "STAGED_IN 2"]
    assert "runnable: 2 jobs for 4 nodes; running: 1 jobs on 2 nodes" in lines and "pending_submission 1 4" in lines
    assert api_centre.cli_json("site", "backlog", site.id) == json.loads(abies("site", "backlog", "--json").stdout)
    assert api_centre.cli_json("site", "backlog", site.id)["runnable"] == {"jobs": 2, "nodes": 4.0}
    assert "which site?" in fails(api_centre.cli("site", "backlog", check=False))
    assert "nowhere" in fails(api_centre.cli("site", "backlog", "nowhere", check=False))
