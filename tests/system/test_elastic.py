"""Autoscaling: with elastic_queue on, work that waits gets an allocation without anybody asking for one."""
import pytest

from centre import Centre, temporary_folder, wait_for

ELASTIC = """
elastic_queue:
  service_period: 0.3
  submit_project: local
  submit_queue: local
  job_mode: serial
  use_backfill: false
  min_num_nodes: 1
  max_num_nodes: 1
  min_wall_time_min: 5
  max_wall_time_min: 10
  wall_time_pad_min: 2
  max_queued_jobs: 1
  max_queue_wait_time_min: 10
"""


@pytest.fixture(scope="module")
def site():
    with Centre(temporary_folder("elastic")) as centre:
        site = centre.site("elastic", start=False, settings={"idle_ttl_sec": "1"})
        with open(site.path / "settings.yml", "a") as f:
            f.write(ELASTIC)
        site.start()
        yield site


def test_waiting_work_gets_one_allocation_of_the_size_that_the_settings_allow(site):
    centre = site.centre
    assert centre.get(f"/batch-jobs/?site_id={site.id}")["count"] == 0, "nothing waits, nothing is asked for"
    app = site.app("nap", "name: nap\ncommand: sleep 0.2\n")
    jobs = centre.post("/jobs/", [{"app_id": app, "workdir": f"nap/{i}", "node_packing_count": 4} for i in range(12)])
    query = "&".join(f"id={j['id']}" for j in jobs)
    wait_for(lambda: all(j["state"] == "JOB_FINISHED" for j in centre.get(f"/jobs/?{query}")["results"]), 60, "the jobs finish by themselves")
    batch = centre.get(f"/batch-jobs/?site_id={site.id}")["results"]
    assert len(batch) == 1, "one allocation serves them all"
    assert batch[0]["num_nodes"] == 1 and batch[0]["job_mode"] == "serial"
    assert batch[0]["wall_time_min"] == 8, "max_wall_time_min less the pad"
    assert all(j["batch_job_id"] == batch[0]["id"] for j in centre.get(f"/jobs/?{query}")["results"])


def test_an_idle_allocation_ends_and_new_work_gets_a_new_one(site):
    centre = site.centre
    wait_for(lambda: all(b["state"] == "finished" for b in centre.get(f"/batch-jobs/?site_id={site.id}")["results"]), 60, "the idle launcher leaves")
    before = centre.get(f"/batch-jobs/?site_id={site.id}")["count"]
    app = centre.get(f"/apps/?site_id={site.id}&name=nap")["results"][0]["id"]
    job = centre.post("/jobs/", [{"app_id": app, "workdir": "nap/again"}])[0]["id"]
    wait_for(lambda: centre.get(f"/jobs/{job}")["state"] == "JOB_FINISHED", 60, "the job finishes")
    assert centre.get(f"/batch-jobs/?site_id={site.id}")["count"] == before + 1
