"""A process is stopped (SIGSTOP), as a suspended machine or a starved one is, and goes on later: what it then says is late, is told
to nobody a second time, and nothing that it did is done twice. (PostgreSQL's: test_database.py; a launcher's: test_kill.py)"""
import threading
import time
import uuid

import requests

from centre import wait_for
from mesh import Load, Writers


def replicas(gateway, service):
    return gateway.metric(f'abies_bus_replicas{{service="{service}"}}')


def freeze_in_mid_work(gateway, process, service, load, seconds=2.5):
    """For longer than `dead`: given up, and back after it thaws."""
    live = replicas(gateway, service)
    process.freeze()
    try:
        wait_for(lambda: replicas(gateway, service) == live - 1, 10, "it is given up")
        load.more(10)
    finally:
        process.thaw()
    wait_for(lambda: replicas(gateway, service) == live, 10, "it is back")
    load.more(10)


def test_a_frozen_jobs_replica_writes_nothing_twice(mesh):
    gateway = mesh.gateway()
    frozen = mesh.service("jobs")
    mesh.service("jobs")
    mesh.everything()
    writers = Writers(mesh)
    late = gateway.metric('abies_bus_late_total{service="jobs"}')
    with Load(writers.work, clients=6) as load:
        freeze_in_mid_work(gateway, frozen, "jobs", load)
    load.check(longest=6)
    assert not writers.refused, writers.refused[:3]
    writers.check()
    assert gateway.metric('abies_bus_resent_total{service="jobs"}') > 0, "it was frozen with requests in hand"
    wait_for(lambda: gateway.metric('abies_bus_late_total{service="jobs"}') > late, 10, "and it answers them when it wakes")


def test_a_frozen_sessions_replica_leases_nothing_twice(mesh):
    gateway = mesh.gateway()
    frozen = mesh.service("sessions", session_ttl="60s")
    mesh.service("sessions", session_ttl="60s")
    mesh.everything()
    user = mesh.user()
    site, app = mesh.app(user)
    for _ in range(4):
        rows = [{"app_id": app, "workdir": uuid.uuid4().hex} for _ in range(1000)]
        mesh.call(user, "POST", "/jobs/", rows, 201)
    mesh.call(user, "PUT", f"/jobs/?site_id={site}", {"state": "PREPROCESSED"}, 200)
    mine = [mesh.call(user, "POST", "/sessions/", {"site_id": site}, 201).json()["id"] for _ in range(4)]
    got, lock = {s: [] for s in mine}, threading.Lock()

    def acquire(n):
        jobs = mesh.call(user, "POST", f"/sessions/{mine[n]}", {"max_num_jobs": 2, "filter_tags": {}}, 200).json()
        with lock:
            got[mine[n]] += [j["id"] for j in jobs]
    with Load(acquire, clients=4, pause=0.01) as load:
        freeze_in_mid_work(gateway, frozen, "sessions", load)
    load.check(longest=6)
    given = [j for s in mine for j in got[s]]
    assert given and len(given) == len(set(given)), "no job was handed out twice"
    held = mesh.query("SELECT id, session_id FROM jobs WHERE session_id IS NOT NULL")
    assert sorted(held) == sorted((j, s) for s in mine for j in got[s]), "and each is held by whom it was given to"


def test_a_frozen_gateway_keeps_its_clients_waiting_and_doubles_nothing(mesh):
    """Clients give up after their own time and ask the other gateway, with the same key; the frozen one goes on as if nothing had been."""
    gateways = [mesh.gateway(), mesh.gateway()]
    mesh.everything()
    writers = Writers(mesh)
    turns = {}

    def work(n):
        rows, key = [{"app_id": writers.app, "workdir": uuid.uuid4().hex}], {"Idempotency-Key": str(uuid.uuid4())}
        session = turns.setdefault(n, mesh.session(writers.user.token, gateways[n % 2].url))
        for _ in range(4):
            try:
                r = session.post(session.url + "/jobs/", json=rows, headers=key, timeout=1)
            except requests.RequestException:
                session = turns[n] = mesh.session(session.token, gateways[session.url == gateways[0].url].url)
                continue
            assert r.status_code == 201, r.text
            assert [j["workdir"] for j in r.json()] == [rows[0]["workdir"]]
            with writers.lock:
                writers.asked += 1
            return
        raise AssertionError("neither gateway answers")
    with Load(work, clients=6) as load:
        gateways[0].freeze()
        time.sleep(2.5)  # longer than `dead`: the services think that it is gone
        load.more(10)
        gateways[0].thaw()
        wait_for(lambda: all(replicas(gateways[0], s) == 1 for s in ("jobs", "sessions")), 15, "its services are back")
        assert mesh.session(writers.user.token, gateways[0].url).get(gateways[0].url + "/sites/", timeout=5).status_code == 200
    load.check(longest=6)
    writers.check()
