"""abies-admin doctor: a centre that is well has no finding; each thing that is broken is found, with what to do about it.

What is broken is mended again behind each test; in the end everything is well again."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess

import psycopg2
import pytest

from centre import BIN, Centre, alive, temporary_folder, wait_for

SETTINGS = {"house_period": "1h", "sweep_period": "1h", "session_ttl": "1m", "figures_period": "200ms"}


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("doc"), replicas={"jobs": 2}, settings=SETTINGS) as centre:
        yield centre


def doctor(centre, *more):
    done = centre.run([str(BIN / "abies-admin"), "doctor", "--home", str(centre.home), "--json", *more], check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    assert "Sanitizer" not in done.stderr and not done.stderr, done.stderr
    findings = json.loads(done.stdout)
    assert (done.returncode == 0) == all(f["ok"] for f in findings)
    for f in findings:
        assert f["ok"] == (f["level"] != "broken")
        assert f["level"] == "ok" or (f["do"] and f["detail"]), f"a finding without cause and remedy: {f}"
    return findings


def broken(centre, *more):
    return [f for f in doctor(centre, *more) if not f["ok"]]


def has(findings, name, *words, level="broken"):
    """That finding is among them, with these words in cause or remedy."""
    fits = [f for f in findings if f["level"] == level and f["name"] == name and all(w in f"{f['detail']} {f['do']}" for w in words)]
    assert fits, f"no {name} with {words} among {[f for f in findings if f['level'] != 'ok']}"


def found(centre, name, *words, level="broken", more=()):
    has(doctor(centre, *more), name, *words, level=level)


@contextlib.contextmanager
def changed(path):
    """The file is put back as it was."""
    path = pathlib.Path(path)
    mode, was = path.stat().st_mode, path.read_bytes()
    try:
        yield path
    finally:
        path.write_bytes(was)
        path.chmod(mode)


def sql(centre, *statements):
    db = psycopg2.connect((centre.home / "secrets" / "url-abies").read_text().strip())
    try:
        db.autocommit = True
        with db.cursor() as cursor:
            for text in statements:
                cursor.execute(text)
            return cursor.fetchall() if cursor.description else None
    finally:
        db.close()


@contextlib.contextmanager
def server_setting(centre, name, value):
    sql(centre, f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
    try:
        wait_for(lambda: sql(centre, f"SHOW {name}") == [(value,)], 10, f"{name} is {value}")
        yield
    finally:
        sql(centre, f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")
        wait_for(lambda: sql(centre, f"SHOW {name}") != [(value,)], 10, f"{name} is back")


@contextlib.contextmanager
def shadow(centre, what):
    """Functions and views of the catalog for which we have others: what cannot be broken for real in a test."""
    sql(centre, "CREATE SCHEMA doctored", what, "ALTER DATABASE abies SET search_path = doctored, pg_catalog, public")
    try:
        yield
    finally:
        sql(centre, "ALTER DATABASE abies RESET search_path", "DROP SCHEMA doctored CASCADE")


def test_a_centre_that_is_well_has_no_finding(centre):
    findings = doctor(centre)
    assert [f for f in findings if not f["ok"]] == []
    names = {f["name"] for f in findings}
    assert {"database", "schema", "PostgreSQL settings", "connections", "clock", "transactions", "roles", "signing key", "sweeper",
            "request records", "room for events", "password", "secret", "CURVE key", "certificate", "disk", "supervisor", "process",
            "replicas", "bus"} <= names
    text = centre.run([str(BIN / "abies-admin"), "doctor", "--home", str(centre.home)]).stdout
    assert f"{len(findings)} of {len(findings)} are well" in text


def test_for_people_each_finding_has_its_remedy_on_a_line_of_its_own(centre):
    with changed(centre.home / "secrets" / "seal.key") as path:
        path.chmod(0o644)
        done = centre.run([str(BIN / "abies-admin"), "doctor", "--home", str(centre.home)], check=False)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("BROKEN "))
    assert lines[at + 1].startswith("        do: ")


# ---------------------------------------------------------------------- files

def test_secrets_that_others_may_read(centre):
    names = {"secrets/db-abies_jobs": "secret", "secrets/seal.key": "secret", "curve/auth.key_secret": "CURVE key", "tls/server.key": "certificate"}
    with contextlib.ExitStack() as stack:
        for n, name in enumerate(names):
            stack.enter_context(changed(centre.home / name)).chmod((0o644, 0o640, 0o604, 0o620)[n])
        findings = doctor(centre)
    for name, kind in names.items():
        has(findings, kind, name.split("/")[1])


def test_folders_that_others_may_write(centre):
    folders = [centre.home / "secrets", centre.home / "curve"]
    for path in folders:
        path.chmod(0o777)
    try:
        findings = doctor(centre)
    finally:
        for path in folders:
            path.chmod(0o700)
    for path in folders:
        has(findings, "folder", str(path), "chmod 700")


def test_default_and_short_passwords(centre):
    weak = {"jobs": "changeme", "sessions": "password-password", "transfers": "a" * 24, "auth": "short"}
    with contextlib.ExitStack() as stack:
        for service, password in weak.items():
            stack.enter_context(changed(centre.home / "secrets" / f"db-abies_{service}")).write_text(password + "\n")
        findings = doctor(centre)
    for service in weak:
        has(findings, "secret", f"db-abies_{service}", "guessed")


def test_a_seal_key_that_is_damaged_missing_or_no_secret(centre):
    with changed(centre.home / "secrets" / "seal.key") as path:
        path.write_text("damaged\n")
        found(centre, "secret", "seal.key", "backup")
        path.write_text("A" * 43 + "\n")
        found(centre, "secret", "seal.key", "the same")
        path.unlink()
        found(centre, "secret", "seal.key")


def test_curve_keys_that_do_not_fit(centre):
    curve = centre.home / "curve"
    with changed(curve / "jobs.key") as path:
        path.write_bytes((curve / "auth.key").read_bytes())
        found(centre, "CURVE key", "jobs.key_secret", "not a pair")
    with changed(curve / "allowed" / "jobs.key") as path:
        path.write_bytes((curve / "auth.key").read_bytes())
        found(centre, "CURVE key", "do not let jobs in", "not its key")
        path.unlink()
        found(centre, "CURVE key", "do not let jobs in", "missing", "keys init")


def certificate(folder, days, ca=None):
    """(certificate, key): its own authority, or signed by the centre's."""
    key, pem = folder / "test.key", folder / "test.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-keyout", key]
    if ca:
        subprocess.run(["openssl", "req", *curve, "-out", folder / "test.csr"], check=True, capture_output=True)
        subprocess.run(["openssl", "x509", "-req", "-in", folder / "test.csr", "-CA", ca / "ca.pem", "-CAkey", ca / "ca.key", "-CAcreateserial",
                        "-days", str(days), "-out", pem], check=True, capture_output=True)
    else:
        subprocess.run(["openssl", "req", "-x509", *curve, "-days", str(days), "-out", pem], check=True, capture_output=True)
    return pem.read_bytes(), key.read_bytes()


