"""Tokens end while things run: revoked and locked out on every gateway within seconds; renewed under agents and launchers unnoticed."""
import asyncio
import base64
import json
import ssl
import threading
import time

import pytest
import requests
import websockets

from api import Tenant
from centre import BIN, Centre, temporary_folder, wait_for

SECONDS = 8  # what "within seconds" means here: gateways ask every five
SETTINGS = {"session_ttl": "4s", "sweep_period": "500ms", "short_token_ttl": "8s", "login_hold": "20ms", "login_limit": "1000",
            "login_limit_address": "100000"}


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("lock"), gateways=2, replicas={"auth": 2}, settings=SETTINGS) as centre:
        yield centre


def admin(centre, *words, **kw):
    return centre.run([str(BIN / "abies-admin"), *words, "--home", str(centre.home)], **kw).stdout


def on_all_gateways(centre, token):
    """The statuses that a token gets on 20 fresh connections: the kernel deals them out to both gateways, and leaves one out once in a million."""
    assert len(centre.processes("gateway")) == 2
    headers = {"Authorization": f"Bearer {token}"}
    return {requests.get(centre.root + "/sites/", headers=headers, verify=centre.ca, timeout=30).status_code for _ in range(20)}


def ends_everywhere(centre, tokens, deadline=SECONDS):
    until = time.monotonic() + deadline
    for token in tokens:
        wait_for(lambda: on_all_gateways(centre, token) == {401}, max(0.1, until - time.monotonic()) + 2, "the end of a token on both gateways", every=0.2)
    assert time.monotonic() < until + 2


@pytest.fixture
def person(centre):
    return Tenant(centre)


def sign_in(centre, person, **more):
    r = requests.post(centre.root + "/auth/password/login", data={"username": person.name, "password": person.name + "-secret-1", **more},
                      verify=centre.ca, timeout=30)
    return r.status_code, r.json()


def all_kinds(centre, person):
    """One access token of each kind, and the refresh token of a login."""
    site = person.site()
    login = sign_in(centre, person, refresh="1")[1]
    tokens = [sign_in(centre, person)[1]["access_token"], login["access_token"]]
    for body in ({"name": "script", "scope": "read"}, {"name": "agent", "scope": "site", "site_id": site["id"]}):
        tokens.append(person.post("/auth/tokens", body).json()["access_token"])
    for token in tokens:
        assert on_all_gateways(centre, token) == {200}
    return tokens, login["refresh_token"]


def test_a_revoked_token_ends_on_both_gateways_and_the_others_go_on(centre, person):
    tokens, _ = all_kinds(centre, person)
    script = next(t for t in person.get("/auth/tokens").json() if t["name"] == "script")
    assert person.delete(f"/auth/tokens/{script['id']}").status_code == 204
    ends_everywhere(centre, [tokens[2]], 3)  # a hint tells of it, nobody has to ask
    assert on_all_gateways(centre, tokens[0]) == {200}


def test_a_log_in_of_an_old_client_is_revoked_and_its_others_go_on(centre, person):
    tokens = [sign_in(centre, person)[1]["access_token"] for _ in range(2)]
    rows = person.get("/auth/tokens").json()
    assert [r["name"] for r in rows] == ["login"] * 3 and all(r["expiration"] for r in rows)  # the third is the tenant's own

    async def run():
        async with listen(centre, "/events/stream", tokens[0]) as ws:
            await receive(ws)
            assert await asyncio.to_thread(person.delete, f"/auth/tokens/{rows[1]['id']}")
            with pytest.raises(websockets.ConnectionClosed):
                while True:
                    await receive(ws, SECONDS + 10)
            return ws.close_code

    assert asyncio.run(run()) == 4001
    ends_everywhere(centre, tokens[:1], 3)
    assert on_all_gateways(centre, tokens[1]) == {200} == on_all_gateways(centre, person.token)
    assert [r["id"] for r in person.get("/auth/tokens").json()] == [rows[0]["id"], rows[2]["id"]]
    assert person.delete(f"/auth/tokens/{rows[0]['id']}").status_code == 204  # oneself
    ends_everywhere(centre, [person.token], 3)


