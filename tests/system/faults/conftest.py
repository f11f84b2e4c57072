"""One PostgreSQL for all tests of faults that leave it alone."""
import os
import shutil

import pytest

from centre import temporary_folder
from mesh import Mesh
from postgres import Postgres


@pytest.fixture(scope="session", autouse=True)
def tidy():
    """Folders of servers are left for who wants to look, but not by scripts/test."""
    yield
    for name in ("faultpg", "ownpg", "clockpg", "farpg", "fewpg"):
        if os.environ.get("ABIES_TEST_CLEAN"):
            shutil.rmtree(f"/tmp/ab-{os.getpid()}-{name}", ignore_errors=True)


@pytest.fixture(scope="session")
def pg(tidy):
    with Postgres(temporary_folder("faultpg")) as pg:
        Mesh.prepare(pg)
        yield pg


@pytest.fixture
def mesh(pg, tmp_path):
    with Mesh(tmp_path, pg) as mesh:
        yield mesh
