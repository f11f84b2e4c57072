"""A local centre's certificate: its supervisor looks each day, renews what ends soon, and the gateways take it while they run."""
import re
import ssl

import pytest

import certificate
import fakeclock
from centre import Centre, temporary_folder, wait_for
from fakeclock import Clock

pytestmark = pytest.mark.skipif(not fakeclock.LIBRARY, reason="the package faketime is not installed")
DAY = 24 * 3600 + 60


def test_the_daily_look_renews_a_certificate_near_its_end_and_the_gateway_takes_it():
    folder = temporary_folder("cert")
    folder.chmod(0o755)  # PostgreSQL, which is not root, reads the clock too
    clock = Clock(folder)
    with Centre(folder, env=clock.env) as centre:
        tls, host, port = centre.home / "tls", *re.match(r"https://(.*):(\d+)", centre.root).groups()
        authority, gateway = (tls / "ca.pem").read_text(), centre.pid("gateway")

        def seen():
            return ssl.get_server_certificate((host, int(port)), timeout=10)

        def looks(what):
            return (centre.home / "log" / "supervisor.log").read_text().count(f"event=certificate.{what}")

        first = seen()
        clock.set(DAY)
        wait_for(lambda: looks("good") == 1, 20, "the look of the first day")
        assert seen() == first and looks("renewed") == 0, "it has a year"

        near = certificate.near_end(tls)
        wait_for(lambda: seen() == near, 20, "the gateway to serve what ends soon", every=0.2)
        clock.set(2 * DAY)
        wait_for(lambda: looks("renewed") == 1, 20, "the look of the second day")
        wait_for(lambda: seen() not in (near, first), 20, "the gateway to take the new one", every=0.2)
        assert seen() == (tls / "server.pem").read_text() and certificate.is_pair(tls)
        assert certificate.days_left(tls / "server.pem") > 390
        assert certificate.signed_by(tls / "server.pem", tls / "ca.pem") and (tls / "ca.pem").read_text() == authority
        assert centre.pid("gateway") == gateway, "without a restart"

        clock.set(-DAY)  # set back: the next look is a day of running away, not three
        clock.set(0)
        assert looks("good") == 1 and looks("renewed") == 1