def test_certificates_that_end_are_strangers_or_have_another_key(centre, tmp_path):
    tls = centre.home / "tls"
    with changed(tls / "server.pem") as pem, changed(tls / "server.key") as key:
        pem.write_bytes(certificate(tmp_path, 400)[0])
        found(centre, "certificate", "not signed by ca.pem")
        found(centre, "certificate", "not the key of server.pem")
        one, two = certificate(tmp_path, 3)
        pem.write_bytes(one), key.write_bytes(two)
        found(centre, "certificate", "server.pem ends", "GMT")
        pem.write_text("nothing\n")
        found(centre, "certificate", "no certificate")
        pem.unlink()
        found(centre, "certificate", "server.pem is missing")
        pem.touch()


def test_a_disk_with_too_little_left(centre):
    assert shutil.disk_usage(centre.home).free < 1 << 50
    found(centre, "disk", "GiB left", "PostgreSQL stops", more=("--min-free", "1000000GiB"))
    done = centre.run([str(BIN / "abies-admin"), "doctor", "--home", str(centre.home), "--min-free", "lots"], check=False)
    assert done.returncode == 1 and "--min-free" in done.stderr


# ---------------------------------------------------------------------- PostgreSQL

def test_settings_that_lose_data_or_stop_everything(centre):
    wrong = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off", "track_counts": "off",
             "zero_damaged_pages": "on", "ignore_checksum_failure": "on", "default_transaction_isolation": "serializable", "log_line_prefix": "%m "}
    with contextlib.ExitStack() as stack:
        for name, value in wrong.items():
            stack.enter_context(server_setting(centre, name, value))
        findings = doctor(centre)
    assert wrong.pop("log_line_prefix")
    has(findings, "PostgreSQL settings", "%a", level="note")
    for name, value in wrong.items():
        has(findings, "PostgreSQL settings", f"{name} is {value}", f"{name} = ")


