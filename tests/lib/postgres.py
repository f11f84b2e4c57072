"""postgres.py - a PostgreSQL that a test may restart, kill, freeze, fill up, clone and promote

    with Postgres(folder) as pg:              # a unix socket in its folder; address="127.0.0.5" for TCP as well
        pg.stop("immediate"); pg.start()
        standby = pg.clone(folder2, address="127.0.0.6")
        pg.kill(); standby.promote()

Data of a test is safe from the test's own faults only: nothing is flushed to the disk (fsync=off).
"""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import psycopg2

from centre import wait_for

BINDIR = subprocess.run(["sh", "-c", "ls -d /usr/lib/postgresql/*/bin | tail -1"], capture_output=True, text=True).stdout.strip()
SETTINGS = {"unix_socket_permissions": "0777", "max_connections": "100", "shared_buffers": "'32MB'", "fsync": "off", "full_page_writes": "off",
            "jit": "off", "wal_level": "replica", "hot_standby": "on", "deadlock_timeout": "'200ms'", "wal_keep_size": "'64MB'"}


def as_postgres(folder):
    """PostgreSQL refuses root: words in front of a command, as tests/lib/cluster has them."""
    if os.geteuid() != 0:
        return []
    for user in ("postgres", "nobody"):
        found = subprocess.run(["id", "-u", user], capture_output=True, text=True)
        if found.returncode == 0:
            break
    wrap = ["unshare", "--user", f"--map-user={found.stdout.strip()}", "--"]
    if subprocess.run([*wrap, "true"], capture_output=True).returncode == 0:
        return wrap
    shutil.chown(folder, user)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]


class Postgres:
    def __init__(self, folder, address=None, port=5432, settings=None, env=None, prefix=()):
        """address: of TCP. env, prefix: of the server process alone (a fake clock, a namespace)."""
        self.folder, self.address, self.port = pathlib.Path(folder), address, port
        self.data = self.folder / "data"
        self.settings, self.env, self.prefix = dict(settings or {}), env or {}, list(prefix)
        self.process = None

    def __enter__(self):
        self.make()
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop("immediate")

    def run(self, program, *args):
        done = subprocess.run([*self.wrap, f"{BINDIR}/{program}", *map(str, args)], capture_output=True, text=True, timeout=60, cwd=self.folder)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def make(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.wrap = as_postgres(self.folder)
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "-N")
        with open(self.data / "pg_hba.conf", "a") as f:
            f.write("host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n")

    def trust(self, address):
        """Let in who comes from there."""
        with open(self.data / "pg_hba.conf", "a") as f:
            f.write(f"host all all {address}/32 trust\n")
        self.query("SELECT pg_reload_conf()")

    def configure(self):
        rows = {**SETTINGS, "listen_addresses": f"'{self.address or ''}'", "port": str(self.port), "unix_socket_directories": f"'{self.folder}'",
                **self.settings}
        (self.data / "postgresql.auto.conf").write_text("".join(f"{k} = {v}\n" for k, v in rows.items()) + getattr(self, "follows", ""))

    def start(self, wait=True):
        self.configure()
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen([*self.prefix, *self.wrap, "setpriv", "--pdeathsig", "INT", f"{BINDIR}/postgres", "-D", str(self.data)],
                                        stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, cwd=self.folder, env={**os.environ, **self.env})
        if wait:
            wait_for(self.answers, 30, "PostgreSQL")

    def answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            self.query("SELECT 1")
            return True
        except psycopg2.OperationalError:
            return False

    def stop(self, how="fast"):
        """As pg_ctl's modes: immediate is a crash that says good-bye to nobody."""
        if self.process and self.process.poll() is None:
            self.process.send_signal({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how])
            self.process.wait(30)
        if self.process:
            self.log.close()
        self.process = None

    def kill(self):
        """The postmaster; its children notice and end."""
        self.process.kill()
        self.process.wait(30)
        wait_for(lambda: not (self.data / "postmaster.pid").exists() or not self.backends_alive(), 20, "the end of the backends")
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self.log.close()
        self.process = None

    def backends_alive(self):
        return subprocess.run(["pgrep", "-f", f"{BINDIR}/postgres -D {self.data}"], capture_output=True).returncode == 0 or self.children()

    def children(self):
        """Pids of server processes in this data folder."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.readlink(f"/proc/{entry}/cwd") == str(self.data):
                        found.append(int(entry))
                except OSError:
                    pass
        return found

    def restart(self, how="immediate"):
        self.stop(how)
        self.start()

    def clone(self, folder, **kw):
        """A hot standby of this one, running."""
        other = Postgres(folder, **kw)
        other.folder.mkdir(parents=True, exist_ok=True)
        other.wrap = as_postgres(other.folder)
        other.run("pg_basebackup", "-h", self.folder, "-p", self.port, "-U", "postgres", "-D", other.data, "-X", "stream", "-c", "fast")
        other.follows = f"primary_conninfo = 'host={self.folder} port={self.port} user=postgres'\n"
        (other.data / "standby.signal").touch()
        other.start()
        return other

    def promote(self):
        self.query("SELECT pg_promote(true, 20)")
        self.follows = ""

    def url(self, user="postgres", database="postgres", host=None):
        return f"host={host or self.folder} port={self.port} user={user} dbname={database}"

    def query(self, text, *args, database="postgres", user="postgres"):
        """Rows of one statement, or [] without any."""
        conn = psycopg2.connect(self.url(user, database), connect_timeout=5)
        try:
            conn.autocommit = True
            with conn.cursor() as cursor:
                cursor.execute(text, args or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            conn.close()


def freeze(pid, seconds=None):
    os.kill(pid, signal.SIGSTOP)
    if seconds:
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
