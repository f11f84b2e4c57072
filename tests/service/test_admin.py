"""abies-admin, driven as an operator drives it."""
import base64
import concurrent.futures
import hashlib
import hmac
import json
import os
import subprocess
import uuid

import pytest
from throwaway import ROOT, Database

ADMIN = os.environ.get("ABIES_ADMIN", str(ROOT / "build/dev/bin/abies-admin"))
UNSAFE = {"fsync is off", "full_page_writes is off", "synchronous_commit is off"}
ROLES = ("jobs", "sessions", "transfers", "auth", "report")


class Centre:
    """An empty database and folders for secrets and keys."""

    def __init__(self, cluster, folder):
        self.secrets, self.curve, self.folder = folder / "secrets", folder / "curve", folder
        self.name = "admin_" + uuid.uuid4().hex[:12]
        self.server = Database(cluster, "postgres")
        self.server.psql(f"CREATE DATABASE {self.name}")
        self.db = Database(cluster, self.name)
        self.url = f"{cluster} dbname={self.name}"

    def admin(self, *words, status=0, **env):
        done = subprocess.run([ADMIN, *words], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "ABIES_DATABASE_URL": self.url, **env})
        assert done.returncode == status, done.stdout + done.stderr
        assert "Sanitizer" not in done.stderr
        return done.stdout + done.stderr

    def init(self):
        return self.admin("init", "--secrets", str(self.secrets), "--curve-dir", str(self.curve))


@pytest.fixture
def centre(cluster, tmp_path):
    centre = Centre(cluster, tmp_path)
    yield centre
    centre.server.psql(f"DROP DATABASE {centre.name} WITH (FORCE)")


def test_who_sets_the_passwords_of_roles_at_the_same_time_does_not_fail(centre):
    """Two deployments in one cluster, or two administrators: the roles are the same rows."""
    centre.init()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for said in [pool.submit(centre.admin, "roles", "--secrets", str(centre.secrets)) for _ in range(12)]:
            assert "passwords of the roles are set" in said.result()


def test_init_makes_everything_and_leaves_it_alone_the_second_time(centre):
    assert "schema 0 ->" in centre.init()
    files = {p: (p.stat().st_mode & 0o777, p.read_bytes()) for p in centre.folder.rglob("*") if p.is_file()}
    names = {str(p.relative_to(centre.folder)) for p in files}
    assert {f"secrets/db-abies_{r}" for r in ROLES} | {"secrets/seal.key"} <= names
    assert {f"curve/{s}.key_secret" for s in ("gateway", *ROLES[:4])} <= names
    assert {f"curve/allowed/{s}.key" for s in ROLES[:4]} <= names
    assert "curve/allowed/gateway.key" not in names
    for path, (mode, _) in files.items():
        if path.parent.name == "secrets" or path.name.endswith("_secret"):
            assert mode == 0o600, path
    centre.init()
    assert files == {p: (p.stat().st_mode & 0o777, p.read_bytes()) for p in centre.folder.rglob("*") if p.is_file()}


def test_an_allowed_key_is_the_services_public_key_without_its_secret(centre):
    centre.init()
    for service in ROLES[:4]:
        allowed = (centre.curve / "allowed" / f"{service}.key").read_text()
        assert allowed == (centre.curve / f"{service}.key").read_text()
        assert "secret-key" not in allowed


def password_fits(verifier, password):
    """Is it the SCRAM verifier of this password?"""
    mechanism, rest = verifier.split("$", 1)
    iterations, salt = rest.split("$")[0].split(":")
    stored = rest.split("$")[1].split(":")[0]
    salted = hashlib.pbkdf2_hmac("sha256", password, base64.b64decode(salt), int(iterations))
    client = hmac.new(salted, b"Client Key", "sha256").digest()
    return mechanism == "SCRAM-SHA-256" and base64.b64encode(hashlib.sha256(client).digest()).decode() == stored