def test_connections_that_do_not_suffice(centre):
    with changed(centre.home / "centre.yml") as path:
        path.write_text(path.read_text().replace("settings:\n", "settings:\n  workers: 64\n"))
        found(centre, "connections", "max_connections")


def test_a_clock_that_differs(centre):
    with shadow(centre, "CREATE FUNCTION doctored.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
                        " $$ SELECT pg_catalog.clock_timestamp() + interval '7 seconds' $$"):
        found(centre, "clock", "ahead of", "7.", "NTP")


def test_a_transaction_that_is_open_for_long(centre):
    db = psycopg2.connect((centre.home / "secrets" / "url-abies").read_text().strip() + " application_name=forgotten")
    with db.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()")
        with shadow(centre, "CREATE VIEW doctored.pg_stat_activity AS SELECT datid, pid, usename, application_name, backend_type, backend_xid,"
                            " xact_start - interval '2 minutes' AS xact_start FROM pg_catalog.pg_stat_activity"):
            found(centre, "transactions", "forgotten", "pg_terminate_backend")
    db.close()


def test_an_index_that_is_not_valid(centre):
    where = "WHERE indexrelid = 'jobs_state'::regclass"
    sql(centre, f"UPDATE pg_index SET indisvalid = false {where}")
    try:
        found(centre, "indexes", "jobs_state", "REINDEX")
    finally:
        sql(centre, f"UPDATE pg_index SET indisvalid = true {where}")


def test_migrations_that_were_not_run_or_are_newer(centre):
    ((version, name, applied),) = sql(centre, "SELECT version, name, applied::text FROM schema_version ORDER BY version DESC LIMIT 1")
    sql(centre, f"DELETE FROM schema_version WHERE version = {version}")
    try:
        found(centre, "schema", f"version {version - 1} of {version}", "abies-admin migrate")
        sql(centre, f"INSERT INTO schema_version VALUES ({version + 2}, 'future', now())")
        found(centre, "schema", f"version {version + 2} is newer")
    finally:
        sql(centre, f"DELETE FROM schema_version WHERE version >= {version}",
            f"INSERT INTO schema_version VALUES ({version}, '{name}', '{applied}')")


def test_roles_without_limits_with_powers_or_another_password(centre):
    def mend():
        centre.run([str(BIN / "abies-admin"), "migrate", "--home", str(centre.home)])
        centre.run([str(BIN / "abies-admin"), "roles", "--home", str(centre.home)])
    sql(centre, "ALTER ROLE abies_jobs RESET idle_in_transaction_session_timeout")
    found(centre, "roles", "abies_jobs", "limits")
    sql(centre, "ALTER ROLE abies_transfers SUPERUSER")
    found(centre, "roles", "abies_transfers", "NOSUPERUSER")
    sql(centre, "ALTER ROLE abies_transfers NOSUPERUSER", "ALTER ROLE abies_report NOLOGIN")
    found(centre, "roles", "abies_report is missing or may not log in")
    sql(centre, "ALTER ROLE abies_report LOGIN", "ALTER ROLE abies_sessions PASSWORD 'something else'")
    found(centre, "password", "abies_sessions cannot log in", "abies-admin roles")
    mend()


def test_a_database_that_lets_everybody_in(centre):
    with changed(centre.home / "pg" / "pg_hba.conf") as path:
        path.write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
        sql(centre, "SELECT pg_reload_conf()")
        wait_for(lambda: [f for f in broken(centre) if "any password" in f["detail"]], 10, "it is found", every=0.5)
        found(centre, "password", "any password", "scram-sha-256")
    sql(centre, "SELECT pg_reload_conf()")
    wait_for(lambda: not broken(centre), 10, "it is well again", every=0.5)


def test_a_retired_signing_key_without_a_successor(centre):
    kids = [kid for (kid,) in sql(centre, "SELECT kid FROM signing_keys WHERE retired IS NULL")]
    sql(centre, "UPDATE signing_keys SET retired = now() - interval '1 hour' WHERE retired IS NULL")
    try:
        found(centre, "signing key", "keys rotate")
    finally:
        sql(centre, *[f"UPDATE signing_keys SET retired = NULL WHERE kid = '{kid}'" for kid in kids])


