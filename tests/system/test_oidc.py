"""Signing in through an OpenID Connect provider: in a browser, and on a device without one (RFC 8628)."""
import base64
import json
import re
import subprocess
import threading
import time
import urllib.parse
import uuid

import pytest
import requests

from centre import BIN, BUILD, Centre, temporary_folder, wait_for
from provider import CLIENT, SECRET, Browser, FakeProvider, RealProvider, free_port, why_not

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_PAGE = "/auth/oauth/ALCF/login/device"
SETTINGS = {"login_methods": "password,oauth_device,oauth_authcode", "oauth_client_id": CLIENT, "device_interval": "500ms", "device_lifetime": "60s",
            "login_hold": "20ms", "login_limit": "1000", "login_limit_address": "100000", "forget_period": "500ms", "oauth_timeout": "3s",
            "deadline": "20s"}


class SignInCentre(Centre):
    def __init__(self, name, issuer, few=False, **settings):
        folder = temporary_folder(name)
        secret = folder / "client-secret"
        secret.write_text(SECRET + "\n")
        secret.chmod(0o600)
        super().__init__(folder, gateways=1 if few else 2, replicas={} if few else {"auth": 2},
                         settings={**SETTINGS, "oauth_issuer": issuer, "oauth_client_secret_file": str(secret), **settings})

    # ---- what a device does

    def begin(self, client_id=None):
        client_id = client_id or str(uuid.uuid4())
        r = self.form("/auth/device/login", client_id=client_id)
        assert r.status_code == 200, r.text
        return {**r.json(), "client_id": client_id}

    def poll(self, attempt, **changes):
        return self.form("/auth/device/token", **{"grant_type": GRANT, "device_code": attempt["device_code"], "client_id": attempt["client_id"],
                                                  **changes})

    def form(self, path, **data):
        return requests.post(self.root + path, data=data, verify=self.ca, timeout=30)

    def plain(self, path, **params):
        return requests.get(self.root + path, params=params, verify=self.ca, timeout=30, allow_redirects=False)

    def sql(self, text):
        state = json.loads((self.home / "run" / "centre.json").read_text())
        url = (self.home / "secrets" / "url-abies").read_text().strip()
        assert state
        return self.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", url, "-c", text]).stdout.strip()

    def audit(self, action):
        return self.sql(f"SELECT outcome || ' ' || actor FROM audit WHERE action = '{action}' ORDER BY id").splitlines()


def me(centre, token):
    r = requests.get(centre.root + "/auth/password/me", headers={"Authorization": f"Bearer {token}"}, verify=centre.ca, timeout=30)
    assert r.status_code == 200, r.text
    return r.json()["username"]


def detail(r, status):
    assert r.status_code == status, f"{r.status_code} {r.text}"
    return r.json()["detail"]


# ------------------------------------------------------------------ a real provider

@pytest.fixture(scope="module")
def real():
    why = why_not()
    assert not why, why
    port = free_port()
    with SignInCentre("oidc", f"http://127.0.0.1:{port}") as centre:
        provider = RealProvider(BUILD / "oidc", centre.root + "/auth/oauth/ALCF/callback", port)
        try:
            yield centre
        finally:
            provider.stop()


@pytest.fixture
def person(real):
    return Browser(real.ca)


def test_the_methods_are_told_the_old_way(real):
    assert real.get("/auth/how") == ["LoginMethod.password", "LoginMethod.oauth_device", "LoginMethod.oauth_authcode"]