def test_many_revocations_end_what_is_older_and_nobody_elses(centre, person):
    other = Tenant(centre)
    first = sign_in(centre, person, refresh="1")[1]
    for _ in range(201):
        made = person.post("/auth/tokens", {"name": "short"}).json()
        assert person.delete(f"/auth/tokens/{made['id']}").status_code == 204
    ends_everywhere(centre, [first["access_token"], person.token])
    again = person.anonymous("POST", "/auth/token/refresh", json={"refresh_token": first["refresh_token"]}).json()["access_token"]
    assert on_all_gateways(centre, again) == {200} == on_all_gateways(centre, other.token)


def test_who_is_locked_out_has_no_access_within_seconds_and_may_come_back(centre, person):
    tokens, refresh = all_kinds(centre, person)
    admin(centre, "users", "disable", person.name)
    assert sign_in(centre, person) == (401, {"detail": "Unauthorized"})
    assert person.anonymous("POST", "/auth/token/refresh", json={"refresh_token": refresh}).status_code == 401
    ends_everywhere(centre, tokens)
    admin(centre, "users", "enable", person.name)
    status, body = sign_in(centre, person)
    assert status == 200
    wait_for(lambda: on_all_gateways(centre, body["access_token"]) == {200}, SECONDS + 2, "access after the lock")
    for token in tokens:
        assert on_all_gateways(centre, token) == {401}  # what was out before stays dead
    assert person.anonymous("POST", "/auth/token/refresh", json={"refresh_token": refresh}).status_code == 200


def test_a_new_password_ends_the_log_ins_of_the_old_one(centre, person, tmp_path):
    tokens, refresh = all_kinds(centre, person)
    admin(centre, "users", "passwd", person.name, "--password-file", "-", stdin="another one\n")
    assert sign_in(centre, person)[0] == 401
    assert person.anonymous("POST", "/auth/token/refresh", json={"refresh_token": refresh}).status_code == 401
    ends_everywhere(centre, tokens)
    r = requests.post(centre.root + "/auth/password/login", data={"username": person.name, "password": "another one"}, verify=centre.ca, timeout=30)
    assert on_all_gateways(centre, r.json()["access_token"]) == {200}  # at once, though the cut lies two seconds ahead


def test_a_deleted_user_is_gone_within_seconds_and_nothing_ever_breaks(centre, person):
    tokens, _ = all_kinds(centre, person)
    site = person.site()
    person.job(person.app(site))
    statuses, stop = set(), threading.Event()

    def work():
        n = 0
        while not stop.is_set():
            n += 1
            statuses.add(person.post("/sites/", {"name": f"n{n}", "path": "/x"}).status_code)
            statuses.add(person.post("/auth/tokens", {"name": "x"}).status_code)
            statuses.add(person.put("/jobs/", {"num_nodes": 2}).status_code)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        admin(centre, "users", "rm", person.name, "--yes")
        ends_everywhere(centre, tokens)
    finally:
        stop.set()
        thread.join(60)
    assert statuses <= {200, 201, 400, 401, 404}, statuses
    assert "#" in admin(centre, "audit", "--limit", "5")