def test_roles_get_the_passwords_of_the_files(centre):
    centre.init()
    (centre.secrets / "db-abies_jobs").write_text("another password\n")
    centre.admin("roles", "--passwords-dir", str(centre.secrets))
    verifiers = dict(line.split("|") for line in centre.db.psql(
        "SELECT rolname, rolpassword FROM pg_authid WHERE rolname LIKE 'abies\\_%'"))
    assert password_fits(verifiers["abies_jobs"], b"another password")
    for role in ROLES[1:]:
        assert password_fits(verifiers["abies_" + role], (centre.secrets / f"db-abies_{role}").read_bytes())


def test_a_password_that_others_may_read_is_refused(centre):
    centre.init()
    (centre.secrets / "db-abies_auth").chmod(0o644)
    assert "chmod 600" in centre.admin("roles", "--secrets", str(centre.secrets), status=1)


def test_a_short_password_is_refused(centre):
    centre.init()
    (centre.secrets / "db-abies_auth").write_text("short\n")
    assert "shorter than 8" in centre.admin("roles", "--secrets", str(centre.secrets), status=1)


def test_a_password_in_the_flag_is_refused(centre):
    for url in ("postgresql://u:secret@h/d", "host=h password=secret"):
        said = centre.admin("check", "--database-url", url, status=1)
        assert "ABIES_DATABASE_URL_FILE" in said and "secret@" not in said


def test_the_url_may_stand_in_a_file_or_in_the_home(centre):
    url = centre.folder / "secrets" / "url-abies"
    url.parent.mkdir()
    url.write_text(centre.url + "\n")
    url.chmod(0o600)
    assert "schema 0" in centre.admin("migrate", ABIES_DATABASE_URL="", ABIES_DATABASE_URL_FILE=str(url))
    assert "are well" in centre.admin("check", "--home", str(centre.folder), ABIES_DATABASE_URL="")


def test_what_cannot_be_understood_ends_with_2_and_a_hint(centre):
    assert "--help" in centre.admin("bla", status=2)
    assert "`x`" in centre.admin("migrate", "x", status=2)
    assert "database-url" in centre.admin("migrate", "--database-urk", "x", status=2)
    assert "Usage" in centre.admin(status=2)
    assert "--secrets" in centre.admin("roles", status=1)
    assert "cannot be reached" in centre.admin("migrate", status=1, ABIES_DATABASE_URL="host=/nonexistent")


def test_keys_rotate_signs_with_a_new_key_and_retires_the_old(centre):
    centre.init()
    assert json.loads(centre.admin("keys", "list", "--json")) == []
    for n in (1, 2, 3):
        centre.admin("keys", "rotate", "--secrets", str(centre.secrets))
        keys = json.loads(centre.admin("keys", "list", "--json"))
        assert len(keys) == n
        assert [k["signs"] for k in keys] == [True][:n == 1] + [False, True, False][:n if n > 1 else 0]  # not before the gateways have the new one
        centre.db.psql("UPDATE signing_keys SET created = created - interval '16 s', retired = retired - interval '16 s'")
        keys = json.loads(centre.admin("keys", "list", "--json"))
        assert [k["signs"] for k in keys] == [True] + [False] * (n - 1)
        assert [k["retired"] is None for k in keys] == [True] + [False] * (n - 1)
    assert centre.db.psql("SELECT count(*) FROM signing_keys WHERE length(secret_key) = 104") == ["3"]
    assert keys[0]["kid"] in centre.admin("keys", "list")


def test_users_ls_shows_users_and_what_they_have(centre):
    centre.init()
    centre.db.psql("INSERT INTO users (username) VALUES ('quo\"te'), ('plain');"
                   "INSERT INTO sites (owner_id, name, path) VALUES (1, 's', '/s');")
    users = json.loads(centre.admin("users", "ls", "--json"))
    assert [(u["username"], u["sites"], u["jobs"]) for u in users] == [('quo"te', 1, 0), ("plain", 0, 0)]
    assert "plain" in centre.admin("users", "ls")