def test_a_device_logs_in_while_a_person_agrees_in_a_browser(real, person):
    attempt = real.begin()
    assert set(attempt) == {"device_code", "user_code", "verification_uri", "verification_uri_complete", "expires_in", "interval", "client_id"}
    assert len(attempt["device_code"]) == 342 and re.fullmatch(r"[\w-]+", attempt["device_code"])
    assert re.fullmatch(r"[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}", attempt["user_code"])
    assert attempt["verification_uri"] == real.root + DEVICE_PAGE
    assert attempt["verification_uri_complete"] == attempt["verification_uri"] + "?user_code=" + attempt["user_code"]
    assert attempt["expires_in"] == 60.0 and isinstance(attempt["expires_in"], float) and attempt["interval"] == 0.5
    assert detail(real.poll(attempt), 400) == "authorization_pending"

    r = person.sign_in(attempt["verification_uri_complete"], "dora")
    assert (r.status_code, r.json()) == (200, {"username": "dora"})
    sent = urllib.parse.parse_qs(urllib.parse.urlsplit(person.seen[1]).query)
    assert sent["response_type"] == ["code"] and sent["client_id"] == [CLIENT] and sent["scope"] == ["openid"]
    assert sent["redirect_uri"] == [real.root + "/auth/oauth/ALCF/callback"] and sent["code_challenge_method"] == ["S256"]
    assert re.fullmatch(rf"DEVICE-FLOW {attempt['user_code']} [\w-]{{43}}", sent["state"][0])

    got = real.poll(attempt)
    assert got.status_code == 200 and set(got.json()) == {"access_token", "token_type", "expiration"}, got.text
    assert me(real, got.json()["access_token"]) == "dora"
    assert detail(real.poll(attempt), 400) == "invalid_client"  # a device code works once
    assert real.audit("login.device")[-1] == real.audit("login.device.approve")[-1] == "ok dora"


def test_who_comes_again_is_the_same_user_without_a_password(real):
    ids = set()
    for _ in range(2):
        attempt = real.begin()
        assert Browser(real.ca).sign_in(attempt["verification_uri_complete"], "erin").json() == {"username": "erin"}
        body = real.poll(attempt, refresh="1").json()
        assert me(real, body["access_token"]) == "erin"
        ids.add(json.loads(base64.urlsafe_b64decode(body["access_token"].split(".")[1] + "=="))["sub"])
        renewed = real.post("/auth/token/refresh", {"refresh_token": body["refresh_token"]}, status=200)
        assert me(real, renewed["access_token"]) == "erin"
    assert len(ids) == 1
    assert real.sql("SELECT password_hash IS NULL FROM users WHERE username = 'erin'") == "t"
    assert detail(real.form("/auth/password/login", username="erin", password=""), 401) == "Unauthorized"


def test_a_browser_alone_is_told_its_user_and_gets_no_token(real, person):
    r = person.sign_in(real.root + "/auth/oauth/ALCF/login", "fred")
    assert (r.status_code, r.json()) == (200, {"username": "fred"})
    state = urllib.parse.parse_qs(urllib.parse.urlsplit(person.seen[1]).query)["state"][0]
    assert re.fullmatch(r"BROWSER-FLOW [\w-]{43}", state)
    back = [x for x in person.seen if "/callback" in x][-1]
    again = person.go(back)  # its state was used, though the user is known by now
    assert detail(again, 400) == "invalid_state"


def test_a_person_who_declines_ends_the_devices_wait(real, person):
    attempt = real.begin()
    r = person.decline(attempt["verification_uri_complete"])
    assert r.status_code == 200 and r.json()["error"] == "access_denied" and "error_description" in r.json()
    assert detail(real.poll(attempt), 403) == "access_denied"
    back = [x for x in person.seen if "/callback" in x][-1]
    state = urllib.parse.parse_qs(urllib.parse.urlsplit(back).query)["state"][0]
    assert detail(real.plain("/auth/oauth/ALCF/callback", code="x", state=state), 400) == "invalid_state"


def test_a_denial_with_a_state_of_ones_own_making_denies_nobody(real):
    attempt = real.begin()
    r = real.plain("/auth/oauth/ALCF/callback", error="access_denied", state=f"DEVICE-FLOW {attempt['user_code']} {'a' * 43}")
    assert (r.status_code, r.json()) == (200, {"error": "access_denied", "error_description": None})
    assert detail(real.poll(attempt), 400) == "authorization_pending"


