"""docker-compose.yml in a real container engine, only when one is named: ABIES_ENGINE="docker compose". What runs without one is in
test_containers.py."""
import json
import os
import shutil
import signal
import ssl

import pytest

import certificate
from centre import temporary_folder, wait_for
from engine import ENGINE, SERVICES, Account, Engine, run
from traffic import Traffic

pytestmark = pytest.mark.skipif(not ENGINE or os.geteuid() != 0, reason="set ABIES_ENGINE=\"docker compose\", as root on the engine's host")

WORDS = """
name: wordcount
command: wc --words {{file}}
parameters:
  file: {type: path, default: input.txt}
transfers:
  text: {direction: in, local_path: input.txt, required: true}
"""


@pytest.fixture(scope="module")
def engine():
    folder = temporary_folder("engine")
    with Engine(folder) as engine:
        yield engine
    shutil.rmtree(folder, ignore_errors=True)


def served(engine, name):
    """A user, and requests that work."""
    with Traffic(engine, name) as traffic:
        traffic.more()
    traffic.check()
    return traffic


def test_a_site_runs_jobs_for_a_centre_in_containers(engine):
    folder = temporary_folder("enginesite")
    with Account(folder, engine, "scientist") as account:
        site = account.site("cluster")
        (site.beamline / "text.txt").write_text("to be or not to be\n")
        app = site.app("wordcount", WORDS)
        jobs = account.post("/jobs/", [{"app_id": app, "workdir": f"words/{i}", "transfers": {"text": {"location_alias": "beamline", "path": "/text.txt"}}}
                                       for i in range(5)])
        site.allocate()
        wait_for(lambda: account.states() == {"JOB_FINISHED": len(jobs)}, 90, "all jobs to finish", every=0.3)
        assert (site.path / "data" / "words" / "4" / "job.out").read_text() == "6 input.txt\n"
    shutil.rmtree(folder)


