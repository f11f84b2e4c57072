"""The container files against the programs: every setting exists, every image target is built, the one-shot container makes
what each service mounts. No container engine is needed: the same entry points run as plain processes in a mount namespace."""
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest
import yaml

import certificate
import compose
from centre import BIN, ROOT, temporary_folder, wait_for

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
PROGRAMS = {"gateway": "abies-gateway", "jobs": "abies-jobs", "sessions": "abies-sessions", "transfers": "abies-transfers", "auth": "abies-auth"}


def test_the_compose_file_is_what_the_specification_allows():
    compose.check(COMPOSE)


@pytest.mark.parametrize("wrong", [
    "services: {a: {image: x, restrat: always}}", "services: {a: {}}", "services: {a: {image: x, restart: sometimes}}",
    "services: {a: {image: x, depends_on: {b: {condition: service_started}}}}", "services: {a: {image: x, volumes: ['v:/v']}}",
    "services: {a: {image: x, environment: {A: true}}}", "services: {a: {image: x, stop_grace_period: 45}}",
    "services: {a: {image: x, depends_on: {a: {condition: service_started}}}}", "services: {a: {image: x, networks: [n]}}",
    "services: {a: {image: x, healthcheck: {interval: soon}}}", "services: {a: {image: x, ports: [eight]}}"])
def test_the_check_of_the_compose_file_can_fail(wrong):
    with pytest.raises(AssertionError):
        compose.check({"volumes": {}, "networks": {}, **yaml.safe_load(wrong)})


@pytest.mark.parametrize("service", PROGRAMS)
def test_every_variable_of_a_container_is_a_setting_of_its_program(service):
    text = subprocess.run([BIN / PROGRAMS[service], "--help"], capture_output=True, text=True, check=True).stdout
    known = {m.replace("-", "_").upper() for m in re.findall(r"^  (?:--)?([a-z][a-z-]+)", text, re.M)}
    for name in COMPOSE["services"][service]["environment"]:
        assert name.startswith("ABIES_")
        setting = name.removeprefix("ABIES_")
        assert setting in known or setting.removesuffix("_FILE") in known, f"{service}: {name}"


def test_every_built_service_has_its_image_target():
    targets = set(re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, re.M))
    for name, service in COMPOSE["services"].items():
        if "build" in service:
            assert service["build"]["target"] in targets, name
            assert (ROOT / service["build"]["dockerfile"]).exists()


def test_services_run_without_root_and_without_a_writable_image():
    assert re.search(r"^USER abies$", DOCKERFILE, re.M)
    for name in PROGRAMS:
        service = COMPOSE["services"][name]
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        assert all(v.endswith(":ro") for v in service["volumes"]), name


def test_every_volume_that_is_mounted_is_declared():
    mounted = {v.split(":")[0] for s in COMPOSE["services"].values() for v in s.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])


def test_services_look_for_gateways_by_one_name_so_that_scaling_needs_nothing_else():
    for name in set(PROGRAMS) - {"gateway"}:
        assert COMPOSE["services"][name]["environment"]["ABIES_GATEWAYS"] == "tcp://gateway:7440"
    published = {name for name, service in COMPOSE["services"].items() if "ports" in service}
    assert published == {"front"}, "a published port of what is scaled would be another one after each restart"
    assert "server-template gateway 16 gateway:8443" in (ROOT / "deploy" / "haproxy.cfg").read_text()


