"""make.py - fills a database by programs of an older version and writes down what they told their clients

    ABIES_BUILD=BUILD_OF_THAT_VERSION python3 make.py FOLDER

data.sql, seal.key and told.json of this folder were made so by the last programs whose newest migration was 0004. Their times are
those of that day (the test moves what must be young), lives of tokens are some twenty years, and numbers of transactions are made
small, because those of the database that loads them begin at about 700.
"""
import json
import pathlib
import socket
import subprocess
import sys
import tempfile

import requests

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[3] / "lib")]
from mesh import Mesh  # noqa: E402
from postgres import BINDIR, Postgres  # noqa: E402

LONG = "200000h"
SLOTS = {"input": {"required": False, "direction": "in", "local_path": "in.dat"}, "output": {"required": False, "direction": "out", "local_path": "out.dat"}}
LISTS = ("/sites/", "/apps/", "/batch-jobs/", "/jobs/", "/transfers/", "/events/", "/sessions/")
LAB = {"location_alias": "lab", "path": "/data/x"}


def fill(mesh, told):
    mesh.gateway()
    mesh.service("auth", token_ttl=LONG, short_token_ttl=LONG, refresh_ttl=LONG)
    mesh.everything()
    users = {name: mesh.user(name) for name in ("tenant", "stranger", "gone")}
    tenant = users["tenant"]
    post = lambda path, body, status=201, by=tenant, key=None: mesh.call(by, "POST", path, body, status, headers={"Idempotency-Key": key} if key else None).json()
    move = lambda jobs, by=tenant, **fields: mesh.call(by, "PATCH", "/jobs/", [{"id": j, **fields} for j in jobs], 200).json()

    def place(by, name):
        site = post("/sites/", {"name": name, "path": f"/projects/{name}", "transfer_locations": {"lab": "scp://lab"}}, by=by)["id"]
        app = post("/apps/", {"site_id": site, "name": f"{name}_demo", "serialized_class": "", "source_code": "", "parameters": {"n": {"required": False, "default": "1"}},
                              "transfers": SLOTS}, by=by)["id"]
        return site, app

    def bulk(app, name, n, **fields):
        return [{"app_id": app, "workdir": f"{name}/{i}", "tags": {"kind": name}, "parameters": {"n": str(i)}, **fields} for i in range(n)]

    site, app = place(tenant, "theta")
    _, second = place(tenant, "summit")
    _, other = place(users["stranger"], "cori")
    post("/jobs/", bulk(other, "strange", 3), by=users["stranger"])

    # tokens: of a site, of a script that has renewed its one, of one that was ended, of a log-in
    told["site_token"] = post("/auth/tokens", {"name": "theta", "scope": "site", "site_id": site})
    reader = post("/auth/tokens", {"name": "reader", "scope": "read"})
    told["reader"] = mesh.call(tenant, "POST", "/auth/token/refresh", {"refresh_token": reader["refresh_token"]}, 200).json()
    told["ended"] = post("/auth/tokens", {"name": "ended", "scope": "user"})
    mesh.call(tenant, "DELETE", f"/auth/tokens/{told['ended']['id']}", None, 204)
    form = {"username": "tenant", "password": "tenant-secret-1", "refresh": "1"}
    told["login"] = requests.post(mesh.url + "/auth/password/login", data=form, timeout=40).json()
    assert requests.post(mesh.url + "/auth/password/login", data={"username": "tenant", "password": "wrong"}, timeout=40).status_code == 401

    # jobs, in all that they can be in
    keyed = {"small": bulk(app, "small", 1), "large": bulk(app, "large", 16, num_nodes=2, wall_time_min=30)}
    told["keyed"] = {key: {"body": body, "answer": post("/jobs/", body, key=f"version-4-{key}")} for key, body in keyed.items()}
    ids = lambda jobs: [j["id"] for j in jobs]
    ready = ids(post("/jobs/", bulk(app, "ready", 12, priority=3)))
    move(ready, state="PREPROCESSED")
    retried = ids(post("/jobs/", bulk(app, "retried", 2, retry={"max_attempts": 3, "on": ["exit"], "delay_sec": 60}, priority=9)))
    move(retried, state="PREPROCESSED")
    files = ids(post("/jobs/", bulk(app, "files", 4, transfers={"input": LAB, "output": LAB})))
    sent = post("/jobs/", bulk(second, "sent", 2, serialized_parameters="gASVBgAAAAAAAAB9lC4="))

    mesh.call(tenant, "POST", "/batch-jobs/", {"site_id": site, "num_nodes": 8, "wall_time_min": 60, "job_mode": "mpi", "project": "climate", "queue": "batch"}, 201)
    batch = mesh.call(tenant, "GET", "/batch-jobs/").json()["results"][0]["id"]
    mesh.call(tenant, "PUT", f"/batch-jobs/{batch}", {"state": "running", "scheduler_id": 4711, "start_time": "2031-01-01T00:00:00"}, 200)
    old = post("/batch-jobs/", {"site_id": site, "num_nodes": 1, "wall_time_min": 5, "job_mode": "serial", "project": "climate", "queue": "debug"})["id"]
    mesh.call(tenant, "PUT", f"/batch-jobs/{old}", {"state": "finished", "scheduler_id": 4710}, 200)

    def lease(n, key, **fields):
        session = post("/sessions/", {"site_id": site, **fields})["id"]
        jobs = post(f"/sessions/{session}", {"max_num_jobs": n, "filter_tags": {}, "max_wall_time_min": 60}, 200, key=key)
        return session, jobs

    told["session"], told["held"] = lease(8, "version-4-lease", batch_job_id=batch)
    assert len(told["held"]) == 8 and ids(told["held"])[:2] == retried
    told["silent"], told["silent_held"] = lease(3, None)
    held = ids(told["held"])
    move(held[:7], state="RUNNING")
    move(ids(told["silent_held"])[:2], state="RUNNING")
    page = mesh.call(tenant, "GET", "/events/?since=3-0&limit=1000", None, 200).json()
    assert len(page["results"]) > 40
    move(held[:1], state="RUN_ERROR", state_data={"cause": "exit"}, return_code=1)          # tried again, later
    move(held[2:4], state="RUN_DONE", return_code=0)
    move(held[2:3], state="POSTPROCESSED")
    move(held[2:3], state="JOB_FINISHED")
    move(held[4:5], state="FAILED", state_data={"message": "by hand"})
    told["children"] = ids(post("/jobs/", bulk(app, "child", 2, parent_ids=[held[5]]) + bulk(app, "done-child", 1, parent_ids=[held[2]])))
    post(f"/jobs/{held[6]}/cancel", {}, 200)
    items = mesh.call(tenant, "GET", "/transfers/?limit=100&ordering=id", None, 200).json()["results"]
    inward = [i["id"] for i in items if i["direction"] == "in"]
    mesh.call(tenant, "PATCH", "/transfers/", [{"id": inward[0], "state": "active", "task_id": "task-1"}, {"id": inward[1], "state": "done", "transfer_info": {"bytes": 7}}], 200)
    told.update(tenant=tenant.token, stranger=users["stranger"].token, gone=users["gone"].token, site=site, app=app, second=second, batch=batch, files=files,
                active=inward[0], retried=held[0], ready=ready, sent=ids(sent), page=page["next"])
    mesh.call(tenant, "DELETE", f"/jobs/{told['sent'][1]}", None, 204)
    mesh.admin("users", "rm", "--user", "gone", "--yes")
    mesh.query("""INSERT INTO identities (issuer, subject, user_id) SELECT 'https://idp.example.org', 'subject-1', id FROM users WHERE username = 'tenant'""")
    mesh.query("""INSERT INTO device_attempts (client_id, device_hash, user_code, expires, next_poll)
                  VALUES ('01020304-0506-4708-890a-0b0c0d0e0f10', decode(repeat('ab', 32), 'hex'), 'ABCD-EFGH', now() + interval '20 years', now())""")
    mesh.query("INSERT INTO login_states (hash, redirect_uri, expires) VALUES (decode(repeat('cd', 32), 'hex'), 'https://x.example.org/cb', now() + interval '20 years')")
    told["lists"] = {name: {path: mesh.call(users[name], "GET", f"{path}?limit=1000" + ("&ordering=timestamp" if path == "/events/" else ""), None, 200).json()
                            for path in LISTS} for name in ("tenant", "stranger")}
    told["tokens"] = mesh.call(tenant, "GET", "/auth/tokens", None, 200).json()


