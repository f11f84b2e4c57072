"""provider.py - OpenID Connect providers for the sign-in tests: a real one, and one that lies.

    provider = RealProvider(build / "oidc", redirect_uri)      a program of others, run by node
    person = Browser(centre.ca)                                 what a person does with it
    answer = person.sign_in(url, "tenant")                         the last answer: of the centre

    fake = FakeProvider()                                       speaks the protocol, and breaks it as a test says
"""
import base64
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse

import requests
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hmac import HMAC

HERE = pathlib.Path(__file__).resolve().parent / "oidc"
CLIENT, SECRET = "abies", "a secret: of & = %"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def why_not():
    """Why the real provider cannot run here; None if it can."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            return f"{program} is not installed (scripts/install-deps test)"
    major = int(subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip().lstrip("v").split(".")[0])
    return None if major >= 18 else f"node {major} is too old for the provider"


class RealProvider:
    """The npm package of tests/lib/oidc, installed below `folder` once, with the versions of its lock file."""

    def __init__(self, folder, redirect_uri, port, alg="RS256", claims="userinfo", auth="post"):
        self.folder, self.issuer = pathlib.Path(folder), f"http://127.0.0.1:{port}"
        self.install()
        env = {**os.environ, "PORT": str(port), "REDIRECT_URI": redirect_uri, "ALG": alg, "CLAIMS": claims, "AUTH": auth}
        self.log = open(self.folder / f"log-{port}", "w+")
        self.process = subprocess.Popen(["node", "provider.mjs"], cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready"):
            self.stop()
            self.log.seek(0)
            raise AssertionError("the provider does not start: " + self.log.read())

    def install(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        names = ("package.json", "package-lock.json", "provider.mjs")
        mark = hashlib.sha256(b"".join((HERE / n).read_bytes() for n in names)).hexdigest()
        done = self.folder / "installed"
        if done.exists() and done.read_text() == mark:
            return
        for n in names:
            shutil.copy(HERE / n, self.folder / n)
        for again in range(3):
            got = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=self.folder, capture_output=True, text=True,
                                 timeout=240)
            if got.returncode == 0:
                done.write_text(mark)
                return
        raise AssertionError(f"npm ci failed in {self.folder}:\n{got.stdout}\n{got.stderr}")

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.process.stdout.close()


class Browser:
    """Follows redirects by hand, keeps cookies, fills in the provider's forms."""

    def __init__(self, ca):
        self.http = requests.Session()
        self.http.trust_env = False
        self.http.verify = ca
        self.seen = []  # every address, in order

    def go(self, url, data=None, until=None):
        """The answer that is no redirect any more; with `until`, stops in front of an address that begins so."""
        method = "POST" if data is not None else "GET"
        for _ in range(15):
            self.seen.append(url)
            r = self.http.request(method, url, data=data, allow_redirects=False, timeout=40)
            if r.status_code not in (301, 302, 303, 307):
                return r
            url = urllib.parse.urljoin(url, r.headers["location"])
            method, data = "GET", None
            if until and url.startswith(until):
                self.seen.append(url)
                return r
        raise AssertionError(f"too many redirects: {self.seen}")

    def sign_in(self, url, name, until=None):
        """Log in as `name` and agree. Returns the first answer that has no form of the provider."""
        r = self.go(url, until=until)
        for _ in range(4):
            form = re.search(r'<form[^>]* action="([^"]+)"', r.text)
            if r.status_code != 200 or not form:
                return r
            data = {"prompt": "consent"}
            if 'name="prompt" value="login"' in r.text:
                data = {"prompt": "login", "login": name, "password": "x"}
            r = self.go(urllib.parse.urljoin(r.url, form[1]), data=data, until=until)
        raise AssertionError("the provider asks without end: " + r.text[:1000])

    def decline(self, url):
        r = self.go(url)
        abort = re.search(r'href="([^"]+/abort)"', r.text)
        assert abort, r.text[:1000]
        return self.go(urllib.parse.urljoin(r.url, abort[1]))


# ------------------------------------------------------------------ the liar

def b64(data):
    return base64.urlsafe_b64encode(data if isinstance(data, bytes) else json.dumps(data).encode()).rstrip(b"=").decode()


