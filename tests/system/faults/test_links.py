"""The link between gateway and service, or service and database, is cut: by a cable pulled, by packets that vanish both ways or one.

TCP notices none of it for minutes; heartbeats do within `dead`."""
import contextlib
import time

import pytest

import netns
from centre import temporary_folder, wait_for
from mesh import RARELY, Load, Mesh, Writers
from netns import Link
from postgres import Postgres

pytestmark = pytest.mark.skipif(not netns.possible(), reason="network namespaces need root and a kernel that has them")


@pytest.fixture
def link():
    with Link() as link:
        yield link


@pytest.mark.parametrize("way", ["link down", "silent to there", *(pytest.param(way, marks=RARELY) for way in ("silent", "silent from there"))])
def test_a_replica_behind_a_cut_link_costs_a_delay_and_no_error(mesh, link, way):
    """Another replica is near: what the far one had goes to it. After the cut the far one is used again, by itself."""
    gateway = mesh.gateway(bus=f"tcp://{link.here}:*")
    far = mesh.service("jobs", prefix=link.prefix, health_listen=f"{link.there}:0")
    mesh.service("jobs")
    mesh.everything()
    wait_for(lambda: gateway.metric('abies_bus_replicas{service="jobs"}') == 2, 10, "both replicas")
    writers = Writers(mesh)
    with Load(writers.work, clients=4, pause=0.005) as load:
        link.cut(way)
        wait_for(lambda: gateway.metric('abies_bus_replicas{service="jobs"}') == 1, 10, "the far one is given up")
        load.more()
        link.heal()
        wait_for(lambda: gateway.metric('abies_bus_replicas{service="jobs"}') == 2, 20, "the far one is back")
        load.more()
    load.check(longest=5)
    assert not writers.refused, writers.refused[:3]
    assert far.alive()
    writers.check()


@pytest.mark.parametrize("way", ["silent", pytest.param("link down", marks=RARELY)])
def test_a_service_that_is_cut_off_whole_is_503_soon_and_back_by_itself(mesh, link, way):
    gateway = mesh.gateway(bus=f"tcp://{link.here}:*")
    far = mesh.service("jobs", prefix=link.prefix, health_listen=f"{link.there}:0")
    mesh.everything()
    writers = Writers(mesh)
    with Load(writers.work, clients=3, pause=0.02) as load:
        link.cut(way)
        begin = time.monotonic()
        wait_for(lambda: writers.refused, 15, "a client is told")
        assert time.monotonic() - begin < 8, "dead, and the grace for another replica"
        assert "no replica of the jobs service" in writers.refused[0][1]
        assert mesh.call(writers.user, "GET", "/sessions/").status_code == 200, "the others go on"
        far.logged("bus.gateway.down")
        gateway.logged("bus.replica.silent")
        link.heal()
        load.more(deadline=30)
    load.check()
    assert {s for s, _ in writers.refused} == {503}
    writers.check()


@RARELY
def test_a_database_behind_a_cut_link_is_503_or_504_and_found_again(link, tmp_path):
    """The packets of the services vanish: what waits for an answer gives up, new connections do not come about."""
    folder = temporary_folder("farpg")
    with contextlib.ExitStack() as stack:
        pg = stack.enter_context(Postgres(folder, address=link.there, prefix=link.prefix))
        pg.trust(link.here)
        mesh = stack.enter_context(Mesh(tmp_path, pg, database="far", database_url=f"host={link.there} port={pg.port} dbname=far user=abies_{{role}}"))
        mesh.gateway(deadline="3s")
        mesh.everything()
        writers = Writers(mesh)
        with Load(writers.work, clients=2, pause=0.02) as load:
            link.cut("silent")
            wait_for(lambda: len(writers.refused) >= 3, 20, "clients are told")
            link.heal()
            load.more(deadline=40)
        load.check()
        writers.check()
