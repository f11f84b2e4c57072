"""Users and the audit log, as an operator keeps them with abies-admin."""
import json
import os
import pty
import select
import subprocess
import time

import pytest
from test_admin import ADMIN, SOUND, centre  # noqa: F401  (the fixture)


def secret(centre, text, name="password"):
    path = centre.folder / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


def users(centre):
    return {u["username"]: u for u in json.loads(centre.admin("users", "ls", "--json"))}


def audit(centre, *options):
    return json.loads(centre.admin("audit", "--json", *options))


def test_a_user_is_added_with_a_password_that_is_only_kept_as_a_hash(centre):
    centre.init()
    assert "user 1 is made" in centre.admin("users", "add", "tenant", "--password-file", secret(centre, "a secret word"))
    assert users(centre)["tenant"]["password"] is True and users(centre)["tenant"]["disabled"] is False
    (hash_,) = centre.db.psql("SELECT password_hash FROM users")
    assert hash_.startswith("$argon2id$")
    assert "already" in centre.admin("users", "add", "tenant", "--no-password", status=1)
    centre.admin("users", "add", "--user", "stranger", "--no-password")
    assert users(centre)["stranger"]["password"] is False
    assert "a secret word" not in centre.db.psql("SELECT string_agg(a::text, ' ') FROM audit a")[0]


def test_what_makes_no_user_says_why(centre):
    centre.init()
    for words, why in (((), "which user"), (("x" * 101, "--no-password"), "100"), (("a", "--password-file", secret(centre, "")), "empty"),
                       (("a",), "--password-file"), (("a", "--no-password", "--password-file", "x"), "exclude"), (("a", "b"), "no argument")):
        done = subprocess.run([ADMIN, "users", "add", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "ABIES_DATABASE_URL": centre.url})
        assert done.returncode in (1, 2) and why in done.stderr, done.stderr
    assert users(centre) == {}


def test_a_password_is_asked_for_twice_and_not_shown(centre):
    centre.init()

    def type_in(*lines):
        main, other = pty.openpty()
        p = subprocess.Popen([ADMIN, "users", "add", "tenant"], stdin=other, stdout=other, stderr=other, close_fds=True,
                             env={**os.environ, "ABIES_DATABASE_URL": centre.url})
        os.close(other)
        shown = b""
        until = time.monotonic() + 60
        answers = list(lines)
        while time.monotonic() < until:
            if select.select([main], [], [], 0.2)[0]:
                try:
                    shown += os.read(main, 4096)
                except OSError:
                    break
            if answers and shown.count(b": ") > len(lines) - len(answers):
                os.write(main, answers.pop(0).encode() + b"\n")
        os.close(main)
        return p.wait(30), shown.decode()

    code, shown = type_in("first", "second")
    assert code == 1 and "differ" in shown and "first" not in shown and "second" not in shown
    code, shown = type_in("the same", "the same")
    assert code == 0 and "is made" in shown and "the same" not in shown
    assert "tenant" in users(centre)


def test_a_new_password_ends_log_ins_and_leaves_sites_alone(centre):
    centre.init()
    centre.admin("users", "add", "tenant", "--password-file", secret(centre, "one"))
    centre.db.psql("INSERT INTO sites (owner_id, name, path) VALUES (1, 's', '/s');"
                   "INSERT INTO tokens (owner_id, name, scope, site_id) VALUES (1, 'login', 'user', NULL), (1, 's', 'site', 1), (1, 'script', 'read', NULL);")
    (before,) = centre.db.psql("SELECT password_hash FROM users")
    assert "sites and other tokens go on" in centre.admin("users", "passwd", "tenant", "--password-file", secret(centre, "two"))
    assert centre.db.psql("SELECT name FROM tokens ORDER BY id") == ["s", "script"]
    assert centre.db.psql("SELECT password_hash = '%s' FROM users" % before.replace("'", "")) == ["f"]
    assert centre.db.psql("SELECT tokens_from > now() AND tokens_from <= now() + interval '2 s' AND tokens_from = date_trunc('second', tokens_from)"
                          " FROM users") == ["t"]
    centre.admin("users", "passwd", "tenant", "--no-password", "--end-tokens")
    assert centre.db.psql("SELECT count(*) FROM tokens") == ["0"]
    assert users(centre)["tenant"]["password"] is False
    assert "no user intruder" in centre.admin("users", "passwd", "intruder", "--no-password", status=1)


def test_a_user_is_locked_out_and_let_in_again(centre):
    centre.init()
    centre.admin("users", "add", "tenant", "--no-password")
    centre.admin("users", "disable", "tenant")
    (when,) = centre.db.psql("SELECT disabled FROM users")
    centre.admin("users", "disable", "tenant")  # and stays so since then
    assert centre.db.psql("SELECT disabled FROM users") == [when]
    assert users(centre)["tenant"]["disabled"] is True and "locked out" in centre.admin("users", "ls")
    centre.admin("users", "enable", "tenant")
    assert users(centre)["tenant"]["disabled"] is False
    assert centre.db.psql("SELECT tokens_from > now() FROM users") == ["t"]  # tokens from before stay dead
    assert "no user" in centre.admin("users", "disable", "intruder", status=1)


