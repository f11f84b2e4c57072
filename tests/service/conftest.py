"""A throw-away PostgreSQL (tests/lib/cluster) and a database with all migrations for tests in Python."""
import os
import subprocess
import uuid

import pytest
from throwaway import ROOT, Database


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