def test_containers_run_as_nobody_on_a_root_that_cannot_be_written(engine):
    for service in (*SERVICES, "front"):
        (container,) = engine.containers(service)
        status = container.status()
        assert status["Uid"].split() == ["10001"] * 4, service
        assert all(int(status[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")) and status["NoNewPrivs"] == "1", service
        assert container.about["HostConfig"]["ReadonlyRootfs"] and container.health == "healthy", service
        assert all(not m["RW"] for m in container.about["Mounts"]), service
    (renew,) = engine.containers("renew")
    assert int(renew.status()["CapBnd"], 16) == 0b1011
    published = {service: engine.containers(service)[0].about["HostConfig"]["PortBindings"] for service in (*SERVICES, "front", "postgres", "renew")}
    assert [service for service, ports in published.items() if ports] == ["front"]


def test_no_secret_is_in_an_image_or_an_environment(engine):
    secrets = engine.volume_files("secrets/db-abies", "secrets/db-abies_jobs", "secrets/db-abies_auth")
    secrets |= {path: text.strip().splitlines()[1] for path, text in engine.volume_files("tls/ca.key", "tls/server.key").items()}
    assert all(len(text) > 20 for text in secrets.values())
    for service in (*SERVICES, "front", "init", "renew"):
        container = engine.containers(service)[0]
        image, about = engine.image_bytes(service), json.dumps(container.about)
        assert b"abies" in image and len(image) < 150 << 20, f"{service}: {len(image)} bytes"
        for path, text in secrets.items():
            assert text.encode() not in image and text not in about, f"{path} in {service}"
        found = run(ENGINE[0], "run", "--rm", "--user", "root", "--entrypoint", "find", container.about["Image"], "/", "-xdev", "-name", "*.key", "-o",
                    "-name", "*key_secret", "-o", "-name", "db-abies*", "-o", "-name", "url-*").stdout
        assert not found, found


def test_the_login_of_a_client_is_recorded_with_its_own_address(engine):
    engine.user("located")
    inside = {address for service in (*SERVICES, "front") for address in engine.containers(service)[0].addresses}
    (peer,) = engine.query("SELECT DISTINCT peer FROM audit WHERE actor = 'located' AND action = 'login.password'")
    assert peer and peer not in inside


def test_scaling_up_and_down_under_load_fails_no_request(engine):
    with Traffic(engine, "scaler") as traffic:
        traffic.more()
        engine.up(jobs=4, gateway=2)
        assert len(engine.containers("jobs")) == 4 and len(engine.containers("gateway")) == 2
        for service, name in (("gateway", "abies_http_requests_total"), ("jobs", "abies_requests_total")):
            for container in engine.containers(service):
                before = engine.figures(container, name)
                wait_for(lambda: engine.figures(container, name) > before, 30, f"{container.name} gets its share", every=0.2)
        traffic.more()
        engine.up(jobs=1, gateway=1)
        traffic.more()
    traffic.check()


@pytest.mark.parametrize("service", [*SERVICES, "front", "postgres", "renew"])
def test_a_container_that_dies_comes_back_and_clients_need_nobody(engine, service):
    traffic = served(engine, "dies-" + service)
    (old,) = engine.containers(service)
    old.kill()
    wait_for(lambda: (now := old.again()).pid not in (0, old.pid) and now.health == "healthy", 60, f"{service} to be back", every=0.3)
    wait_for(lambda: engine.call("GET", "/jobs/?limit=1", token=traffic.token).status == 200, 60, "requests to be answered", every=0.2)
    traffic.check()
    served(engine, "again-" + service)


def test_a_gateway_that_hangs_is_unhealthy_and_clients_are_sent_to_another(engine):
    engine.up(gateway=2)
    hung = engine.containers("gateway")[0]
    hung.kill(signal.SIGSTOP)
    try:
        wait_for(lambda: hung.again().health == "unhealthy", 60, "it to be unhealthy", every=0.5)
        served(engine, "hung")
    finally:
        hung.kill(signal.SIGCONT)
    wait_for(lambda: hung.again().health == "healthy", 60, "it to be healthy", every=0.5)
    engine.up(gateway=1)


def test_a_certificate_near_its_end_is_renewed_and_the_gateway_takes_it(engine):
    folder = temporary_folder("enginetls")
    for name, text in engine.volume_files("tls/ca.pem", "tls/ca.key", "tls/server.key").items():
        (folder / name.removeprefix("tls/")).write_text(text)
    near = certificate.near_end(folder)

    def seen():
        return ssl.get_server_certificate(engine.doors()[0], timeout=10)
    gateway = engine.containers("gateway")[0].pid
    engine.compose("exec", "-T", "renew", "sh", "-c", "cat >/run/abies/all/tls/near && cp -p /run/abies/all/tls/near /run/abies/gateway/tls/server.pem && "
                   "mv /run/abies/all/tls/near /run/abies/all/tls/server.pem", stdin=near)
    wait_for(lambda: seen() == near, 20, "the gateway to serve what ends soon", every=0.3)
    engine.compose("restart", "renew")
    wait_for(lambda: seen() != near, 30, "another certificate", every=0.3)
    (folder / "new.pem").write_text(seen())
    assert certificate.days_left(folder / "new.pem") > 390 and certificate.signed_by(folder / "new.pem", folder / "ca.pem")
    assert engine.containers("gateway")[0].pid == gateway, "without a restart"
    shutil.rmtree(folder)


def test_down_and_up_keep_data_keys_and_the_address(engine):
    traffic = served(engine, "kept")
    authority, port = (engine.folder / "public" / "ca.pem").read_text(), engine.port
    engine.compose("down")
    assert engine.compose("ps", "-a", "-q") == ""
    engine.up()
    assert (engine.folder / "public" / "ca.pem").read_text() == authority and engine.port == port
    traffic.check()  # the old token, too: signing keys are in the database, sealed with a key of the volume
    assert engine.login("kept")
    engine.compose("run", "--rm", "-T", "init", "abies-admin", "check")
    said = engine.compose("run", "--rm", "-T", "init", "abies-admin", "doctor", "--secrets", "/run/abies/all/secrets", "--curve-dir", "/run/abies/all/curve",
                          "--tls-dir", "/run/abies/all/tls")
    assert "BROKEN" not in said and "note" not in said, said


def test_behind_pgbouncer_services_share_connections_and_it_may_die(engine):
    engine.env["ABIES_DATABASE_POOLED"] = "true"
    engine.up(profile=("--profile", "pgbouncer"), jobs=3)
    served(engine, "pooled")
    (pooler,) = engine.containers("pgbouncer")
    rows = engine.query("SELECT DISTINCT host(client_addr) FROM pg_stat_activity WHERE usename LIKE 'abies\\_%'")
    assert rows and set(rows) <= set(pooler.addresses), f"somebody goes past the pooler: {rows}"
    pooler.kill()
    wait_for(lambda: (now := pooler.again()).pid not in (0, pooler.pid) and now.health == "healthy", 60, "it to be back", every=0.3)
    wait_for(lambda: engine.call("GET", "/sites/", token=engine.login("pooled")).status == 200, 60, "requests to be answered", every=0.2)
    served(engine, "pooled-again")


def test_everything_ends_soon_when_it_is_told_to(engine):
    engine.compose("--profile", "pgbouncer", "stop", timeout=60)
    for service in (*SERVICES, "front", "pgbouncer", "postgres", "renew"):
        for container in engine.containers(service):
            assert container.about["State"]["ExitCode"] == 0 and not container.about["State"]["OOMKilled"], service