INIT = r"""
set -eu
mount --bind "$DIR" /run/abies
for s in all postgres public gateway jobs sessions transfers auth; do mkdir -p /run/abies/$s; done
sh deploy/init password
psql -qAtX -h "$PGHOST" -U postgres -d postgres -v password="$(cat /run/abies/postgres/password)" <<'SQL'
CREATE ROLE abies SUPERUSER LOGIN PASSWORD :'password';
CREATE DATABASE abies OWNER abies;
SQL
ABIES_DATABASE_HOST=$PGHOST sh deploy/init
ABIES_DATABASE_HOST=$PGHOST sh deploy/init
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace and chown need root")
def test_the_one_shot_container_gives_each_service_its_keys_and_nothing_else():
    folder = temporary_folder("init")
    pathlib.Path("/run/abies").mkdir(exist_ok=True)
    env = {**os.environ, "DIR": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}
    env.pop("ABIES_BUILD", None)
    done = subprocess.run([ROOT / "tests/lib/cluster", "run", "unshare", "--mount", "--", "sh", "-c", INIT], env=env, cwd=ROOT, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr

    def files(name):
        return sorted(str(p.relative_to(folder / name)) for p in (folder / name).rglob("*") if p.is_file())
    assert files("jobs") == ["curve/gateway.key", "curve/jobs.key", "curve/jobs.key_secret", "secrets/url-jobs"]
    assert "secrets/seal.key" in files("auth") and "secrets/seal.key" not in files("sessions")
    assert files("gateway") == ["curve/allowed/auth.key", "curve/allowed/jobs.key", "curve/allowed/sessions.key", "curve/allowed/transfers.key",
                                "curve/gateway.key", "curve/gateway.key_secret", "tls/server.key", "tls/server.pem"]
    assert files("public") == ["ca.pem"] and files("pgbouncer") == ["pgbouncer.ini", "userlist.txt"]
    for service in ("jobs", "sessions", "transfers", "auth"):
        password = (folder / "all" / "secrets" / f"db-abies_{service}").read_text()
        assert len(password) > 20 and (folder / service / "secrets" / f"url-{service}").read_text().endswith(f"password={password}")
    for path in (folder / "jobs").rglob("*"):
        assert path.stat().st_uid == 10001 and path.stat().st_mode & 0o077 == 0, path
    subprocess.run(["openssl", "verify", "-CAfile", folder / "public/ca.pem", folder / "gateway/tls/server.pem"], check=True, capture_output=True)
    shutil.rmtree(folder)


RENEW = r"""
set -eu
mount --bind "$DIR" /run/abies
mkdir -p /run/abies/all /run/abies/gateway
exec sh deploy/init renew
"""


class Renewal:
    """The container that looks at the certificate each day."""

    def __init__(self, folder, period=None, name="localhost"):
        env = {**os.environ, "DIR": str(folder), "ABIES_SERVER_NAME": name, **({"ABIES_RENEW_PERIOD": period} if period else {})}
        self.process = subprocess.Popen(["unshare", "--mount", "--", "sh", "-c", RENEW], env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)

    def naps(self):
        """How long it sleeps before its next look."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        words = [pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in children]
        return [w[1] for w in words if w[0] == "sleep"]

    def __enter__(self):
        wait_for(lambda: self.naps() or self.process.poll() is not None, 20, "its first look")
        return self

    def __exit__(self, *exc):
        self.process.terminate()
        text = self.process.communicate(timeout=20)[0]
        assert self.process.returncode == 0, text


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace and chown need root")
def test_the_daily_look_renews_a_certificate_near_its_end_and_no_other(tmp_path):
    tls, given = tmp_path / "all" / "tls", tmp_path / "gateway" / "tls"
    pathlib.Path("/run/abies").mkdir(exist_ok=True)

    def now():
        return (tls / "server.pem").read_text()

    with Renewal(tmp_path) as renewal:
        assert renewal.naps() == ["86400"], "once a day"
    first, authority = now(), (tls / "ca.pem").read_text()
    with Renewal(tmp_path, period="0.1"):
        time.sleep(0.5)  # some looks
        assert now() == first, "it has a year"
        near = certificate.near_end(tls)
        wait_for(lambda: now() != near, 20, "it to be renewed")
        wait_for(lambda: given.exists() and (given / "server.pem").read_text() == now() and certificate.is_pair(given), 20, "the gateways' copy")
        assert certificate.days_left(tls / "server.pem") == 396 or certificate.days_left(tls / "server.pem") == 397
        assert certificate.signed_by(given / "server.pem", tls / "ca.pem") and (tls / "ca.pem").read_text() == authority
        assert given.stat().st_uid == (given / "server.key").stat().st_uid == 10001 and (given / "server.key").stat().st_mode & 0o077 == 0

        with open(tls / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # not in the middle of a look
            own = certificate.near_end(tls, ca=False)  # the operator's: not ours to renew
        wait_for(lambda: (given / "server.pem").read_text() == own, 20, "it to be handed out")
        assert now() == own
        (tls / "server.pem").unlink()
        wait_for(lambda: (tls / "server.pem").exists() and certificate.is_pair(tls), 20, "one of our own again")
        assert (tls / "ca.pem").read_text() == authority, "clients trust that one"
    with Renewal(tmp_path, name="10.1.2.3"):
        said = certificate.openssl("x509", "-in", tls / "server.pem", "-noout", "-ext", "subjectAltName")
        assert "IP Address:10.1.2.3" in said and "DNS:gateway" in said
    with Renewal(tmp_path, name="abies.example.org"):
        subprocess.run(["openssl", "verify", "-x509_strict", "-verify_hostname", "abies.example.org", "-purpose", "sslserver", "-CAfile", tls / "ca.pem",
                        given / "server.pem"], check=True, capture_output=True)
        assert sorted(p.name for p in given.iterdir()) == ["server.key", "server.pem"]
