"""One centre for all tests of the REST contract: starting one takes seconds."""
import pytest

from api import Tenant
from centre import Centre, temporary_folder

# Leases that end while a test waits, and sign-ins as many as the tests need.
SETTINGS = {"session_ttl": "5s", "sweep_period": "200ms", "login_hold": "20ms", "login_limit": "1000", "login_limit_address": "100000",
            "piece_time": "1ms"}  # so that whatever can be done in pieces is


@pytest.fixture(scope="session")
def api_centre():
    with Centre(temporary_folder("api"), settings=SETTINGS) as centre:
        yield centre


@pytest.fixture(scope="module")
def tenant(api_centre):
    """A user of this test file, without rows."""
    return Tenant(api_centre)


@pytest.fixture
def fresh(api_centre):
    """A user of this one test."""
    return Tenant(api_centre)


@pytest.fixture(scope="module")
def site(tenant):
    return tenant.site()


@pytest.fixture(scope="module")
def app(tenant, site):
    return tenant.app(site)
