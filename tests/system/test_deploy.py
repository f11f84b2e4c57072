"""The container files against the programs: every setting exists, every image target is built, the one-shot container makes
what each service mounts. No container engine is needed: the same entry points run as plain processes in a mount namespace."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

import compose
from centre import BIN, ROOT, temporary_folder

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
    low, high = COMPOSE["services"]["gateway"]["ports"][0].split(":")[0].split("-")
    assert int(high) - int(low) >= 1, "a second gateway needs a second published port"


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
