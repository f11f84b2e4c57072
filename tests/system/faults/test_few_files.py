"""`ulimit -n 64`: each process works with that or says what it needs; clients over the room are refused at once, nothing spins, and
when they have gone all is as before."""
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import time

import pytest

from centre import temporary_folder, wait_for
from mesh import ROLES, Load, Mesh, Process, Writers
from postgres import Postgres

FEW = "ulimit -n 64"
CALM = 0.5  # of one processor, with a sanitizer: a loop that spins takes all of it


def flood(address, n=120, seconds=1.5):
    """n connections that say nothing, held for so long; how many were ended by the other side."""
    host, port = address.rsplit(":", 1)
    held, refused = [], 0
    for _ in range(n):
        s = socket.socket()
        s.settimeout(5)
        with contextlib.suppress(OSError):
            s.connect((host, int(port)))
        held.append(s)
    time.sleep(seconds)
    for s in held:
        s.setblocking(False)
        try:
            refused += s.recv(1) == b""
        except BlockingIOError:
            pass
        except OSError:
            refused += 1
    return held, refused


def close_all(held):
    for s in held:
        s.close()


def test_a_gateway_with_64_files_refuses_who_is_too_many_and_stays_calm(mesh):
    gateway = mesh.gateway(limits=FEW)
    mesh.everything()
    assert gateway.logged("gateway.few_files")
    writers = Writers(mesh)
    assert mesh.call(writers.user, "GET", "/sites/").status_code == 200
    held, refused = flood(gateway.run["listen"], seconds=0.5)
    try:
        assert refused > 90, "told at once that there is no room"
        assert gateway.busy(1.5) < CALM
        assert gateway.metric("abies_gateway_refused_total") >= refused, "the health port is heard all the time"
        assert gateway.metric('abies_bus_replicas{service="jobs"}') == 1, "and so are the services"
    finally:
        close_all(held)
    wait_for(lambda: gateway.metric("abies_gateway_connections") <= 1, 10, "they are gone")
    with Load(writers.work, clients=3) as load:
        load.more()
    load.check()
    writers.check()


def test_a_gateway_that_runs_out_of_files_waits_calmly_until_there_are_some(mesh):
    """Not its own doing: the limit is lowered while it runs, as when the whole host has none left."""
    gateway = mesh.gateway()
    mesh.everything()
    user = mesh.user()
    files = len(os.listdir(f"/proc/{gateway.pid}/fd"))
    prlimit = ["prlimit", "--pid", str(gateway.pid)]
    subprocess.run([*prlimit, f"--nofile={files}:"], check=True)
    held, _ = flood(gateway.run["listen"], n=8, seconds=0.2)
    try:
        assert gateway.busy(1.5) < CALM
    finally:
        subprocess.run([*prlimit, "--nofile=4096:"], check=True)
        close_all(held)
    wait_for(lambda: mesh.call(user, "GET", "/sites/", timeout=5).status_code == 200, 10, "it takes connections again")
    assert gateway.metric("abies_gateway_accept_errors_total") > 0


def test_services_with_64_files_work_and_a_flood_of_their_health_ports_does_not_stop_them(mesh):
    mesh.gateway()
    services = [mesh.service(role, limits=FEW) for role in ROLES]
    mesh.everything()
    writers, held = Writers(mesh), []
    with Load(writers.work, clients=2, pause=0.01) as load:
        try:
            for service in services:
                held += flood(service.run["health"], n=60, seconds=0)[0]
            load.more(40)
        finally:
            close_all(held)
        load.more()
    load.check()
    writers.check()
    for service in services:
        wait_for(service.is_ready, 10, "it answers who asks for its health")
    mesh.calm()


def test_postgresql_with_64_files_serves_and_loses_nothing():
    """Its backends close files that they need again later: slower, and never an error."""
    folder = temporary_folder("fewpg")
    folder.chmod(0o755)
    with Postgres(folder / "pg", prefix=["prlimit", "--nofile=64:64"]) as pg, Mesh(folder / "mesh", pg) as mesh:
        files = pathlib.Path(f"/proc/{(pg.data / 'postmaster.pid').read_text().split()[0]}/limits").read_text()
        assert re.search(r"^Max open files +64 +64 ", files, re.M), files
        mesh.everything()
        writers = Writers(mesh)
        with Load(writers.work, clients=6) as load:
            load.more(30)
            mesh.call(writers.user, "GET", "/jobs/?limit=100", status=200)
            mesh.call(writers.user, "GET", "/events/?limit=100", status=200)
        load.check(longest=5)
        assert not writers.refused, writers.refused[:3]
        writers.check()


def test_a_limit_that_a_shell_set_is_raised_by_the_process_itself(mesh):
    service = mesh.service("jobs", limits="ulimit -Sn 64", gateways=mesh.gateway().run["bus"]).started()
    soft = subprocess.run(["prlimit", "--nofile", "--output", "SOFT", "--noheadings", "--pid", str(service.pid)], capture_output=True, text=True)
    assert int(soft.stdout) >= 1024


@pytest.mark.parametrize("role", ["gateway", "jobs"])
def test_too_few_files_to_work_at_all_are_named_at_the_start(mesh, role):
    extra = {"listen": "127.0.0.1:0", "plain_http": "true", "bus_listen": "tcp://127.0.0.1:*"} if role == "gateway" else \
        {"database_url": mesh.database_url.format(role=role), "gateways": "tcp://127.0.0.1:9"}
    p = Process(mesh, role, {**mesh.settings, "curve_dir": mesh.folder / "curve", **extra}, limits="ulimit -n 40")
    assert p.process.wait(20) != 0
    assert "raise `ulimit -n`" in p.tail() or "Too many open files" in p.tail(), p.tail()
