"""Live events wake a site's modules; without them the modules look by themselves."""
import os
import time

import pytest

from centre import Centre, temporary_folder, wait_for

SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "beat": "250ms", "dead": "1500ms"}

APP = """
name: carried
command: cat in.txt
hooks: {preprocess: [cp, in.txt, out.txt]}
transfers: {input: {direction: in, local_path: in.txt}, output: {direction: out, local_path: out.txt}}
"""


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("news"), settings=SETTINGS) as centre:
        yield centre


def make_site(centre, name, **settings):
    site = centre.site(name, settings=settings)
    site.carried = site.app("carried", APP)
    (site.beamline / "in.txt").write_text(name)
    return site


def carry(centre, site):
    """A job through both modules, twice each; the launcher's part is done here. The seconds that it took."""
    name, begin = os.urandom(3).hex(), time.monotonic()
    (job,) = centre.post("/jobs/", [{"app_id": site.carried, "workdir": name, "transfers": {
        "input": {"location_alias": "beamline", "path": "/in.txt"}, "output": {"location_alias": "beamline", "path": f"/{name}"}}}])

    def reaches(state):
        return wait_for(lambda: centre.get(f"/jobs/{job['id']}")["state"] == state, 20, f"the job in {state}")
    reaches("PREPROCESSED")
    centre.patch("/jobs/", [{"id": job["id"], "state": "RUN_DONE"}])
    reaches("JOB_FINISHED")
    assert (site.beamline / name).read_text() == site.name
    return time.monotonic() - begin


@pytest.fixture(scope="module")
def waiting(centre):
    """Its modules look every ten minutes; the stream is there when the first job has moved."""
    site = make_site(centre, "waiting", poll_period="600", service_period="600")

    def moved():
        (job,) = centre.post("/jobs/", [{"app_id": site.carried, "workdir": os.urandom(3).hex()}])
        until = time.monotonic() + 2
        while centre.get(f"/jobs/{job['id']}")["state"] == "STAGED_IN" and time.monotonic() < until:
            time.sleep(0.05)
        return centre.get(f"/jobs/{job['id']}")["state"] != "STAGED_IN"
    wait_for(moved, 30, "events wake a module")
    return site


def test_a_job_passes_through_modules_that_hardly_ever_look(centre, waiting):
    assert min(carry(centre, waiting) for _ in range(3)) < 6


def test_events_come_again_when_their_gateway_was_killed(centre, waiting):
    centre.kill("gateway")
    centre.ready()
    carry(centre, waiting)


def test_without_events_modules_look_by_themselves(centre):
    carry(centre, make_site(centre, "deaf", live="false"))