def test_housekeeping_that_does_not_happen(centre):
    owner = sql(centre, "SELECT id FROM users LIMIT 1")[0][0]
    site = centre.post("/sites/", {"name": "silent", "path": "/s"})["id"]
    sql(centre, f"INSERT INTO sessions (owner_id, site_id, heartbeat) VALUES ({owner}, {site}, now() - interval '10 minutes')")
    found(centre, "sweeper", "1 sessions are silent", "sessions")
    sql(centre, "DELETE FROM sessions", f"DELETE FROM sites WHERE id = {site}")
    sql(centre, f"INSERT INTO requests (owner_id, key, verb, created) VALUES ({owner}, gen_random_uuid(), 'job.create', now() - interval '3 days')")
    found(centre, "request records", "72.0 h")
    sql(centre, "DELETE FROM requests WHERE created < now() - interval '1 day'")
    last = sql(centre, "SELECT coalesce(pg_sequence_last_value('event_ids'), 0) >> 24")[0][0]
    sql(centre, f"ALTER TABLE events_{last + 1} RENAME TO aside")
    found(centre, "room for events", "partition")
    sql(centre, f"ALTER TABLE aside RENAME TO events_{last + 1}")
    with changed(centre.home / "centre.yml") as path:
        path.write_text(path.read_text().replace("settings:\n", "settings:\n  event_keep: 1h\n"))
        sql(centre, "INSERT INTO event_marks (at, id) VALUES (now() - interval '4 days', 1)")
        found(centre, "old events", "96.0 h")
        sql(centre, "DELETE FROM event_marks WHERE at < now() - interval '3 days'")


# ---------------------------------------------------------------------- what runs

def test_a_frozen_replica(centre):
    pid = centre.pid("jobs", 1)
    os.kill(pid, signal.SIGSTOP)
    try:
        findings = doctor(centre)
    finally:
        os.kill(pid, signal.SIGCONT)
    has(findings, "process", "jobs.1 is not ready", "does not answer")
    has(findings, "replicas", "1 of 2 of jobs")
    wait_for(lambda: not broken(centre), 30, "it is well again", every=0.5)


def test_a_supervisor_replicas_and_a_bus_that_are_gone(centre):
    state = json.loads((centre.home / "run" / "centre.json").read_text())
    gone = [state["supervisor"]["pid"], centre.pid("sessions"), centre.pid("gateway")]
    for pid in gone:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(p) for p in gone), 10, "they are gone")
    wait_for(lambda: [f for f in broken(centre) if "gateways: 0" in f["detail"]], 20, "the services see that no gateway is there")
    findings = broken(centre)
    has(findings, "supervisor", "not started again", "abies up")
    has(findings, "process", "sessions.0 does not run")
    has(findings, "process", "gateway.0 does not run")
    has(findings, "replicas", "0 of 1 of sessions")
    has(findings, "replicas", "0 of 1 of gateway")
    has(findings, "bus", "is not reached", "firewall")
    centre.cli("up", timeout=120)
    wait_for(lambda: not broken(centre), 30, "everything is well again", every=0.5)


def test_a_timer_that_fails(centre):
    """The sessions service may not look at the counts any more."""
    sql(centre, "REVOKE SELECT ON job_counts FROM abies_sessions")
    try:
        centre.kill("sessions")
        wait_for(lambda: [f for f in broken(centre) if f["name"] == "timer" and "figures" in f["detail"]], 60, "the timer is found", every=0.5)
    finally:
        sql(centre, "GRANT SELECT ON job_counts TO abies_sessions")
    wait_for(lambda: not broken(centre), 60, "it is well again", every=0.5)


def test_a_database_that_is_away(centre):
    centre.cli("down", timeout=60)
    findings = broken(centre)
    assert any(f["name"] == "database" and "start PostgreSQL" in f["do"] for f in findings), findings
    assert any(f["name"] == "centre" and "abies up" in f["do"] for f in findings), findings
    centre.up()
    wait_for(lambda: not broken(centre), 30, "everything is well again", every=0.5)


def test_in_the_end_everything_is_well_again(centre):
    wait_for(lambda: not broken(centre), 30, "no finding", every=0.5)