def test_tokens_are_made_listed_and_revoked_by_command_line(centre, person, tmp_path):
    def cli(*words, check=True, path=tmp_path / "mine.yml"):
        return centre.cli(*words, env={"ABIES_CLIENT_PATH": str(path), "HOME": str(tmp_path)}, check=check)

    login = ("login", "--url", centre.root, "--ca-file", centre.ca, "--username", person.name, "--password-file", "-")
    centre.cli(*login, env={"ABIES_CLIENT_PATH": str(tmp_path / "mine.yml")}, stdin=person.name + "-secret-1\n")
    script = tmp_path / "script.yml"
    assert "is in" in cli("token", "create", "nightly report", "--file", script).stdout
    assert script.stat().st_mode & 0o777 == 0o600
    assert "exists" in cli("token", "create", "x", "--file", script, check=False).stderr
    assert cli("site", "ls", path=script).returncode == 0
    assert "may not" in cli("token", "ls", path=script, check=False).stderr  # it reads, and not the tokens
    rows = json.loads(cli("token", "ls", "--json").stdout)
    assert [(r["name"], r["scope"], r["expiration"] is None) for r in rows] == [("login", "user", False), ("login", "user", True), ("nightly report", "read", True)]
    assert "nightly report" in cli("token", "ls").stdout
    assert "1 revoked" in cli("token", "rm", rows[2]["id"]).stdout
    wait_for(lambda: cli("site", "ls", path=script, check=False).returncode == 1, SECONDS, "the end of the script's token")
    assert "not there" in cli("token", "rm", rows[2]["id"], check=False).stderr
    refresh = (tmp_path / "mine.yml").read_text().split("refresh_token: ")[1].split()[0].strip("'\"")
    assert "logged out" in cli("logout").stdout
    assert person.anonymous("POST", "/auth/token/refresh", json={"refresh_token": refresh}).status_code == 401


def listen(centre, path, token=None):
    context = ssl.create_default_context(cafile=centre.ca)
    headers = {"Authorization": f"Bearer {token}"} if token else None
    return websockets.connect(centre.root.replace("https", "wss", 1) + path, ssl=context, extra_headers=headers, open_timeout=20, close_timeout=5)


def receive(ws, seconds=20):
    return asyncio.wait_for(ws.recv(), seconds)


def test_a_rotated_key_leaves_no_gap(centre, person):
    """Two gateways, two replicas of auth: whoever signs, and whoever is asked, no good token is ever refused."""
    first = sign_in(centre, person)[1]["access_token"]
    kid = lambda token: json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))["kid"]  # noqa: E731
    admin(centre, "keys", "rotate")
    kids, until = set(), time.monotonic() + 60
    while len(kids) < 2 or time.monotonic() < until - 30:
        assert time.monotonic() < until, "the new key never signs"
        token = sign_in(centre, person)[1]["access_token"]
        kids.add(kid(token))
        for t in (token, token, token, first):
            assert requests.get(centre.root + "/sites/", headers={"Authorization": f"Bearer {t}"}, verify=centre.ca, timeout=30).status_code == 200
    assert kid(sign_in(centre, person)[1]["access_token"]) != kid(first)


def test_a_websocket_of_who_is_locked_out_is_closed(centre, person):
    token = sign_in(centre, person)[1]["access_token"]

    async def run():
        async with listen(centre, "/events/stream", token) as ws:
            await receive(ws)
            await asyncio.to_thread(admin, centre, "users", "disable", person.name)
            with pytest.raises(websockets.ConnectionClosed):
                while True:
                    await receive(ws, SECONDS + 10)
            return ws.close_code

    assert asyncio.run(run()) == 4001


def test_a_site_token_hears_of_its_own_site_only(centre, person):
    mine, other = person.site(), person.site()
    token = person.post("/auth/tokens", {"name": "agent", "scope": "site", "site_id": mine["id"]}).json()["access_token"]

    async def whole_resources():
        async with listen(centre, "/subscribe-user") as ws:
            await ws.send(token)
            with pytest.raises(websockets.ConnectionClosed):
                await receive(ws)
            return ws.close_code

    async def events():
        seen = []
        async with listen(centre, "/events/stream", token) as ws:
            await receive(ws)
            await asyncio.to_thread(lambda: person.job(person.app(other)))
            job = await asyncio.to_thread(lambda: person.job(person.app(mine)))
            while not any(e["job_id"] == job["id"] for e in seen):
                seen += json.loads(await receive(ws))["events"]
        return {e["site_id"] for e in seen}

    assert asyncio.run(whole_resources()) == 1008
    assert asyncio.run(events()) == {mine["id"]}


