"""One PostgreSQL for all tests of faults that leave it alone."""
import pytest

from centre import temporary_folder
from mesh import Mesh
from postgres import Postgres


@pytest.fixture(scope="session")
def pg():
    with Postgres(temporary_folder("faultpg")) as pg:
        Mesh.prepare(pg)
        yield pg


@pytest.fixture
def mesh(pg, tmp_path):
    with Mesh(tmp_path, pg) as mesh:
        yield mesh