def test_doctor_says_what_is_missing(centre):
    said = centre.admin("doctor", "--secrets", str(centre.secrets), "--curve-dir", str(centre.curve), status=1)
    assert "abies-admin migrate" in said and "keys init" in said
    centre.init()
    # the throw-away server flushes nothing to the disk, and that is said
    report = json.loads(centre.admin("doctor", "--json", "--secrets", str(centre.secrets), "--curve-dir", str(centre.curve), status=1))
    assert {line["detail"].split(":")[0] for line in report if not line["ok"]} == UNSAFE and len(report) > 20
    (centre.curve / "allowed" / "jobs.key").unlink()
    (centre.secrets / "seal.key").write_text("damaged\n")
    broken = [line["detail"] for line in json.loads(centre.admin(
        "doctor", "--json", "--secrets", str(centre.secrets), "--curve-dir", str(centre.curve), status=1))
        if not line["ok"] and line["detail"].split(":")[0] not in UNSAFE]
    assert len(broken) == 2 and "seal.key" in broken[0] and "jobs" in broken[1]


def make_certificate(folder, name, days):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", "/CN=localhost", "-days", str(days), "-keyout", folder / "key.pem",
                    "-out", folder / name], check=True, capture_output=True)


def test_doctor_looks_at_the_end_of_certificates(centre):
    centre.init()
    make_certificate(centre.folder, "ca.pem", 400)
    make_certificate(centre.folder, "server.pem", 3)
    broken = [line["detail"] for line in json.loads(centre.admin("doctor", "--json", "--tls-dir", str(centre.folder), status=1))
              if not line["ok"] and line["detail"].split(":")[0] not in UNSAFE]
    assert len(broken) == 2 and "server.pem ends" in broken[0] and "not signed by ca.pem" in broken[1]


def test_users_limit_is_a_number_none_or_the_services_own(centre):
    centre.init()
    centre.db.psql("INSERT INTO users (username) VALUES ('limited')")

    def limits():
        (user,) = json.loads(centre.admin("users", "ls", "--json"))
        return user["max_jobs"], user["max_sites"]

    assert limits() == (None, None)
    assert "at most 50" in centre.admin("users", "limit", "--user", "limited", "--max-jobs", "50")
    assert limits() == (50, None)
    assert "any number" in centre.admin("users", "limit", "--user", "limited", "--max-sites", "none")
    assert limits() == (50, 0)
    centre.admin("users", "limit", "--user", "limited", "--max-jobs", "default")
    assert limits() == (None, 0)
    for wrong in (["--max-jobs", "-1"], ["--max-jobs", "0"], ["--max-sites", "many"], ["--max-jobs", "99999999999"]):
        centre.admin("users", "limit", "--user", "limited", *wrong, status=1)
    assert "no user" in centre.admin("users", "limit", "--user", "nobody", "--max-jobs", "1", status=1)
    assert "--user" in centre.admin("users", "limit", "--max-jobs", "1", status=1)
    assert limits() == (None, 0)


SOUND = """
INSERT INTO users (id, username) VALUES (1, 'owner'), (2, 'other');
INSERT INTO sites (id, owner_id, name, path) VALUES (1, 1, 's', '/s'), (2, 1, 't', '/t');
INSERT INTO apps (id, owner_id, site_id, name) VALUES (1, 1, 1, 'a');
INSERT INTO sessions (id, owner_id, site_id) VALUES (1, 1, 1), (2, 1, 2);
INSERT INTO jobs (id, owner_id, site_id, app_id, last_update, state, open_parents, open_in)
VALUES (1, 1, 1, 1, now(), 'STAGED_IN', 0, 0), (2, 1, 1, 1, now(), 'AWAITING_PARENTS', 1, 1);
INSERT INTO job_specs (id, owner_id, app_id, workdir, parent_ids) VALUES (1, 1, 1, 'a', '{}'), (2, 1, 1, 'b', '{1}');
INSERT INTO job_parents VALUES (1, 2);
INSERT INTO transfer_items (owner_id, site_id, job_id, direction, state, local_path, remote_path, location_alias)
VALUES (1, 1, 2, 'in', 'pending', 'l', '/r', 'a');
INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)
SELECT nextval('event_ids'), 1, id, now(), 'CREATED', state FROM jobs;
INSERT INTO job_counts SELECT owner_id, site_id, app_id, state, 1, 1000000, 1 FROM jobs;
"""