def small_numbers(mesh, told):
    """Transactions in the order that they had; a cursor names the last event before it."""
    at, event = map(int, told["page"].split("-"))
    before = mesh.query("SELECT id FROM events WHERE (xid, id) <= (%s::text::xid8, %s) ORDER BY xid DESC, id DESC LIMIT 1", str(at), event)[0][0]
    mesh.query("UPDATE events e SET xid = (100 + n)::text::xid8 FROM (SELECT id, dense_rank() OVER (ORDER BY xid) AS n FROM events) AS r WHERE r.id = e.id")
    top, now = mesh.query("SELECT max(xid)::text::int, (SELECT xid::text FROM events WHERE id = %s) FROM events", before)[0]
    assert top < 600
    told["cursor"] = f"{now}-{before}"
    told["behind"] = [row[0] for row in mesh.query("""SELECT e.id FROM events e JOIN users u ON u.id = e.owner_id
        WHERE u.username = 'tenant' AND (e.xid, e.id) > (%s::text::xid8, %s) ORDER BY e.xid, e.id""", now, before)]
    del told["page"]


def main(folder):
    folder, told = pathlib.Path(folder), {}
    with tempfile.TemporaryDirectory(prefix="ab-", dir="/tmp") as name:
        tmp = pathlib.Path(name)
        tmp.chmod(0o755)
        with Postgres(tmp / "pg") as pg:
            with Mesh(tmp / "mesh", pg) as mesh:
                fill(mesh, told)
                small_numbers(mesh, told)
                seal = (tmp / "mesh" / "secrets" / "seal.key").read_text()
                database = mesh.database
            dump = subprocess.run([f"{BINDIR}/pg_dump", "-h", str(tmp / "pg"), "-U", "postgres", "--data-only", "--column-inserts", "--rows-per-insert=20",
                                   "--load-via-partition-root", "-T", "schema_version", database], capture_output=True, text=True, check=True).stdout
    keep = [line for line in dump.splitlines() if line and not line.startswith(("--", "SET ", "SELECT pg_catalog.set_config", "\\"))]
    text = "\n".join(keep).replace(f"'{socket.gethostname()}'", "'centre'")
    (folder / "data.sql").write_text(f"-- data.sql - see make.py\n{text}\n")
    (folder / "seal.key").write_text(seal)
    (folder / "told.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(told.items())) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
