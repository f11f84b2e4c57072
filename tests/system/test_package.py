"""What scripts/package makes: unpacked anywhere, it is the whole product; and a copy of a centre is a centre."""
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest

import centre as lib
from centre import BUILD, ROOT, Centre, temporary_folder, wait_for

HOOKED = """\
name: hooked
command: "'cat' made-before {{word}}"
parameters:
  word: {default: none}
hooks:
  preprocess: [sh, -c, 'echo before > made-before']
"""


@pytest.fixture(scope="module")
def tree():
    """The tarball, unpacked where it was never meant for: another folder, with a space in its name."""
    folder = temporary_folder("package")
    env = {k: v for k, v in os.environ.items() if not k.startswith("ABIES_")}
    done = subprocess.run([str(ROOT / "scripts" / "package"), str(BUILD)], env={**env, "ABIES_DIST": str(folder / "dist")}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    tarball = pathlib.Path(done.stdout.strip())
    assert re.fullmatch(r"abies-[0-9.]+-linux-[a-z0-9_]+\.tar\.gz", tarball.name)
    with tarfile.open(tarball) as tar:
        names = tar.getnames()
        assert all(n == tarball.name[:-7] or n.startswith(tarball.name[:-7] + "/") for n in names), "one folder, and nothing beside it"
        assert all(m.uid == 0 and m.mtime == tar.getmembers()[0].mtime for m in tar.getmembers())
        tar.extractall(folder / "un packed")
    yield folder / "un packed" / tarball.name[:-7]
    shutil.rmtree(folder)


def test_the_package_has_programs_pages_documents_and_examples(tree):
    for name in ("bin/abies", "bin/abies-gateway", "bin/abies-launcher", "libexec/abies/abies-module-transfer", "share/abies/settings.yml",
                 "share/abies/job-template.sh", "share/abies/examples/eigen/run", "libexec/abies/examples/eigen-solve", "share/man/man1/abies.1",
                 "share/man/man1/abies-admin.1", "share/doc/abies/LICENSE", "share/doc/abies/docs/operations.md"):
        assert (tree / name).is_file(), name
    assert os.access(tree / "share/abies/examples/eigen/run", os.X_OK)
    built = (BUILD / "CMakeCache.txt").read_text()
    released = "CMAKE_BUILD_TYPE:STRING=Release" in built
    for path in tree.rglob("*"):
        if path.is_file():
            # a sanitizer's build names its sources, a release must not
            assert not released or str(ROOT).encode() not in path.read_bytes(), f"{path} knows where it was built"
    for path in [*(tree / "bin").iterdir(), *(tree / "libexec/abies").glob("abies-*")]:
        dynamic = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic, path


def test_fault_points_are_in_builds_for_tests_only(tree):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ABIES_")}
    done = subprocess.run([str(tree / "bin" / "abies-jobs")], env={**env, "ABIES_FAULT": "name:no-such-action"}, capture_output=True, text=True, timeout=30)
    if "AB_FAULTS:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text():
        assert done.returncode == 2 and "ABIES_FAULT" in done.stderr
    else:
        assert done.returncode == 1 and "ABIES_FAULT" not in done.stderr and "database_url is not set" in done.stderr
        assert b"fault.fired" not in (tree / "bin" / "abies-jobs").read_bytes()


def test_a_moved_package_runs_a_centre_a_site_and_a_job_with_hooks(tree, monkeypatch):
    monkeypatch.setattr(lib, "BIN", tree / "bin")
    with Centre(temporary_folder("moved")) as centre:
        site = centre.site("moved")
        app = site.app("hooked", HOOKED)
        job = centre.post("/jobs/", [{"app_id": app, "workdir": "one", "parameters": {"word": "/dev/null"}}])[0]["id"]
        site.allocate()
        wait_for(lambda: centre.get(f"/jobs/{job}")["state"] == "JOB_FINISHED", 60, "the job has finished")
        assert (site.path / "data" / "one" / "job.out").read_text() == "before\n"
        centre.run([str(tree / "share/abies/examples/eigen/run"), str(site.path), str(site.beamline), "--matrices", "3", "--order", "20"],
                   timeout=120)
        programs = {os.path.realpath(f"/proc/{p}/exe") for p in lib.processes_with(str(centre.folder))}
        assert not [p for p in programs if p.startswith(str(BUILD))], programs


def test_a_copy_that_was_made_while_it_ran_is_a_centre():
    """As docs/operations.md says it, word by word."""
    with Centre(temporary_folder("backup")) as centre:
        site = centre.site("kept", start=False)
        since = centre.get("/events/?since=")["next"]
        app = site.app("echo", "name: echo\ncommand: echo hello\n")
        centre.post("/jobs/", [{"app_id": app, "workdir": f"n/{i}"} for i in range(20)])
        operations = (ROOT / "docs" / "operations.md").read_text()
        lines = re.search(r"((?:^    .+\n)+)", operations[operations.index("While it runs, for a local centre:"):], re.M)[1]
        lines = lines.replace("home=~/.abies/centre to=/backup/$(date +%F)", f"home={centre.home} to={centre.folder}/copy")
        centre.run(["sh", "-euc", lines])
        centre.post("/jobs/", [{"app_id": app, "workdir": "too/late"}])
        centre.cli("down")
        centre.home.rename(centre.folder / "lost")
        (centre.folder / "copy").rename(centre.home)
        centre.up()
        assert centre.get("/jobs/?limit=0")["count"] == 20, "what came after the copy is gone, the rest is there"
        log = centre.get(f"/events/?since={since}&limit=1000")
        assert {e["job_id"] for e in log["results"]} and len(log["results"]) >= 20, "a cursor from before is good"
        centre.check()
