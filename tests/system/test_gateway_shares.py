"""What one user or one address may hold of a gateway, and a certificate that is renewed while it runs."""
import asyncio
import http.client
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys

import pytest
import requests
import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from centre import wait_for  # noqa: E402
from front import Front  # noqa: E402


# ---- WebSockets of a user

@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with Front(tmp_path_factory.mktemp("shares"), settings={"max_websockets_per_user": 3}) as f:
        (f.folder / "events").write_text("10 1 1 1 1 READY\n")
        yield f


def bearer(front, user):
    return {"Authorization": f"Bearer {front.token(user=user)}"}


def connect(front, path="/events/stream", **options):
    return websockets.connect(front.ws_url + path, open_timeout=10, close_timeout=10, **options)


async def close_of(ws):
    with pytest.raises(websockets.ConnectionClosed):
        while True:
            await asyncio.wait_for(ws.recv(), 10)
    return ws.close_code, ws.close_reason


def test_a_user_has_so_many_websockets_and_others_have_their_own(front):
    async def run():
        mine = [await connect(front, extra_headers=bearer(front, 7)) for _ in range(2)]
        notices = await connect(front, "/subscribe-user")
        await notices.send(front.token(user=7))
        await asyncio.wait_for(await notices.ping(), 10)  # so the token has been read
        for ws in mine:
            await asyncio.wait_for(ws.recv(), 10)

        async def refused():
            with pytest.raises(websockets.InvalidStatusCode) as info:
                async with connect(front, extra_headers=bearer(front, 7)):
                    pass
            return info.value

        got = await refused()
        assert got.status_code == 429 and got.headers["retry-after"] == "5"
        async with connect(front, "/subscribe-user") as ws:
            await ws.send(front.token(user=7))
            assert await close_of(ws) == (4029, "you have as many WebSockets here as a user may: close some, then try again")
        async with connect(front, subprotocols=["abies.events.v1", f"bearer.{front.token(user=7)}"]) as ws:
            assert (await close_of(ws))[0] == 4029
        async with connect(front, extra_headers=bearer(front, 8)) as other:
            await asyncio.wait_for(other.recv(), 10)
        await mine[0].close()
        async with connect(front, extra_headers=bearer(front, 7)) as again:  # its place is free
            await asyncio.wait_for(again.recv(), 10)
        assert front.get("/jobs/5").status_code == 200  # requests are not WebSockets
        await mine[1].close()
        await notices.close()
    asyncio.run(run())
    wait_for(lambda: front.metric("abies_gateway_connections") == 0, 20, "all to be gone")


def test_places_are_given_back_however_a_websocket_ends(front):
    async def run():
        for round in range(12):
            ws = await connect(front, extra_headers=bearer(front, 9))
            await asyncio.wait_for(ws.recv(), 10)
            if round % 3 == 0:
                ws.transport.abort()  # a reset
            elif round % 3 == 1:
                await ws.close()
            else:
                ws.transport.close()  # without a close frame
            wait_for(lambda: front.metric("abies_gateway_connections") == 0, 10, "the end of it")
    asyncio.run(run())


def test_wrong_tokens_take_no_place(front):
    async def run():
        for _ in range(5):
            async with connect(front, "/subscribe-user") as ws:
                await ws.send("no.such.token")
                assert (await close_of(ws))[0] == 1008
        async with connect(front, extra_headers=bearer(front, 10)) as ws:
            await asyncio.wait_for(ws.recv(), 10)
    asyncio.run(run())


# ---- connections of an address

def test_an_address_cannot_take_all_connections(tmp_path):
    with Front(tmp_path, settings={"max_per_address": 5}) as front:
        def ask(source):
            s = socket.create_connection(front.address, 10, source_address=(source, 0))
            s.settimeout(10)
            s.sendall(b"GET /auth/how HTTP/1.1\r\nhost: x\r\n\r\n")
            try:
                return s, s.recv(1000)
            except ConnectionResetError:
                return s, b""

        def counted(n):
            wait_for(lambda: front.metric("abies_gateway_connections") == n, 10, f"{n} connections")

        counted(0)
        held = [ask("127.0.0.2") for _ in range(5)]
        assert all(got.startswith(b"HTTP/1.1 ") for _, got in held)
        before = front.metric("abies_gateway_refused_total")
        assert ask("127.0.0.2")[1] == b""  # closed: it had its share
        wait_for(lambda: front.metric("abies_gateway_refused_total") == before + 1, 10, "it to be counted")
        assert ask("127.0.0.3")[1].startswith(b"HTTP/1.1 ")
        held.pop()[0].close()
        wait_for(lambda: ask("127.0.0.2")[1] != b"", 10, "its place to be free")


# ---- the certificate

def make_certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")],
                   check=True, capture_output=True)


def test_a_new_certificate_is_used_without_a_restart(tmp_path):
    with Front(tmp_path, tls=True) as front:
        def subject():
            text = ssl.get_server_certificate(front.address, timeout=10)
            return subprocess.run(["openssl", "x509", "-noout", "-subject"], input=text, capture_output=True, text=True, check=True).stdout.strip().split("CN = ")[1]

        def lines(event):
            return front.gateway_log().count(f"event={event}")

        context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        old = http.client.HTTPSConnection(*front.address, context=context, timeout=20)
        old.request("GET", "/auth/how")
        assert old.getresponse().read()
        assert subject() == "localhost"
        for name in ("second", "third"):
            make_certificate(tmp_path, name)

        # the certificate comes before its key: the old pair stays until both are there
        os.replace(tmp_path / "second.pem", tmp_path / "cert.pem")
        wait_for(lambda: lines("tls.not_renewed") == 1, 10, "the refusal of half a pair")
        assert subject() == "localhost"
        os.replace(tmp_path / "second.key", tmp_path / "key.pem")
        wait_for(lambda: subject() == "second", 10, "the second certificate", every=0.2)

        # garbage, an empty file, none at all
        for damage in (lambda p: p.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n"), lambda p: p.write_bytes(b""), lambda p: p.unlink()):
            said = lines("tls.not_renewed")
            damage(tmp_path / "cert.pem")
            wait_for(lambda: lines("tls.not_renewed") == said + 1, 10, "the refusal")
            assert subject() == "second"
        # in one go, at a signal
        os.replace(tmp_path / "third.key", tmp_path / "key.pem")
        os.replace(tmp_path / "third.pem", tmp_path / "cert.pem")
        front.gateway.send_signal(signal.SIGHUP)
        wait_for(lambda: subject() == "third", 1.5, "the third certificate", every=0.1)
        renewed = lines("tls.renewed")
        front.gateway.send_signal(signal.SIGHUP)  # the same once more does no harm
        wait_for(lambda: lines("tls.renewed") == renewed + 1, 5, "another look")
        assert subject() == "third"

        old.request("GET", "/auth/how")  # who was connected noticed nothing
        assert old.getresponse().read()
        assert requests.get(front.url + "/auth/how", verify=str(tmp_path / "cert.pem"), timeout=20).ok


def test_a_hangup_does_not_end_a_gateway_without_tls(tmp_path):
    with Front(tmp_path) as front:
        front.gateway.send_signal(signal.SIGHUP)
        for _ in range(5):
            assert front.get("/jobs/5").status_code == 200