def test_a_code_without_a_good_state_is_refused_and_nothing_missing_is_a_500(real):
    assert detail(real.plain("/auth/oauth/ALCF/callback", code="x", state="y"), 400) == "invalid_state"
    assert detail(real.plain("/auth/oauth/ALCF/callback", state="y"), 422) == [
        {"loc": ["query", "code"], "msg": "field required", "type": "value_error.missing"}]
    assert detail(real.plain("/auth/oauth/ALCF/callback", code="y"), 422)[0]["loc"] == ["query", "state"]
    assert detail(real.plain(DEVICE_PAGE, user_code="BBBB-BBBB"), 400) == "invalid_client"
    assert detail(real.plain(DEVICE_PAGE, user_code="'; --"), 400) == "invalid_client"


def test_an_address_without_a_code_asks_for_it(real, person):
    attempt = real.begin()
    r = real.plain(DEVICE_PAGE)
    assert r.status_code == 200 and r.headers["content-type"].startswith("text/html") and 'name=user_code' in r.text
    typed = attempt["user_code"].lower().replace("-", " ")
    r = person.sign_in(f"{attempt['verification_uri']}?user_code={urllib.parse.quote(typed)}", "gina")
    assert r.json() == {"username": "gina"}
    assert real.poll(attempt).status_code == 200


def test_a_poll_is_answered_in_the_contracts_order(real):
    attempt = real.begin()
    assert detail(real.poll(attempt, grant_type="password", device_code="x"), 400) == "unsupported_grant_type"
    assert detail(real.poll(attempt, device_code="x"), 400) == "invalid_client"
    assert detail(real.poll(attempt, client_id=str(uuid.uuid4())), 400) == "invalid_client"
    assert detail(real.form("/auth/device/login", client_id=attempt["client_id"]), 400)
    for missing in ("grant_type", "device_code", "client_id"):
        assert detail(real.poll(attempt, **{missing: None}), 422)[0]["loc"] == ["body", missing]
    assert detail(real.form("/auth/device/login", client_id="no-uuid"), 422)[0]["loc"] == ["body", "client_id"]
    real.sql(f"UPDATE device_attempts SET expires = now() - interval '1 s' WHERE user_code = '{attempt['user_code']}'")
    assert detail(real.poll(attempt), 400) == "expired_token"
    assert detail(real.plain(DEVICE_PAGE, user_code=attempt["user_code"]), 400) == "invalid_client"
    real.sql(f"UPDATE device_attempts SET denied = true WHERE user_code = '{attempt['user_code']}'")
    assert detail(real.poll(attempt), 403) == "access_denied"
    real.sql(f"UPDATE device_attempts SET expires = now() - interval '31 min' WHERE user_code = '{attempt['user_code']}'")
    wait_for(lambda: real.poll(attempt).json()["detail"] == "invalid_client", 20, "the purge of old attempts")


def test_who_agrees_too_late_is_told_so(real, person):
    attempt = real.begin()
    page = person.go(attempt["verification_uri_complete"])
    real.sql(f"UPDATE device_attempts SET expires = now() - interval '1 s' WHERE user_code = '{attempt['user_code']}'")
    r = person.sign_in(page.url, "late")
    assert detail(r, 400) == "expired_token"
    assert detail(real.poll(attempt), 400) == "expired_token"


