"""certificate.py - server certificates of an authority whose key a test has: near their end, and what they say"""
import pathlib
import subprocess


def openssl(*words, **kw):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, text=True, **kw).stdout


def near_end(folder, days=20, ca=True):
    """server.pem anew for the key that is there: signed by the folder's ca.key, or by itself."""
    folder = pathlib.Path(folder)
    signer = ["-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial"] if ca else ["-signkey", folder / "server.key"]
    request = openssl("req", "-new", "-key", folder / "server.key", "-subj", "/CN=localhost")
    extensions = folder / "near.ext"
    extensions.write_text("subjectAltName=DNS:localhost,DNS:gateway,IP:127.0.0.1\n")
    done = openssl("x509", "-req", *signer, "-days", days, "-extfile", extensions, input=request)
    extensions.unlink()
    (folder / "near.pem").write_text(done)
    (folder / "near.pem").rename(folder / "server.pem")
    return done


def days_left(pem):
    """By whole days, at most 400."""
    good = lambda days: subprocess.run(["openssl", "x509", "-in", str(pem), "-noout", "-checkend", str(days * 86400)], capture_output=True).returncode == 0
    return next((d for d in range(400, 0, -1) if good(d)), 0)


def is_pair(folder):
    folder = pathlib.Path(folder)
    return openssl("x509", "-in", folder / "server.pem", "-noout", "-pubkey") == openssl("pkey", "-in", folder / "server.key", "-pubout")


def signed_by(pem, ca):
    return subprocess.run(["openssl", "verify", "-no_check_time", "-CAfile", str(ca), str(pem)], capture_output=True).returncode == 0
