"""What a site does unasked: queue_maintainer keeps allocations queued, file_cleaner removes what finished jobs need no more."""
import os
import time

import pytest

from centre import Centre, temporary_folder, wait_for

UPKEEP = """
queue_maintainer:
  submit_period: 0.3
  submit_project: local
  submit_queue: local
  job_mode: serial
  num_queued_jobs: 2
  num_nodes: 1
  wall_time_min: 7
file_cleaner:
  service_period: 0.3
  cleanup_batch_size: 3
"""

UNTIDY = """
name: untidy
command: [./untidy.sh, "{{code}}"]
parameters: {code: {type: int, default: 0}}
cleanup_files: ["*.tmp", "scratch/**", "out/*.log"]
"""

SCRIPT = """#!/bin/sh
mkdir -p scratch/deep out
touch a.tmp b.tmp keep.txt scratch/x scratch/deep/y out/run.log out/result
ln -s "$ABIES_SITE_PATH/precious" out/link.log
ln -s "$ABIES_SITE_PATH" scratch/up
exit "$1"
"""

LEFT = {"job.out", "keep.txt", "out/result"}


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("upkeep")) as centre:
        yield centre


@pytest.fixture(scope="module")
def site(centre):
    site = centre.site("upkeep", start=False, settings={"idle_ttl_sec": "60"})
    with open(site.path / "settings.yml", "a") as f:
        f.write(UPKEEP)
    (site.path / "precious").write_text("not a job's file")
    site.start()
    (site.path / "apps" / "untidy.sh").write_text(SCRIPT)
    (site.path / "apps" / "untidy.sh").chmod(0o755)
    site.untidy = site.app("untidy", UNTIDY)
    return site


def batch_jobs(centre, site, *states):
    return centre.get(f"/batch-jobs/?site_id={site.id}" + "".join(f"&state={s}" for s in states))["results"]


def in_the_queue(centre, site):
    return batch_jobs(centre, site, "pending_submission", "queued", "running", "pending_deletion")


def test_the_queue_holds_as_many_allocations_as_the_settings_say_and_no_more(centre, site):
    wait_for(lambda: len(batch_jobs(centre, site, "running")) == 2, 60, "two allocations run")
    until = time.monotonic() + 2
    while time.monotonic() < until:
        assert len(in_the_queue(centre, site)) == 2
        time.sleep(0.1)
    assert {(b["num_nodes"], b["wall_time_min"], b["job_mode"]) for b in in_the_queue(centre, site)} == {(1, 7, "serial")}


def test_an_allocation_that_ends_is_replaced(centre, site):
    first = min(b["id"] for b in wait_for(lambda: batch_jobs(centre, site, "running"), 60, "an allocation runs"))
    centre.patch("/batch-jobs/", [{"id": first, "state": "pending_deletion"}])
    wait_for(lambda: [b["id"] for b in batch_jobs(centre, site, "finished")] == [first], 60, "it ends")
    wait_for(lambda: len(batch_jobs(centre, site, "running")) == 2, 60, "another one takes its place")
    assert len(in_the_queue(centre, site)) == 2


def files_of(site, job):
    folder = site.path / "data" / job["workdir"]
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() or p.is_symlink()}


def test_files_that_the_app_names_go_when_the_job_has_finished(centre, site):
    bodies = [{"app_id": site.untidy, "workdir": f"untidy/{os.urandom(3).hex()}", "node_packing_count": 8} for _ in range(8)]
    jobs = centre.post("/jobs/", bodies)
    (failed,) = centre.post("/jobs/", [{**bodies[0], "workdir": "untidy/failed", "parameters": {"code": 1}}])
    query = "&".join(f"id={j['id']}" for j in jobs)
    wait_for(lambda: not any(j["pending_file_cleanup"] for j in centre.get(f"/jobs/?{query}")["results"]), 60, "all are cleaned, in more than one go")
    for job in jobs:
        assert files_of(site, job) == LEFT
    wait_for(lambda: centre.get(f"/jobs/{failed['id']}")["state"] == "FAILED", 60, "the other one fails")
    assert "a.tmp" in files_of(site, failed), "whoever looks for the fault needs the files"
    assert (site.path / "precious").read_text() == "not a job's file"
    assert (site.path / "settings.yml").exists()