def test_an_old_client_that_polls_without_a_pause_is_slowed_down_and_holds_up_nobody(real, person):
    attempt = real.begin()
    polls, quick, stop = [], [], threading.Event()

    def loop():
        while not stop.is_set():
            polls.append(real.poll(attempt).status_code)

    def others():
        while not stop.is_set():
            began = time.monotonic()
            real.get("/auth/how")
            quick.append(time.monotonic() - began)

    threads = [threading.Thread(target=loop), threading.Thread(target=others)]
    began = time.monotonic()
    for t in threads:
        t.start()
    wait_for(lambda: len(polls) >= 6, 30, "six polls")
    took = time.monotonic() - began
    assert person.sign_in(attempt["verification_uri_complete"], "hugo").json() == {"username": "hugo"}
    wait_for(lambda: 200 in polls, 20, "the token")
    stop.set()
    for t in threads:
        t.join(30)
    assert took >= 5 * 0.5 * 0.9, f"six polls in {took:.2f} s"
    assert len(quick) > 3 * 6 and sorted(quick)[len(quick) // 2] < 0.4


def test_a_name_that_has_a_password_here_is_not_given_away(real, person):
    real.user("ivan")
    attempt = real.begin()
    r = person.sign_in(attempt["verification_uri_complete"], "ivan")
    assert r.status_code == 403 and "another account" in r.json()["detail"]
    assert detail(real.poll(attempt), 400) == "authorization_pending"
    assert real.sql("SELECT count(*) FROM identities i JOIN users u ON u.id = i.user_id WHERE u.username = 'ivan'") == "0"
    real.sql("UPDATE users SET password_hash = NULL WHERE username = 'ivan'")  # the operator lets them have it
    assert Browser(real.ca).sign_in(attempt["verification_uri_complete"], "ivan").json() == {"username": "ivan"}
    assert me(real, real.poll(attempt).json()["access_token"]) == "ivan"


def login(real, home, *args):
    """`abies login` without a terminal, as a program; the code that it shows."""
    env = {**real.env, "HOME": str(home), "ABIES_CLIENT_PATH": ""}
    p = subprocess.Popen([str(BIN / "abies"), "login", "--url", real.root, "--ca-file", real.ca, *args], env=env, text=True, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    shown = ""
    while "Waiting" not in shown:
        line = p.stderr.readline()
        assert line, shown
        shown += line
    return p, shown


def test_abies_login_on_a_terminal_without_a_browser(real, person, tmp_path):
    p, shown = login(real, tmp_path)
    url = re.search(r"https://\S+user_code=\S+", shown)[0]
    code = re.search(r"^  ([A-Z]{4}-[A-Z]{4})$", shown, re.M)[1]
    assert url.endswith(code) and real.root + DEVICE_PAGE in shown
    assert person.sign_in(url, "jane").json() == {"username": "jane"}
    out, err = p.communicate(timeout=30)
    assert p.returncode == 0 and "logged in as jane" in out, out + err
    file = tmp_path / ".abies" / "client.yml"
    assert file.stat().st_mode & 0o777 == 0o600 and "refresh_token" in file.read_text()
    env = {"HOME": str(tmp_path), "ABIES_CLIENT_PATH": ""}
    assert "logged in as jane" in real.cli("whoami", env=env).stdout
    assert "already logged in as jane" in real.cli("login", "--url", real.root, "--ca-file", real.ca, env=env).stdout


def test_abies_login_ends_when_the_person_declines(real, person, tmp_path):
    p, shown = login(real, tmp_path, "--device")
    person.decline(re.search(r"https://\S+user_code=\S+", shown)[0])
    out, err = p.communicate(timeout=30)
    assert p.returncode == 1 and "declined" in err, out + err
    assert not (tmp_path / ".abies" / "client.yml").exists()


def test_abies_login_still_takes_a_password(real, tmp_path):
    real.user("karl")
    env = {"HOME": str(tmp_path), "ABIES_CLIENT_PATH": ""}
    done = real.cli("login", "--url", real.root, "--ca-file", real.ca, "--username", "karl", "--password-file", "-", env=env, stdin="karl-secret-1\n")
    assert "logged in as karl" in done.stdout


def test_providers_differ_in_algorithm_claims_and_client_authentication():
    """And one that comes back with new keys is taken without a restart of ours."""
    port = free_port()
    with SignInCentre("oidc2", f"http://127.0.0.1:{port}", few=True) as centre:
        for alg, claims in (("ES256", "id_token"), ("ES256", "userinfo"), ("RS256", "id_token")):
            provider = RealProvider(BUILD / "oidc", centre.root + "/auth/oauth/ALCF/callback", port, alg, claims, "basic")
            try:
                attempt = centre.begin()
                assert Browser(centre.ca).sign_in(attempt["verification_uri_complete"], "lena").json() == {"username": "lena"}
                assert me(centre, centre.poll(attempt).json()["access_token"]) == "lena"
            finally:
                provider.stop()


# ------------------------------------------------------------------ a provider that lies

@pytest.fixture(scope="module")
def liar():
    fake = FakeProvider()
    with SignInCentre("fake", fake.issuer) as centre:
        centre.fake = fake
        yield centre
    fake.stop()


@pytest.fixture
def fake(liar):
    liar.fake.reset()
    return liar.fake


def walk(liar):
    """(attempt, the answer of our callback)"""
    attempt = liar.begin()
    return attempt, Browser(liar.ca).go(attempt["verification_uri_complete"])


def test_the_fake_provider_signs_people_in_when_it_tells_the_truth(liar, fake):
    for fake.alg, fake.kid, fake.who in (("RS256", "r1", "tenant"), ("ES256", "e1", "stranger")):
        attempt, r = walk(liar)
        assert (r.status_code, r.json()) == (200, {"username": fake.who})
        assert liar.poll(attempt).status_code == 200
    token = next(c for c in fake.calls if c[1] == "/token")
    assert token[2]["client_secret"] == SECRET and token[3]["cache-control"] == "no-cache"


def changed(**new):
    def change(header, claims):
        for name, value in new.items():
            where = header if name in ("alg", "kid", "crit", "jku", "jwk") else claims
            if value is None:
                where.pop(name, None)
            else:
                where[name] = value(where.get(name)) if callable(value) else value
    return change


NOW = time.time
LIES = {
    "another nonce": changed(nonce="x" * 43),
    "no nonce": changed(nonce=None),
    "for another client": changed(aud="somebody"),
    "for us and others, given to others": changed(aud=lambda a: [a, "somebody"], azp="somebody"),
    "for us and others, given to nobody": changed(aud=lambda a: [a, "somebody"]),
    "no audience": changed(aud=None),
    "another issuer": changed(iss="https://login.example.org"),
    "the issuer with a slash": changed(iss=lambda i: i + "/"),
    "no issuer": changed(iss=None),
    "expired": changed(exp=lambda e: e - 1000),
    "no end": changed(exp=None),
    "an end that is no number": changed(exp="9999999999"),
    "from the future": changed(iat=lambda i: i + 1000),
    "not yet": changed(nbf=lambda _: int(NOW()) + 1000),
    "nobody": changed(sub=""),
    "a subject that is no text": changed(sub=7),
    "another access token": changed(at_hash="AAAAAAAAAAAAAAAAAAAAAA"),
    "an unknown key": changed(kid="r9"),
    "a key of the other kind": changed(kid="e1"),
    "an extension": changed(crit=["x"]),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_id_token_with_a_wrong_claim_lets_nobody_in(liar, fake, lie):
    fake.break_token = LIES[lie]
    attempt, r = walk(liar)
    assert r.status_code == 403 and "id token" in r.json()["detail"], r.text
    assert detail(liar.poll(attempt), 400) == "authorization_pending"


FORGERIES = {
    "alg none, no signature": (changed(alg="none"), lambda f: lambda h, d: b""),
    "alg none, some signature": (changed(alg="none"), lambda f: lambda h, d: b"x" * 32),
    "alg None without kid": (changed(alg="None", kid=None), lambda f: lambda h, d: b""),
    "HS256 with the public key": (changed(alg="HS256"), lambda f: lambda h, d: f.hmac(d, f.public_pem())),
    "HS256 with the public key's modulus": (changed(alg="HS256", kid=None), lambda f: lambda h, d: f.hmac(d, f.keys[0]["n"].encode())),
    "HS256 with our secret": (changed(alg="HS256", kid=None), lambda f: lambda h, d: f.hmac(d, SECRET.encode())),
    "RS384": (changed(alg="RS384"), lambda f: lambda h, d: f.signature({"alg": "RS256"}, d)),
    "a stranger's key": (None, lambda f: lambda h, d: f.stranger_signature(d)),
    "a stranger's key in the token": (changed(jwk=lambda _: {"kty": "RSA"}, jku="http://127.0.0.1:1/x"), lambda f: lambda h, d: f.stranger_signature(d)),
    "the signature of something else": (None, lambda f: lambda h, d: f.signature(h, d + b"x")),
    "an ECDSA signature of zeros": (changed(alg="ES256", kid="e1"), lambda f: lambda h, d: bytes(64)),
    "cut in half": (None, lambda f: lambda h, d: f.signature(h, d)[:128]),
    "empty": (None, lambda f: lambda h, d: b""),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_signature_lets_nobody_in(liar, fake, forgery):
    fake.break_token, sign = FORGERIES[forgery]
    fake.sign = sign(fake)
    attempt, r = walk(liar)
    assert r.status_code == 403 and "id token" in r.json()["detail"], r.text
    assert detail(liar.poll(attempt), 400) == "authorization_pending"


def test_what_a_provider_may_answer_is_never_a_500_or_a_hang(liar, fake):
    nonsense = [(200, b""), (200, b"{"), (200, b"[]"), (200, b"\xff\xfe"), (200, b'{"id_token": 7}'), (200, {"id_token": "a.b"}),
                (200, {"id_token": "a.b.c"}), (200, {"id_token": "." * 3}), (200, {"id_token": "x" * 100000}), (200, b"[" * 100000),
                (200, b'{"a":"' + b"x" * 300000 + b'"}'), (500, {"error": "server_error"}), (302, b""), (404, b"gone")]
    for fake.answer["/token"] in nonsense:
        attempt, r = walk(liar)
        assert r.status_code in (403, 502), f"{str(fake.answer)[:60]}: {r.status_code} {r.text}"
        assert isinstance(r.json()["detail"], str) and SECRET not in r.text
        assert detail(liar.poll(attempt), 400) == "authorization_pending"
    fake.answer["/token"] = (400, {"error": "invalid_grant", "error_description": "<script>"})
    assert walk(liar)[1].status_code == 400
    del fake.answer["/token"]
    assert walk(liar)[1].status_code == 200


def test_a_name_must_come_and_must_be_one(liar, fake):
    for bad in (None, "", "x" * 101, "a\nb", "\x7f", 7, ["tenant"]):
        fake.break_token = changed(preferred_username=bad, sub=f"subject-{uuid.uuid4()}")
        assert walk(liar)[1].status_code == 403, bad
    fake.break_token = changed(preferred_username="x\u00e9\U0001f332" * 33, sub="subject-tree")
    assert walk(liar)[1].json()["username"] == "x\u00e9\U0001f332" * 33


def test_user_info_about_somebody_else_is_refused(liar, fake):
    fake.break_token = changed(preferred_username=None)
    fake.answer["/userinfo"] = (200, {"sub": "subject-of-intruder", "preferred_username": "intruder"})
    assert "somebody else" in detail(walk(liar)[1], 403)
    fake.answer["/userinfo"] = (200, {"sub": "subject-of-tenant", "preferred_username": "tenant"})
    assert walk(liar)[1].json() == {"username": "tenant"}


def test_a_subject_keeps_its_user_and_a_name_is_no_proof(liar, fake):
    fake.who = "nora"
    assert walk(liar)[1].json() == {"username": "nora"}
    fake.break_token = changed(preferred_username="nora-new")  # renamed there
    assert walk(liar)[1].json() == {"username": "nora"}
    fake.break_token = changed(sub="subject-of-thief", preferred_username="nora")  # somebody else took the name
    assert "another account" in detail(walk(liar)[1], 403)


def test_a_state_works_once_even_for_many_at_a_time(liar, fake):
    fake.who, fake.delay["/token"] = "otto", 0.3
    attempt = liar.begin()
    stop = liar.root + "/auth/oauth/ALCF/callback"
    back = Browser(liar.ca).go(attempt["verification_uri_complete"], until=stop).headers["location"]
    got = []
    threads = [threading.Thread(target=lambda: got.append(requests.get(back, verify=liar.ca, timeout=30))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    statuses = sorted(r.status_code for r in got)
    assert statuses.count(200) == 1 and set(statuses) <= {200, 400, 503}, statuses
    assert {r.json()["detail"] for r in got if r.status_code == 400} <= {"invalid_state"}
    assert len([c for c in fake.calls if c[1] == "/token"]) == 1


def test_an_old_state_is_refused_and_forgotten(liar, fake):
    attempt = liar.begin()
    stop = liar.root + "/auth/oauth/ALCF/callback"
    back = Browser(liar.ca).go(attempt["verification_uri_complete"], until=stop).headers["location"]
    liar.sql("UPDATE login_states SET expires = now() - interval '1 s'")
    assert detail(requests.get(back, verify=liar.ca, timeout=30), 400) == "invalid_state"
    liar.plain("/auth/oauth/ALCF/login")
    liar.sql("UPDATE login_states SET expires = now() - interval '1 s'")
    wait_for(lambda: liar.sql("SELECT count(*) FROM login_states") == "0", 20, "the purge of states")


def test_a_code_of_another_log_in_is_refused(liar, fake):
    """Somebody slips his own code into a stranger's log-in: nonce and verifier are those of the state."""
    fake.who = "impostor"
    stop = liar.root + "/auth/oauth/ALCF/callback"
    mine, theirs = (urllib.parse.parse_qs(urllib.parse.urlsplit(Browser(liar.ca).go(liar.begin()["verification_uri_complete"], until=stop)
                                                                .headers["location"]).query) for _ in range(2))
    r = liar.plain("/auth/oauth/ALCF/callback", code=mine["code"][0], state=theirs["state"][0])
    assert r.status_code == 400 and "sign in again" in r.json()["detail"]  # the provider has seen the verifier


def test_a_provider_that_is_slow_or_gone_holds_up_nobody_else(liar, fake):
    fake.delay["/token"] = 30
    stop = liar.root + "/auth/oauth/ALCF/callback"
    backs = [Browser(liar.ca).go(liar.begin()["verification_uri_complete"], until=stop).headers["location"] for _ in range(12)]
    got = []

    def follow(url):
        began = time.monotonic()
        r = requests.get(url, verify=liar.ca, timeout=60)
        got.append((r.status_code, time.monotonic() - began))

    threads = [threading.Thread(target=follow, args=(b,)) for b in backs]
    began = time.monotonic()
    for t in threads:
        t.start()
    wait_for(lambda: len([c for c in fake.calls if c[1] == "/token"]) >= 4, 20, "all places at the provider taken")
    for i in range(5):
        one = time.monotonic()
        assert liar.form("/auth/password/login", username="nobody", password="x").status_code == 401
        assert time.monotonic() - one < 2.5
    for t in threads:
        t.join()
    assert time.monotonic() - began < 15
    assert {s for s, _ in got} == {503, 504}, got
    fake.reset()
    assert walk(liar)[1].status_code == 200


def test_a_discovery_document_that_cannot_be_trusted_sends_nobody_anywhere(fake):
    good, path = fake.discovery(), "/.well-known/openid-configuration"
    without = {k: v for k, v in good.items() if k != "jwks_uri"}
    bad = [(200, {**good, "issuer": "https://login.example.org"}), (200, {**good, "issuer": good["issuer"] + "/"}), (200, b"nonsense"), (500, good), (200, {}),
           (200, without), (200, {**good, "token_endpoint": "http://login.example.org/token"}), (200, {**good, "userinfo_endpoint": "ftp://x"}),
           (200, {**good, "authorization_endpoint": "https://x/\r\nlocation: https://y"}), (200, {**good, "jwks_uri": "http://127.0.0.1.example.org/"}),
           (200, {**good, "token_endpoint": 7})]
    with SignInCentre("doc", fake.issuer, few=True) as centre:
        attempt = centre.begin()
        for fake.answer[path] in bad:
            assert centre.plain(DEVICE_PAGE, user_code=attempt["user_code"]).status_code == 502, fake.answer[path]
        del fake.answer[path]
        assert centre.plain(DEVICE_PAGE, user_code=attempt["user_code"]).status_code == 307  # tried again at once


def test_no_secret_is_in_logs_or_audit(liar, fake):
    attempt, _ = walk(liar)
    token = liar.poll(attempt).json()["access_token"]
    text = "".join(p.read_text(errors="replace") for p in (liar.home / "log").glob("*.log")) + liar.sql("SELECT * FROM audit")
    codes = [c[2]["code"] for c in fake.calls if c[1] == "/token"]
    for secret in (SECRET, token, attempt["device_code"], attempt["user_code"], *[f"access-{c}" for c in codes]):
        assert secret not in text
