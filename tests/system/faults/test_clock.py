"""A clock is set forward or back by an hour while everything runs: heartbeats, deadlines and waits go by the monotonic clock, leases
by the database's, and the sweeper knows a jump when it sees one. Tokens go by the time of day, so there the answer is an honest 401."""
import contextlib
import time
import uuid

import pytest
import requests

import fakeclock
from centre import temporary_folder, wait_for
from fakeclock import Clock
from mesh import RARELY, Load, Mesh, Writers
from postgres import Postgres

pytestmark = pytest.mark.skipif(not fakeclock.LIBRARY, reason="the package faketime is not installed")
HOUR, TTL = 3600, 2


@pytest.fixture
def clock(tmp_path):
    tmp_path.chmod(0o755)
    return Clock(tmp_path)


def there(mesh, user, session):
    return any(s["id"] == session for s in mesh.call(user, "GET", "/sessions/", status=200).json()["results"])


def test_a_jump_of_all_clocks_ends_no_lease_of_the_living_and_keeps_none_of_the_dead(clock):
    folder = temporary_folder("clockpg")
    folder.chmod(0o755)
    clock = Clock(folder)
    with contextlib.ExitStack() as stack:
        pg = stack.enter_context(Postgres(folder / "pg", env=clock.env))
        mesh = stack.enter_context(Mesh(folder / "mesh", pg))
        mesh.gateway(env=clock.env)
        sessions = mesh.service("sessions", env=clock.env, session_ttl=f"{TTL}s", sweep_period="200ms")
        mesh.everything(env=clock.env)
        pids = [p.pid for p in mesh.processes]
        writers = Writers(mesh)
        user, site = writers.user, writers.site

        def session():
            return mesh.call(user, "POST", "/sessions/", {"site_id": site}, 201).json()["id"]
        living, beats = session(), mesh.session(user.token, user.url)

        def beat(n):
            if n == 0:
                mesh.call(beats, "PUT", f"/sessions/{living}", status=200)
                time.sleep(TTL / 4)
            else:
                writers.work(n)
        with Load(beat, clients=2, pause=0.02) as load:
            time.sleep(TTL + 0.5)  # from now on silence counts
            jumps = (HOUR, -HOUR)
            for jump in jumps:
                dead = session()
                clock.set(jump)
                wait_for(lambda: sessions.log_path.read_text().count("event=sweep.clock_jump") == jumps.index(jump) + 1, 10, "it is seen")
                assert there(mesh, user, dead), "the sweeper does not believe a clock that jumps"
                wait_for(lambda: not there(mesh, user, dead), 4 * TTL + 5, "and ends who is silent from then on")
        load.check(longest=5)
        assert there(mesh, user, living)
        writers.check()
        assert [p.pid for p in mesh.processes] == pids and all(p.alive() for p in mesh.processes)
        mesh.calm()
        assert sessions.log_path.read_text().count("event=sweep.clock_jump") == len(jumps)


def test_a_gateway_whose_clock_is_wrong_refuses_tokens_and_nothing_else_and_is_well_when_it_is_right(mesh, clock):
    gateway = mesh.gateway(env=clock.env)
    mesh.everything()
    user = mesh.user("tenant")
    form = {"username": "tenant", "password": "tenant-secret-1", "refresh": "1"}
    short = requests.post(mesh.url + "/auth/password/login", data=form, timeout=10).json()["access_token"]  # good for an hour
    short = mesh.session(short, mesh.url)

    def status(session):
        r = mesh.call(session, "GET", "/sites/")
        assert r.status_code != 401 or "detail" in r.json()
        return r.status_code
    with Load(lambda n: mesh.call(user, "GET", "/sites/", status=200), clients=1, pause=0.02) as load:
        assert status(short) == 200
        clock.set(HOUR + 60)
        assert status(short) == 401 and status(user) == 200, "two days are longer than an hour"
        load.more()
        clock.set(0)
        assert status(short) == 200
    load.check(longest=3)
    clock.set(-HOUR)
    fresh = mesh.session(requests.post(mesh.url + "/auth/password/login", data=form, timeout=10).json()["access_token"], mesh.url)
    assert status(fresh) == 401, "a token from the future"
    assert status(user) == 200, "one that was looked at before is not"
    for service in ("auth", "jobs", "sessions", "transfers"):
        assert gateway.metric(f'abies_bus_replicas{{service="{service}"}}') == 1, "the bus goes by another clock"
    clock.set(0)
    assert status(fresh) == 200 and gateway.alive()


@pytest.mark.parametrize("role", ["jobs", pytest.param("auth", marks=RARELY)])
def test_a_service_whose_clock_is_wrong_works_on(mesh, clock, role):
    gateway = mesh.gateway()
    mesh.service(role, env=clock.env)
    mesh.everything()
    writers = Writers(mesh)
    with Load(writers.work, clients=2, pause=0.02) as load:
        for jump in (HOUR, -HOUR, 0):
            clock.set(jump)
            load.more()
            assert gateway.metric(f'abies_bus_replicas{{service="{role}"}}') == 1
    load.check(longest=3)
    writers.check()
    mesh.call(mesh.user(f"u{uuid.uuid4().hex[:8]}"), "GET", "/sites/", status=200)