BREAKS = {
    "counts of jobs": "UPDATE job_counts SET jobs = 2 WHERE state = 'STAGED_IN'",
    "counts of events": "UPDATE job_counts SET events = 0 WHERE state = 'STAGED_IN'",
    "open transfer items of each job": "UPDATE jobs SET open_in = 0 WHERE id = 2",
    "open parents of each job": "UPDATE jobs SET open_parents = 2 WHERE id = 2",
    "jobs whose parents have finished do not wait": "UPDATE jobs SET open_parents = 0 WHERE id = 2",
    "events of each job form a chain": "INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)"
                                       " VALUES (nextval('event_ids'), 1, 1, now(), 'RUNNING', 'STAGED_IN')",
    "the last event is the state": "UPDATE jobs SET state = 'FAILED' WHERE id = 1",
    "no job finished twice": "INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)"
                             " SELECT nextval('event_ids'), 1, 1, now(), 'RUN_DONE', 'JOB_FINISHED' FROM generate_series(1, 2)",
    "leases belong to sessions of the same site": "UPDATE jobs SET session_id = 2 WHERE id = 1",
    "only running jobs are to be cancelled": "UPDATE jobs SET cancel = true WHERE id = 1",
    "only runnable jobs wait for their next attempt": "UPDATE jobs SET not_before = now() WHERE id = 1",
    "both halves of each job": "DELETE FROM job_specs WHERE id = 1",
    "application and site of each job": "UPDATE jobs SET site_id = 2 WHERE id = 1",
    "batch job of each job": "UPDATE jobs SET batch_job_id = 99 WHERE id = 1",
    "parents and edges": "DELETE FROM job_parents",
    "job of each transfer item": "UPDATE transfer_items SET job_id = 99",
    "room for events": "SELECT setval('event_ids', 5::bigint << 24)",
}


@pytest.fixture(scope="module")
def sound(cluster, tmp_path_factory):
    centre = Centre(cluster, tmp_path_factory.mktemp("sound"))
    centre.init()
    centre.db.psql(SOUND)
    yield centre
    centre.server.psql(f"DROP DATABASE {centre.name} WITH (FORCE)")


def test_check_finds_nothing_in_sound_tables_and_knows_every_break_below(sound):
    report = json.loads(sound.admin("check", "--json"))
    assert all(line["ok"] for line in report), report
    assert {line["name"] for line in report} == set(BREAKS)


@pytest.mark.parametrize("name", BREAKS)
def test_check_finds(sound, name):
    """In a copy of the sound database, with one thing broken."""
    copy = sound.name + "_" + hashlib.md5(name.encode()).hexdigest()[:6]
    sound.server.psql(f"CREATE DATABASE {copy} TEMPLATE {sound.name}")
    try:
        broken_url = sound.url.replace(sound.name, copy)
        words = dict(word.split("=", 1) for word in broken_url.split() if not word.startswith("dbname"))
        Database(" ".join(f"{k}={v}" for k, v in words.items()), copy).psql(BREAKS[name])
        report = json.loads(sound.admin("check", "--json", status=1, ABIES_DATABASE_URL=broken_url))
        found = {line["name"]: line["detail"] for line in report if not line["ok"]}
        assert "wrong, e.g." in found[name]
    finally:
        sound.server.psql(f"DROP DATABASE {copy} WITH (FORCE)")
