"""PostgreSQL restarts, moves to another address, or freezes: requests meanwhile are told 503 (or wait), and all goes on by itself."""
import os
import signal

import pytest

from centre import temporary_folder, wait_for
from mesh import RARELY, ROLES, Load, Mesh, Writers
from postgres import Postgres


@pytest.fixture
def own_pg(request):
    """A PostgreSQL of this test's own, at an address of its own, that commits nothing a standby has not, once it has one."""
    folder = temporary_folder("ownpg")
    with Postgres(folder / "a", address="127.0.2.1", settings={"synchronous_standby_names": "''"}) as pg:
        pg.others = []
        yield pg
        for other in pg.others:
            other.stop("immediate")


def mesh_at(tmp_path, pg, host, **kw):
    return Mesh(tmp_path, pg, database="failover", database_url=f"host={host} port={pg.port} dbname=failover user=abies_{{role}}", **kw)


@pytest.mark.parametrize("how", ["immediate", pytest.param("fast", marks=RARELY)])
def test_a_restart_costs_a_503_at_most(own_pg, tmp_path, how):
    with mesh_at(tmp_path, own_pg, own_pg.folder) as mesh:
        mesh.gateway(deadline="10s")
        mesh.everything()
        writers = Writers(mesh)
        pids = [p.pid for p in mesh.processes]
        with Load(writers.work, clients=3, pause=0.01) as load:
            own_pg.stop(how)
            wait_for(lambda: writers.refused, 15, "a client is told")
            wait_for(lambda: all(not p.is_ready() for r in ROLES for p in mesh.of(r)), 15, "/readyz of the services says so")
            own_pg.start()
            load.more()
        load.check()
        assert {s for s, _ in writers.refused} == {503}
        for p in mesh.processes:
            p.ready(10)
        assert [p.pid for p in mesh.processes] == pids and all(p.alive() for p in mesh.processes)
        writers.check()


def promote(old, new, writers):
    """A standby alone takes nothing; only when it is promoted there is a place to go on."""
    old.kill()
    wait_for(lambda: writers.refused, 20, "a client is told")
    before = len(writers.refused)
    wait_for(lambda: len(writers.refused) >= before + 3, 20, "the standby takes no changes")
    new.promote()


def with_standby(pg):
    standby = pg.clone(pg.folder.parent / "b", address="127.0.2.2", port=pg.port)
    pg.others.append(standby)
    pg.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
    pg.query("SELECT pg_reload_conf()")
    wait_for(lambda: pg.query("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")[0][0] == 1, 20, "the standby is synchronous")
    return standby


@pytest.mark.parametrize("way", ["a list of hosts", "a name that moves"])
def test_a_fail_over_to_another_address_is_followed(own_pg, tmp_path, way):
    by_name = way == "a name that moves"
    if by_name and os.geteuid() != 0:
        pytest.skip("a mount namespace for /etc/hosts needs root")
    standby = with_standby(own_pg)
    with mesh_at(tmp_path, own_pg, "db.test" if by_name else "127.0.2.1,127.0.2.2") as mesh:
        mesh.hosts({"db.test": ["127.0.2.1"]})
        mesh.gateway(deadline="10s")
        mesh.everything(hosts=by_name)
        writers = Writers(mesh)
        with Load(writers.work, clients=3, pause=0.01) as load:
            mesh.hosts({"db.test": ["127.0.2.2"]})
            promote(own_pg, standby, writers)
            mesh.pg = standby
            load.more()
        load.check()
        assert {s for s, _ in writers.refused} == {503}
        writers.check()


def backends_of(mesh, role):
    """Server processes of a service's connections."""
    return [r[0] for r in mesh.query("SELECT pid FROM pg_stat_activity WHERE usename = %s AND datname = current_database()", f"abies_{role}")]


def test_a_frozen_backend_costs_its_request_and_nobody_elses(mesh):
    """One server process stops in the middle; what waited for it is answered in time, another worker goes on, and when it wakes
    nothing is done twice."""
    mesh.gateway(deadline="2s")
    mesh.everything()
    writers = Writers(mesh)
    frozen = []
    with Load(writers.work, clients=3, pause=0.01) as load:
        frozen.append(backends_of(mesh, "jobs")[0])
        os.kill(frozen[0], signal.SIGSTOP)
        try:
            wait_for(lambda: writers.refused, 15, "one request runs into its deadline")
            load.more(10)
        finally:
            os.kill(frozen[0], signal.SIGCONT)
        load.more()
    load.check()
    writers.check()


def test_a_frozen_server_is_honest_504_and_is_found_again_when_it_thaws(own_pg, tmp_path):
    with mesh_at(tmp_path, own_pg, own_pg.folder) as mesh:
        mesh.gateway(deadline="2s")
        mesh.everything()
        writers = Writers(mesh)
        with Load(writers.work, clients=2, pause=0.01) as load:
            frozen = [own_pg.process.pid, *own_pg.children()]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            wait_for(lambda: len(writers.refused) >= 4, 20, "requests run into their deadline")
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
            load.more(deadline=60)
        load.check()
        writers.check()