def number(n):
    return b64(n.to_bytes((n.bit_length() + 7) // 8, "big"))


class FakeProvider:
    """A provider that signs in whoever comes (`who`). `break_token(header, claims)` may change both, `sign` replaces the signature,
    `answer` whole documents by path."""

    def __init__(self):
        self.rsa, self.stranger = (rsa.generate_private_key(65537, 2048) for _ in range(2))
        self.ec = ec.generate_private_key(ec.SECP256R1())
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.serve(self, {})

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                outer.serve(self, dict(urllib.parse.parse_qsl(body, keep_blank_values=True)))

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.reset()

    def reset(self):
        self.who, self.alg, self.kid = "tenant", "RS256", "r1"
        self.break_token = self.sign = None
        self.answer, self.codes, self.calls, self.delay = {}, {}, [], {}
        self.keys = [self.jwk("r1"), self.jwk("e1")]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def jwk(self, kid, key=None):
        if kid.startswith("e"):
            n = (key or self.ec).public_key().public_numbers()
            return {"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256", "x": b64(n.x.to_bytes(32, "big")),
                    "y": b64(n.y.to_bytes(32, "big"))}
        n = (key or self.rsa).public_key().public_numbers()
        return {"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": number(n.n), "e": number(n.e)}

    def discovery(self):
        return {"issuer": self.issuer, "authorization_endpoint": self.issuer + "/authorize", "token_endpoint": self.issuer + "/token",
                "userinfo_endpoint": self.issuer + "/userinfo", "jwks_uri": self.issuer + "/jwks",
                "token_endpoint_auth_methods_supported": ["client_secret_post"]}

    # ---- what it signs

    def signature(self, header, data):
        if header["alg"] == "RS256":
            return self.rsa.sign(data, padding.PKCS1v15(), hashes.SHA256())
        r, s = decode_dss_signature(self.ec.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def stranger_signature(self, data):
        return self.stranger.sign(data, padding.PKCS1v15(), hashes.SHA256())

    def hmac(self, data, key):
        mac = HMAC(key, hashes.SHA256())
        mac.update(data)
        return mac.finalize()

    def public_pem(self):
        return self.rsa.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def id_token(self, code):
        asked, now = self.codes[code], int(time.time())
        header = {"alg": self.alg, "kid": self.kid, "typ": "JWT"}
        access = "access-" + code
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": f"subject-of-{self.who}", "iat": now, "exp": now + 300, "nonce": asked["nonce"],
                  "preferred_username": self.who, "at_hash": b64(hashlib.sha256(access.encode()).digest()[:16])}
        if self.break_token:
            self.break_token(header, claims)
        data = f"{b64(header)}.{b64(claims)}".encode()
        signature = (self.sign or self.signature)(header, data)
        return f"{data.decode()}.{b64(signature)}"

    # ---- what it answers

    def serve(self, request, form):
        url = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        self.calls.append((request.command, url.path, form, dict(request.headers)))
        time.sleep(self.delay.get(url.path, 0))
        if url.path in self.answer:
            status, body = self.answer[url.path]
        elif url.path == "/authorize":
            code = f"code{len(self.codes)}"
            self.codes[code] = query
            back = urllib.parse.urlencode({"code": code, "state": query["state"]})
            self.reply(request, 302, b"", {"location": f"{query['redirect_uri']}?{back}"})
            return
        else:
            status, body = {"/.well-known/openid-configuration": lambda: (200, self.discovery()), "/jwks": lambda: (200, {"keys": self.keys}),
                            "/token": lambda: self.token(form), "/userinfo": lambda: (200, {"sub": f"subject-of-{self.who}"})
                            }.get(url.path, lambda: (404, {"error": "not_found"}))()
        self.reply(request, status, body if isinstance(body, bytes) else json.dumps(body).encode(), {"content-type": "application/json"})

    def reply(self, request, status, body, headers):
        try:
            request.send_response(status)
            for k, v in headers.items():
                request.send_header(k, v)
            request.send_header("content-length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
        except OSError:
            pass

    def token(self, form):
        """Checks what a provider checks: the client, the code, its PKCE verifier, the address."""
        asked = self.codes.get(form.get("code"))
        if form.get("client_id") != CLIENT or form.get("client_secret") != SECRET:
            return 401, {"error": "invalid_client"}
        if not asked or asked.pop("used", None) or form["redirect_uri"] != asked["redirect_uri"] or form["grant_type"] != "authorization_code":
            return 400, {"error": "invalid_grant"}
        if b64(hashlib.sha256(form["code_verifier"].encode()).digest()) != asked["code_challenge"] or asked["code_challenge_method"] != "S256":
            return 400, {"error": "invalid_grant"}
        code = form["code"]
        answer = {"access_token": "access-" + code, "token_type": "Bearer", "expires_in": 300, "id_token": self.id_token(code)}
        del self.codes[code]
        return 200, answer