def test_agent_and_launcher_survive_the_renewal_of_their_token(centre):
    """Tokens live for eight seconds here; a job runs for thirty, others come and go meanwhile."""
    name = centre.cli_json("whoami")["username"]
    form = {"username": name, "password": (centre.home / "secrets" / "local-user").read_text().strip()}
    r = requests.post(centre.root + "/auth/password/login", data=form, verify=centre.ca, timeout=30)
    centre.http = centre.session(r.json()["access_token"])  # ours must last
    site = centre.site("renew", settings={"idle_ttl_sec": "30"})
    app = site.app("nap", "name: nap\ncommand: sleep {{s}}\nparameters:\n  s: {type: float}\n")
    long = centre.post("/jobs/", [{"app_id": app, "workdir": "long", "parameters": {"s": 30}, "node_packing_count": 8}])[0]["id"]
    site.allocate(minutes=5)
    wait_for(lambda: centre.get(f"/jobs/{long}")["state"] == "RUNNING", 60, "the long job")
    seen, n, ids = set(), 0, [long]

    def state():
        nonlocal n
        seen.add((site.path / "client.yml").read_text())
        if len(ids) < 15:
            n += 1
            ids.append(centre.post("/jobs/", [{"app_id": app, "workdir": f"short-{n}", "parameters": {"s": 0.2}, "node_packing_count": 8}])[0]["id"])
        return all(j["state"] == "JOB_FINISHED" for i in ids for j in [centre.get(f"/jobs/{i}")])

    wait_for(state, 120, "all jobs", every=1.5)
    assert len(seen) >= 4, "the token was hardly ever renewed"
    for i in ids:
        chain = [e["to_state"] for e in centre.get(f"/events/?job_id={i}&ordering=timestamp")["results"]]
        assert chain.count("RUNNING") == 1 and "RUN_TIMEOUT" not in chain, chain
    site.stop()
    logs = "".join(p.read_text(errors="replace") for p in (site.path / "log").rglob("*") if p.is_file())
    assert "level=error" not in logs, [x for x in logs.splitlines() if "level=error" in x][:5]


def test_a_centre_without_registration_or_passwords_comes_up_and_says_how_to_log_in():
    centre = Centre(temporary_folder("shut"))
    secret = centre.folder / "client-secret"
    secret.write_text("x\n")
    secret.chmod(0o600)
    oauth = {"login_methods": "oauth_device", "oauth_issuer": "https://login.example.org", "oauth_client_id": "abies", "oauth_client_secret_file": secret}
    try:
        assert "https://" in centre.cli("up", "--port", "0", "--set", "open_registration=false", timeout=120).stdout
        assert "logged in as" in centre.cli("whoami").stdout  # the operator makes the first user
        wrong = centre.cli("up", "--set", "login_methods=oauth_device", check=False, timeout=120)
        assert wrong.returncode == 1 and "oauth_issuer is not set" in wrong.stderr
        wrong = centre.cli("up", "--set", "oauth_client_secret=x", check=False)
        assert wrong.returncode == 1 and "oauth_client_secret_file" in wrong.stderr
        (centre.user_home / ".abies" / "client.yml").unlink()
        up = centre.cli("up", *[w for k, v in oauth.items() for w in ("--set", f"{k}={v}")], timeout=120)
        assert "abies login" in up.stderr
        text = (centre.user_home / ".abies" / "client.yml").read_text()
        assert "token" not in text and "api_root" in text
        assert "by password" in centre.cli("login", "--username", "x", "--password-file", "-", stdin="x\n", check=False).stderr
    finally:
        centre.stop_all()
