"""No secret is a default, none is shipped, and how long a refusal takes tells nothing."""
import json
import pathlib
import re
import statistics
import subprocess
import time

import pytest
import requests

from api import unique
from centre import BIN, Centre, ROOT, temporary_folder

SECRET = ("**/*secret*", "**/*.key", "secrets/*")  # below a centre's folder


def secrets_of(home):
    """{relative path: bytes} of everything private that a centre has made."""
    found = {}
    for pattern in SECRET:
        for path in pathlib.Path(home).glob(pattern):
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o077 == 0:
                found[str(path.relative_to(home))] = path.read_bytes()
    return found


def kid(token):
    import base64
    return json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))["kid"]


def bearer_of(http):
    return http.headers["Authorization"].split()[1]


def test_two_centres_have_no_secret_in_common(api_centre):
    mine = secrets_of(api_centre.home)
    names = {name.split("/")[0] for name in mine}
    assert {"secrets", "curve", "tls"} <= names and len(mine) >= 12, sorted(mine)
    with Centre(temporary_folder("other"), settings={"login_hold": "20ms"}) as other:
        theirs = secrets_of(other.home)
        assert set(theirs) == set(mine)
        same = [name for name in mine if mine[name] == theirs[name]]
        assert not same, f"the same in both: {same}"
        lines = [set(re.findall(rb"[A-Za-z0-9+/.:_=*!&<>()\[\]{}@%$#-]{24,}", text)) for text in (b"\n".join(mine.values()), b"\n".join(theirs.values()))]
        shared = {x for x in lines[0] & lines[1] if not re.search(rb"PRIVATE KEY|CERTIFICATE|[Cc]opyright|[Cc][Uu][Rr][Vv][Ee]", x)}
        assert not shared, shared
        # and neither takes a token of the other, though both have a user 1
        assert kid(bearer_of(api_centre.http)) != kid(bearer_of(other.http))
        for centre, token in ((api_centre, bearer_of(other.http)), (other, bearer_of(api_centre.http))):
            r = centre.session(token).get(centre.root + "/sites/", timeout=30)
            assert (r.status_code, r.json()) == (401, {"detail": "Could not validate credentials"})


def test_the_first_user_has_no_password_that_anybody_could_guess(api_centre):
    me = api_centre.get("/auth/password/me")["username"]
    for password in ("", "abies", "admin", "password", "secret", "changeme", me, me + "1", "local"):
        for name in (me, "abies", "admin", "root"):
            r = requests.post(api_centre.root + "/auth/password/login", data={"username": name, "password": password}, verify=api_centre.ca, timeout=30)
            assert r.status_code in (401, 422), (name, password)


PROGRAMS = sorted(p.name for p in BIN.glob("abies-*") if p.name not in ("abies-admin", "abies-launcher", "abies-site"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_setting_that_is_or_names_a_secret_has_a_default(program):
    text = subprocess.run([BIN / program, "--help"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^  (?:--)?([a-z-]+) (.*)$", text, re.M)
    assert len(rows) > 8
    private = [(name, rest) for name, rest in rows if "(secret)" in rest or re.search(r"secret|passw|(^|-)key$|seal|curve-dir|database-url", name)]
    assert private, "none at all?"
    for name, rest in private:
        if name != "oauth-client-auth":
            assert not re.search(r"\[[^\]]*\]$", rest), f"{program}: {name} has a default"
    # and it is off by default to go without
    assert re.search(r"plain-bus .*\[false\]", text)


def test_without_its_secrets_nothing_starts():
    """Before it looks for a database or anything else."""
    for program, words in (("abies-auth", "curve_dir"), ("abies-jobs", "curve_dir"), ("abies-gateway", "tls_cert")):
        env = {"PATH": "/usr/bin:/bin", "ABIES_DATABASE_URL": "host=/nowhere"}
        done = subprocess.run([BIN / program], env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode not in (0, -9) and words in done.stdout + done.stderr, done.stderr


def test_no_key_is_shipped():
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if files.returncode != 0:
        pytest.skip("this is no git checkout")
    for name in filter(None, files.stdout.split("\0")):
        path = ROOT / name
        if name.startswith("tests/") or not path.is_file():
            continue
        data = path.read_bytes()
        assert not re.search(rb"-----BEGIN [A-Z ]*PRIVATE KEY", data), name
        assert not re.search(rb"(?i)(?:password|secret|passwd)[\"']?\s*[:=]\s*[\"'](?!\$|%|<|\{)[A-Za-z0-9+/]{12,}[\"']", data), name


# ---- time

def took(api_centre, name, password):
    began = time.monotonic()
    r = requests.post(api_centre.root + "/auth/password/login", data={"username": name, "password": password}, verify=api_centre.ca, timeout=60)
    assert (r.status_code, r.json()) == (401, {"detail": "Unauthorized"})
    return time.monotonic() - began


def test_a_refusal_takes_as_long_whoever_it_is(api_centre, fresh):
    """A name that is nobody's, one with another password, one without any, one locked out. Without the hash for those that have
    none their refusals would come in the time of `login_hold` (20 ms) and one query."""
    admin = [str(BIN / "abies-admin"), "users"]
    nopass, locked = unique("nopass"), unique("locked")
    api_centre.user(locked)
    api_centre.run([*admin, "add", nopass, "--no-password", "--home", str(api_centre.home)])
    api_centre.run([*admin, "disable", locked, "--home", str(api_centre.home)])
    people = {"wrong": (fresh.name, "x"), "unknown": (unique("nobody"), "x"), "without": (nopass, "x"), "locked": (locked, locked + "-secret-1")}
    times = {kind: [] for kind in people}
    for _ in range(9):  # in turn, so that a busy moment hits all alike
        for kind, (name, password) in people.items():
            times[kind].append(took(api_centre, name, password))
    median = {kind: statistics.median(t) for kind, t in times.items()}
    for kind, value in median.items():
        assert 0.6 < value / median["wrong"] < 1.67, median
    assert median["wrong"] > 0.03, "the hash costs nothing?"
