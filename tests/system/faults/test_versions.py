"""A rolling upgrade: version N and N+1 side by side, and what is too far apart is refused, says so with both numbers, and hurts nobody.

The programs are the same; by AB_PRETEND_BUS_VERSION (a build with fault points) one says that it is of another version."""
import pathlib
import re
import time

import pytest
import requests

from centre import wait_for
from mesh import ROLES, Load, Writers

OURS = int(re.search(r"AB_BUS_VERSION (\d+)", (pathlib.Path(__file__).parents[3] / "common" / "bus" / "frame.h").read_text())[1])


def speaks(version):
    return {"AB_PRETEND_BUS_VERSION": str(version)}


NEWEST = OURS + 2  # too far away
TOO_NEW = speaks(NEWEST)


@pytest.fixture
def latest(mesh):
    return mesh.query("SELECT max(version) FROM schema_version")[0][0]


def replicas(gateway, service="jobs"):
    return gateway.metric(f'abies_bus_replicas{{service="{service}"}}')


@pytest.mark.parametrize("before", [OURS - 1, OURS], ids=["from_the_one_before", "to_the_next"])
def test_two_versions_work_side_by_side_and_the_old_one_leaves(mesh, before):
    earlier, later = speaks(before), speaks(before + 1)
    ports = [mesh.free_port() for _ in range(2)]
    gateways = ",".join(f"tcp://127.0.0.1:{p}" for p in ports)
    old = mesh.gateway(bus=f"tcp://127.0.0.1:{ports[0]}", env=earlier)
    first = [mesh.service(role, gateways=gateways, env=earlier) for role in ROLES]
    mesh.everything()
    writers, urls = Writers(mesh), [old.url]

    def work(n):
        session = mesh.session(writers.user.token, urls[-1 if n % 2 else 0])
        writers.work(n, session)
        mesh.call(session, "GET", "/sessions/", status=200)
        mesh.call(session, "GET", "/auth/password/me", status=200)
    with Load(work, clients=4, pause=0.005) as load:
        new = mesh.gateway(bus=f"tcp://127.0.0.1:{ports[1]}", env=later).ready()
        assert replicas(new) == 1, "old services at a new gateway"
        new.logged("gateway.open")
        urls.append(new.url)
        load.more()
        second = [mesh.service(role, gateways=gateways, env=later) for role in ROLES]
        for p in second:
            p.ready()
        wait_for(lambda: replicas(old) == replicas(new) == 2, 10, "old and new services at old and new gateways")
        load.more(40)
        for p in first:
            p.leave()
        urls[:] = [new.url]
        load.more()
        old.leave()
    load.check(longest=5)
    assert not writers.refused
    writers.check()


def test_a_service_too_new_for_the_gateway_is_refused_with_both_numbers_and_hurts_nobody(mesh):
    gateway = mesh.gateway()
    mesh.everything()
    writers = Writers(mesh)
    with Load(writers.work, clients=2, pause=0.01) as load:
        stranger = mesh.service("jobs", env=TOO_NEW).started()
        for p in (gateway, stranger):
            line = p.logged("event=bus.refused")[0]
            assert f"this gateway speaks bus version {OURS}, you speak {NEWEST}" in line and "upgrade the older side" in line
        load.more()
        assert replicas(gateway) == 1 and not stranger.is_ready() and stranger.alive()
        assert stranger.health("/readyz").text.startswith("database: there\ngateways: 0")
    load.check(longest=3)
    assert not writers.refused
    writers.check()


def test_a_gateway_too_new_for_the_services_serves_nobody_and_hurts_nobody(mesh):
    ports = [mesh.free_port() for _ in range(2)]
    gateways = ",".join(f"tcp://127.0.0.1:{p}" for p in ports)
    mesh.gateway(bus=f"tcp://127.0.0.1:{ports[0]}")
    jobs = mesh.service("jobs", gateways=gateways)
    for role in set(ROLES) - {"jobs"}:
        mesh.service(role, gateways=gateways)
    mesh.everything()
    writers = Writers(mesh)
    with Load(writers.work, clients=2, pause=0.01) as load:
        stranger = mesh.gateway(bus=f"tcp://127.0.0.1:{ports[1]}", env=TOO_NEW, join="1s")
        line = jobs.logged("event=bus.refused")[0]
        assert f"this gateway speaks bus version {NEWEST}, you speak {OURS}" in line and f"127.0.0.1:{ports[1]}" in line
        stranger.logged(f"speaks bus version {NEWEST}, you speak {OURS}")
        assert stranger.health("/readyz").status_code == 503
        stranger.logged("gateway.open")
        r = requests.get(stranger.url + "/sites/", headers=writers.user.headers, timeout=10)
        assert r.status_code == 503 and "retry-after" in r.headers
        load.more()
    load.check(longest=3)
    assert not writers.refused
    writers.check()


def set_version(mesh, version):
    mesh.query("DELETE FROM schema_version WHERE version > %s", version)
    mesh.query("INSERT INTO schema_version (version, name) SELECT n, 'x' FROM generate_series(1, %s) AS n ON CONFLICT DO NOTHING", version)


def test_a_service_takes_a_database_of_its_own_version_or_the_next_one(mesh, latest):
    mesh.gateway()
    for role in ROLES:
        set_version(mesh, latest + 1)
        mesh.service(role)
    mesh.everything()
    mesh.call(mesh.user(), "GET", "/sites/", status=200)
    set_version(mesh, latest)


def test_a_service_too_old_for_the_database_says_which_version_to_install(mesh, latest):
    mesh.gateway()
    set_version(mesh, latest + 2)
    service = mesh.service("jobs")
    assert service.process.wait(20) == 1
    assert f"the database is at version {latest + 2} and this program at {latest}: install a newer one" in service.tail()
    set_version(mesh, latest)


def test_a_service_too_new_for_the_database_waits_for_migrate_and_then_starts(mesh, latest):
    mesh.gateway()
    set_version(mesh, latest - 1)
    service = mesh.service("jobs")
    line = service.logged("event=database.away")[0]
    assert f"the database is at version {latest - 1}, this program needs {latest}: run `abies-admin migrate`" in line
    time.sleep(0.2)
    assert service.alive() and not service.run_file.exists()
    set_version(mesh, latest)
    service.started(15)
