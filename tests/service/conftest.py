"""A throw-away PostgreSQL (tests/lib/cluster) and a database with all migrations for tests in Python."""
import os
import subprocess
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Database:
    def __init__(self, conninfo, name):
        self.conninfo, self.name = conninfo, name
        self.env = dict(os.environ, PGDATABASE=name,
                        **{"PG" + k.upper(): v for k, v in (p.split("=", 1) for p in conninfo.split())})

    def psql(self, text, *options):
        """Run statements; the lines printed. An error in one of them is an error here."""
        done = subprocess.run(["psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", *options], input=text, text=True,
                              capture_output=True, env=self.env, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="session")
def cluster():
    """libpq words of a running cluster; it ends with this process."""
    if os.environ.get("ABIES_TEST_PG"):
        yield os.environ["ABIES_TEST_PG"]
        return
    with subprocess.Popen([ROOT / "tests/lib/cluster", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as server:
        words = server.stdout.readline().strip()
        assert words, "no PostgreSQL, see above"
        yield words
        server.stdin.close()
        server.wait(60)


@pytest.fixture(scope="module")
def database(cluster):
    admin = Database(cluster, "postgres")
    name = "rules_" + uuid.uuid4().hex[:12]
    admin.psql(f"CREATE DATABASE {name}")
    db = Database(cluster, name)
    for file in sorted((ROOT / "common/db/migrations").glob("[0-9]*.sql")):
        db.psql(file.read_text(), "--single-transaction")
    yield db
    admin.psql(f"DROP DATABASE {name} WITH (FORCE)")