def test_a_deleted_user_takes_everything_along_and_nothing_of_others(centre):
    centre.init()
    centre.db.psql(SOUND)
    centre.db.psql("INSERT INTO sites (id, owner_id, name, path) VALUES (9, 2, 's', '/s'); INSERT INTO apps (id, owner_id, site_id, name) VALUES (9, 2, 9, 'a');"
                   "INSERT INTO tokens (owner_id, name, scope) VALUES (1, 'x', 'user'), (2, 'x', 'user');"
                   "INSERT INTO jobs (id, owner_id, site_id, app_id, last_update, state) SELECT i, 1, 1, 1, now(), 'READY' FROM generate_series(100, 2600) i;"
                   "INSERT INTO job_specs (id, owner_id, app_id, workdir) SELECT i, 1, 1, 'w' || i FROM generate_series(100, 2600) i;"
                   "INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)"
                   " SELECT nextval('event_ids'), 1, i, now(), 'CREATED', 'READY' FROM generate_series(100, 2600) i;"
                   "INSERT INTO job_counts VALUES (1, 1, 1, 'READY', 2501, 2501000000, 2501);")
    assert "--yes" in centre.admin("users", "rm", "owner", status=1)
    assert "2503 jobs" in centre.admin("users", "rm", "owner", "--yes")
    for table in ("sites", "apps", "sessions", "tokens", "batch_jobs", "jobs", "job_specs", "events", "transfer_items"):
        assert centre.db.psql(f"SELECT count(*) FROM {table} WHERE owner_id = 1") == ["0"], table
    assert centre.db.psql("SELECT count(*) FROM sites") == ["1"] == centre.db.psql("SELECT count(*) FROM tokens")
    assert centre.db.psql("SELECT count(*) FROM job_parents") == ["0"]
    assert centre.db.psql("SELECT user_id FROM ended_users") == ["1"]
    assert "are well" in centre.admin("check")
    assert "no user" in centre.admin("users", "rm", "owner", "--yes", status=1)


def test_what_operators_do_is_written_down(centre):
    centre.init()
    centre.admin("users", "add", "tenant", "--no-password")
    centre.admin("users", "disable", "tenant", "--end-tokens")
    centre.admin("users", "limit", "tenant", "--max-jobs", "7")
    centre.admin("keys", "rotate", "--secrets", str(centre.secrets))
    centre.admin("users", "rm", "tenant", "--yes")
    rows = audit(centre)
    assert [r["action"] for r in rows] == ["migrate", "roles", "user.add", "user.disable", "user.limit", "keys.rotate", "user.disable", "user.delete"]
    assert all(r["actor"].startswith("operator ") and r["outcome"] == "ok" and r["peer"] for r in rows)
    assert rows[-1]["detail"] == "tenant" and rows[-1]["username"] == "#1"  # the row outlives the user
    centre.admin("users", "disable", "nobody", status=1)
    assert len(audit(centre)) == len(rows)  # nothing was done


def test_the_log_is_filtered_and_safe_to_look_at(centre):
    centre.init()
    centre.db.psql("INSERT INTO users (username) VALUES (E'e\\x1b[2Jvil');"
                   "INSERT INTO audit (user_id, actor, action, outcome, at) SELECT 1, E'e\\x1b[2Jvil', 'login.password', o, now() - interval '1 h' * n"
                   " FROM (VALUES ('ok', 1), ('failed', 2), ('ok', 30)) v (o, n);")
    assert len(audit(centre, "--user", "e\x1b[2Jvil")) == 3
    assert len(audit(centre, "--user", "e\x1b[2Jvil", "--since", "24h")) == 2
    assert [r["outcome"] for r in audit(centre, "--failed")] == ["failed"]
    assert len(audit(centre, "--limit", "1")) == 1
    shown = centre.admin("audit") + centre.admin("users", "ls")
    assert "\x1b" not in shown and "e?[2Jvil" in shown
    for wrong in (("--since", "x"), ("--limit", "0"), ("--limit", "x")):
        centre.admin("audit", *wrong, status=1)


@pytest.mark.parametrize("what", ["UPDATE audit SET actor = ''", "DELETE FROM audit", "SELECT * FROM audit", "TRUNCATE audit"])
def test_a_service_cannot_change_what_is_written(centre, what):
    centre.init()
    for role in ("abies_auth", "abies_jobs", "abies_report"):
        try:
            centre.db.psql(f"SET ROLE {role}; {what}")
        except Exception as error:  # psql says no
            assert "permission denied" in str(error) or "read-only" in str(error), error
        else:
            raise AssertionError(f"{role} may {what}")


def test_only_old_lines_are_forgotten(centre):
    centre.init()
    centre.db.psql("TRUNCATE audit; INSERT INTO audit (actor, action, outcome, at) SELECT 'x', 'y', 'ok', now() - interval '1 h' * n FROM generate_series(1, 100) n")
    assert centre.db.psql("SET ROLE abies_auth; SELECT audit_forget(interval '50 h')")[-1] in ("50", "51")
    left = int(centre.db.psql("SELECT count(*) FROM audit")[0])
    assert left in (49, 50)
    centre.db.psql("SET ROLE abies_auth; SELECT audit_forget(interval '0 s')")  # asked for too much: a day stays
    assert int(centre.db.psql("SELECT count(*) FROM audit")[0]) in (23, 24)
