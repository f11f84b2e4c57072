"""WebSockets of the gateway: /subscribe-user as the contract has it, /events/stream as ours."""
import asyncio
import base64
import json
import os
import pathlib
import struct
import sys
import time

import pytest
import requests
import websockets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from centre import wait_for  # noqa: E402
from front import ADMIN, READ, SITE, Front, pack  # noqa: E402

LIMIT = 10


@pytest.fixture(scope="module", params=["plain", "tls"])
def front(request, tmp_path_factory):
    secure = request.param == "tls"
    with Front(tmp_path_factory.mktemp(request.param), tls=secure, curve=secure) as f:
        yield f


@pytest.fixture(autouse=True)
def log_of_events(front):
    """A fresh log for each test; place goes up by one with each event."""
    path = front.folder / "events"
    path.write_text("10 1 1 1 1 READY\n")
    front.log_place = 1
    yield
    assert front.gateway.poll() is None, front.gateway_log()


def write(front, *events, user=7, hint=True):
    """events: (job, site, app, state)"""
    with open(front.folder / "events", "a") as f:
        for job, site, app, state in events:
            front.log_place += 1
            f.write(f"{10 + front.log_place // 3} {front.log_place} {job} {site} {app} {state}\n")
    if hint:
        front.replica("jobs").say(f"hint e {user}")


def connect(front, path, **options):
    if front.tls:
        import ssl
        options["ssl"] = ssl.create_default_context(cafile=str(front.tmp / "cert.pem"))
    return websockets.connect(front.ws_url + path, open_timeout=LIMIT, close_timeout=LIMIT, **options)


async def receive(ws, seconds=LIMIT):
    return await asyncio.wait_for(ws.recv(), seconds)


async def frame(ws, seconds=LIMIT):
    text = await receive(ws, seconds)
    assert isinstance(text, str)
    return json.loads(text)


async def events(ws, n, seconds=LIMIT):
    """Frames until n events have come: (events, last cursor)."""
    got, cursor = [], None
    until = time.monotonic() + seconds
    while len(got) < n:
        f = await frame(ws, until - time.monotonic())
        got += f["events"]
        cursor = f["cursor"]
    return got, cursor


async def closed(ws, seconds=LIMIT):
    """The close code and reason that come; other frames are dropped."""
    try:
        while True:
            await receive(ws, seconds)
    except websockets.ConnectionClosed:
        return ws.close_code, ws.close_reason


def bearer(front, **options):
    return {"Authorization": f"Bearer {front.token(**options)}"}


# ---- /subscribe-user

def test_subscribe_user_takes_the_token_and_pushes_binary_frames(front):
    async def run():
        async with connect(front, "/subscribe-user") as ws, connect(front, "/subscribe-user") as other:
            await ws.send(front.token(user=7))
            await other.send(front.token(user=8))
            message = {"action": "create", "type": "site", "data": {"id": 3, "name": "é\"x", "tags": {}}}
            got = None
            for _ in range(50):  # the token may still be on its way: notices are lossy
                front.replica("jobs").say(f"notice 7 {pack(message).hex()}")
                try:
                    got = await receive(ws, 0.2)
                    break
                except asyncio.TimeoutError:
                    pass
            assert isinstance(got, bytes) and json.loads(got) == message
            with pytest.raises(asyncio.TimeoutError):
                await receive(other, 0.3)  # another user's
    asyncio.run(run())


@pytest.mark.parametrize("first", ["no.such.token", "", b"\x01\x02", "x" * 3000])
def test_subscribe_user_with_a_bad_token_is_1008(front, first):
    async def run():
        async with connect(front, "/subscribe-user") as ws:
            await ws.send(first)
            assert (await closed(ws))[0] == 1008
    asyncio.run(run())


def test_subscribe_user_without_a_token_ends_after_five_seconds(front):
    async def run():
        async with connect(front, "/subscribe-user") as ws:
            begin = time.monotonic()
            await closed(ws, 15)
            assert 4 < time.monotonic() - begin < 9
    asyncio.run(run())


# ---- /events/stream

def test_the_first_frame_is_empty_and_has_a_cursor(front):
    async def run():
        async with connect(front, "/events/stream", extra_headers=bearer(front)) as ws:
            assert await frame(ws) == {"cursor": "10-1", "events": []}
    asyncio.run(run())


def test_events_come_as_they_happen(front):
    async def run():
        async with connect(front, "/events/stream", extra_headers=bearer(front)) as ws:
            await frame(ws)
            write(front, (4, 1, 2, "RUNNING"))
            got, cursor = await events(ws, 1, 2)
            assert got == [{"id": 2, "job_id": 4, "timestamp": "2026-01-01T00:00:00.000002", "from_state": "READY",
                            "to_state": "RUNNING", "data": {"a": [1]}, "site_id": 1, "app_id": 2}]
            assert cursor == "10-2"
    asyncio.run(run())


def test_the_token_may_come_as_a_sub_protocol_or_in_the_first_frame(front):
    async def run():
        async with connect(front, "/events/stream", subprotocols=["abies.events.v1", "bearer." + front.token()]) as ws:
            assert ws.subprotocol == "abies.events.v1"
            assert (await frame(ws))["events"] == []
        async with connect(front, "/events/stream") as ws:
            await ws.send(front.token())
            assert (await frame(ws))["events"] == []
    asyncio.run(run())


def test_bad_tokens_are_refused_in_each_way(front):
    async def run():
        with pytest.raises(websockets.InvalidStatusCode) as refused:
            async with connect(front, "/events/stream", extra_headers={"Authorization": "Bearer x.y.z"}):
                pass
        assert refused.value.status_code == 401
        async with connect(front, "/events/stream", subprotocols=["abies.events.v1", "bearer.x.y.z"]) as ws:
            assert (await closed(ws))[0] == 1008
        async with connect(front, "/events/stream") as ws:
            await ws.send("x.y.z")
            assert (await closed(ws))[0] == 1008
    asyncio.run(run())


def test_a_lost_hint_is_made_good_within_the_poll(front):
    async def run():
        async with connect(front, "/events/stream", extra_headers=bearer(front)) as ws:
            await frame(ws)
            write(front, (4, 1, 2, "RUNNING"), hint=False)
            got, _ = await events(ws, 1, 5)
            assert got[0]["to_state"] == "RUNNING"
    asyncio.run(run())


def test_many_owners_are_asked_about_together_and_lose_no_more_time(front):
    """A hint that is lost costs about a second, also where hundreds have subscribers; and in silence they cost a request or two."""
    owners = 600
    tokens = front.token(user=1000, users=owners).split()

    async def listen(token):
        ws = await connect(front, "/events/stream", extra_headers={"Authorization": f"Bearer {token}"})
        await frame(ws)
        return ws

    async def run():
        streams = []
        for i in range(0, owners, 50):
            streams += await asyncio.gather(*[listen(t) for t in tokens[i:i + 50]])
        await asyncio.sleep(1.5)  # the fetches of those who have just come
        before = {verb: len(front.seen(verb)) for verb in ("event.moved", "event.tail")}
        await asyncio.sleep(2)
        asked = {verb: len(front.seen(verb)) - n for verb, n in before.items()}
        assert asked["event.tail"] == 0 and 2 <= asked["event.moved"] <= 30, asked
        began = time.monotonic()
        write(front, (4, 1, 2, "RUNNING"), hint=False)
        for got in await asyncio.gather(*[events(ws, 1, LIMIT) for ws in streams]):
            assert [e["job_id"] for e in got[0]] == [4]
        took = time.monotonic() - began
        await asyncio.gather(*[ws.close() for ws in streams])
        return took
    took = asyncio.run(run())
    assert took < 5, f"{took:.1f} s"
    print(f"{owners} owners: {took:.2f} s")


def test_a_jobs_service_that_knows_no_polls_is_asked_for_each_owner(front):
    """One of the version before, beside this gateway."""
    script = front.folder / "event.moved"
    script.write_bytes(b"404 0\n" + pack({"kind": "not_found", "text": "unknown", "items": [], "retry": 0}))

    async def run():
        async with connect(front, "/events/stream", extra_headers=bearer(front)) as ws:
            await frame(ws)
            await asyncio.sleep(1.5)
            before = len(front.seen("event.tail"))
            write(front, (4, 1, 2, "RUNNING"), hint=False)
            got, _ = await events(ws, 1, 5)
            assert got[0]["to_state"] == "RUNNING"
            assert len(front.seen("event.tail")) > before
    try:
        asyncio.run(run())
    finally:
        script.unlink()


def test_since_gives_what_was_missed_and_then_goes_on_without_gap_or_repeat(front):
    write(front, *[(i, 1, 1, "READY") for i in range(1700)], hint=False)

    async def run():
        async with connect(front, "/events/stream?since=10-1", extra_headers=bearer(front)) as ws:
            assert await frame(ws) == {"cursor": "10-1", "events": []}
            got = []
            while len(got) < 1700:
                got += (await frame(ws))["events"]
                if len(got) in range(400, 1200):  # and more happens meanwhile
                    write(front, (9, 1, 1, "RUNNING"))
            more = front.log_place - 1 - len(got)
            write(front, (9, 1, 1, "JOB_FINISHED"))
            rest, _ = await events(ws, more + 1)
            assert [e["id"] for e in got + rest] == list(range(2, front.log_place + 1))
    asyncio.run(run())


def test_a_client_that_comes_back_with_its_cursor_misses_nothing(front):
    async def run():
        seen, cursor = [], "10-1"
        for round in range(6):
            async with connect(front, f"/events/stream?since={cursor}", extra_headers=bearer(front)) as ws:
                await frame(ws)
                write(front, *[(round, 1, 1, "READY")] * 20)
                got, cursor = await events(ws, 10)  # perhaps more, perhaps not all
                seen += got
            write(front, *[(round, 1, 1, "RUNNING")] * 5)
        async with connect(front, f"/events/stream?since={cursor}", extra_headers=bearer(front)) as ws:
            await frame(ws)
            got, _ = await events(ws, front.log_place - 1 - len(seen))
            seen += got
        assert [e["id"] for e in seen] == list(range(2, front.log_place + 1))
    asyncio.run(run())


@pytest.mark.parametrize("query,wanted", [
    ("site_id=2", [2, 4]), ("site_id=1&site_id=2", [1, 2, 3, 4]), ("app_id=5", [1]), ("job_id=3", [3]),
    ("state=RUNNING", [2, 3]), ("state=RUNNING&site_id=1", [3]), ("tags=kind:md", [1, 2, 3, 4]), ("tags=kind:x", []),
    ("tags=kind:md&tags=no:1", [])])
def test_filters_let_through_what_was_asked_for(front, query, wanted):
    async def run():
        async with connect(front, f"/events/stream?{query}", extra_headers=bearer(front)) as ws, \
                connect(front, "/events/stream", extra_headers=bearer(front)) as all_of_it:
            await frame(ws)
            await frame(all_of_it)
            write(front, (1, 1, 5, "READY"), (2, 2, 6, "RUNNING"), (3, 1, 6, "RUNNING"), (4, 2, 6, "JOB_FINISHED"))
            assert [e["job_id"] for e in (await events(all_of_it, 4))[0]] == [1, 2, 3, 4]
            if wanted:
                got, _ = await events(ws, len(wanted))
                assert [e["job_id"] for e in got] == wanted
            else:
                with pytest.raises(asyncio.TimeoutError):
                    await receive(ws, 0.3)
    asyncio.run(run())


def test_a_sites_token_sees_its_site_only(front):
    async def run():
        async with connect(front, "/events/stream", extra_headers=bearer(front, scopes=SITE, site=2)) as ws:
            await frame(ws)
            write(front, (1, 1, 5, "READY"), (2, 2, 6, "RUNNING"))
            got, _ = await events(ws, 1)
            assert [e["job_id"] for e in got] == [2]
    asyncio.run(run())


@pytest.mark.parametrize("query", ["since=abc", "since=1-2-3", "site_id=x", "state=NO_SUCH", "since=99999999999999999999999-1"])
def test_a_wrong_query_is_422(front, query):
    got = front.get(f"/events/stream?{query}", headers={
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(b"k" * 16).decode()})
    assert got.status_code == 422 and got.json()["detail"][0]["loc"][0] == "query"


def test_many_subscribers_of_an_owner_get_the_same_and_others_nothing(front):
    async def run():
        own = [await connect(front, "/events/stream", extra_headers=bearer(front)) for _ in range(30)]
        other = await connect(front, "/events/stream", extra_headers=bearer(front, user=8))
        for ws in [*own, other]:
            await frame(ws)
        write(front, *[(i, 1, 1, "READY") for i in range(10)])
        for ws in own:
            got, _ = await events(ws, 10)
            assert [e["job_id"] for e in got] == list(range(10))
        # The echo replica gives every user the same log; what matters is that 8 got no frame of 7's hint.
        for ws in [*own, other]:
            await ws.close()
    asyncio.run(run())


def test_a_token_that_ends_ends_the_stream_with_4001(front):
    async def run():
        async with connect(front, "/events/stream", extra_headers=bearer(front, seconds=2)) as ws:
            assert (await closed(ws, 8))[0] == 4001
        headers = bearer(front, jti="live-revoked")
        async with connect(front, "/events/stream", extra_headers=headers) as ws:
            await frame(ws)
            front.replica("auth").say("hint r 0 live-revoked")
            assert (await closed(ws, 8))[0] == 4001
    asyncio.run(run())


# ---- pings: a gateway of its own, that is in a hurry

def test_pings_go_out_and_silence_ends_a_connection(tmp_path):
    with Front(tmp_path, settings={"ping_period": "300ms"}) as front:
        (front.folder / "events").write_text("10 1 1 1 1 READY\n")
        front.log_place = 1
        with upgrade(front, "/events/stream", auth_line(front)) as good, upgrade(front, "/events/stream", auth_line(front)) as silent, \
                upgrade(front) as old:
            assert [raw.answer().status for raw in (good, silent, old)] == [101] * 3
            old.send(client_frame(1, front.token().encode()))
            begin = time.monotonic()
            while time.monotonic() - begin < 3:  # ten times as long as silence is borne
                for raw in (good, old):
                    opcode, payload = server_frame(raw)
                    if opcode == 9:
                        raw.send(client_frame(10, payload))
            pings = 0
            while (f := server_frame(silent)) is not None:
                pings += f[0] == 9
            assert 1 <= pings <= 4
            write(front, (4, 1, 2, "RUNNING"))
            while (f := server_frame(good))[0] != 1 or not json.loads(f[1])["events"]:
                pass


def test_a_filter_that_lets_nothing_through_learns_the_cursor_with_a_ping(tmp_path):
    with Front(tmp_path, settings={"ping_period": "300ms"}) as front:
        (front.folder / "events").write_text("10 1 1 1 1 READY\n")
        front.log_place = 1

        async def run():
            async with connect(front, "/events/stream?state=FAILED", extra_headers=bearer(front)) as ws:
                assert await frame(ws) == {"cursor": "10-1", "events": []}
                write(front, *[(1, 1, 1, "READY")] * 5)
                assert await frame(ws) == {"cursor": "12-6", "events": []}
                with pytest.raises(asyncio.TimeoutError):
                    await receive(ws, 1)  # said once
                write(front, (1, 1, 1, "FAILED"))
                assert [e["id"] for e in (await frame(ws))["events"]] == [7]
        asyncio.run(run())


# ---- bytes no library would send

def upgrade(front, path="/events/stream", *lines):
    raw = front.raw()
    raw.send("\r\n".join([f"GET {path} HTTP/1.1", "Host: x", "Connection: keep-alive, Upgrade", "Upgrade: WebSocket",
                          "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)).decode(),
                          *lines, "", ""]).encode())
    return raw


def client_frame(opcode, payload, fin=True, mask=True):
    head = bytes([(0x80 if fin else 0) | opcode])
    bit = 0x80 if mask else 0
    n = len(payload)
    head += bytes([bit | n]) if n < 126 else bytes([bit | 126]) + struct.pack(">H", n) if n < 65536 else \
        bytes([bit | 127]) + struct.pack(">Q", n)
    if not mask:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(b ^ key[i % 4] for i, b in enumerate(payload))


def server_frame(raw):
    """(opcode, payload), or None at the end."""
    try:
        head = raw.file.read(2)
    except OSError:
        return None
    if len(head) < 2:
        return None
    assert not head[1] & 0x80, "a server's frame is not masked"
    n = head[1] & 0x7F
    if n >= 126:
        n = int.from_bytes(raw.file.read(2 if n == 126 else 8), "big")
    return head[0] & 0x0F, raw.file.read(n)


def close_code(raw):
    while (f := server_frame(raw)) is not None:
        if f[0] == 8:
            return int.from_bytes(f[1][:2], "big")
    return None


def auth_line(front):
    return f"Authorization: Bearer {front.token()}"


def test_an_upgrade_answers_101_with_the_right_key(front):
    import hashlib
    raw = front.raw()
    raw.send(b"GET /subscribe-user HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
             b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    got = raw.answer()
    want = base64.b64encode(hashlib.sha1(b"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    assert got.status == 101 and got.headers["sec-websocket-accept"] == want.decode() == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    raw.close()


@pytest.mark.parametrize("lines,status", [
    (["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 8", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="], 426),
    (["Upgrade: h2c", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="], 426),
    (["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="], 426),
    (["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: short"], 400),
    (["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"], 400), ([], 426)])
def test_what_is_no_upgrade_is_told_so(front, lines, status):
    with front.raw() as raw:
        raw.send("\r\n".join(["GET /subscribe-user HTTP/1.1", "Host: x", *lines, "", ""]).encode() + front.head())
        got = raw.answer()
        assert got.status == status and "detail" in got.json()
        if status == 426:
            assert got.headers["sec-websocket-version"] == "13"
        assert raw.answer().status == 200  # the connection goes on


@pytest.mark.parametrize("data,code", [
    (client_frame(1, b"x", mask=False), 1002),
    (bytes([0xF1, 0x80, 0, 0, 0, 0]), 1002),             # reserved bits
    (client_frame(3, b""), 1002),                        # unknown opcode
    (client_frame(9, b"x" * 126), 1002),                 # a ping that is too long
    (client_frame(0, b"x"), 1002),                       # continuation of nothing
    (client_frame(1, b"x" * 5000), 1009),
    (client_frame(1, b"\xff\xfe"), 1007),
], ids=["unmasked", "reserved bits", "opcode", "long ping", "continuation", "long text", "no utf-8"])
def test_bad_frames_close_with_their_code(front, data, code):
    with upgrade(front, "/events/stream", auth_line(front)) as raw:
        assert raw.answer().status == 101
        raw.send(data)
        assert close_code(raw) == code
        assert raw.at_end(5)


def test_pings_are_answered_and_fragments_are_joined(front):
    with upgrade(front) as raw:
        assert raw.answer().status == 101
        token = front.token().encode()
        raw.send(client_frame(1, token[:20], fin=False) + client_frame(9, b"are you there") + client_frame(0, token[20:]))
        got = [server_frame(raw), server_frame(raw)]
        assert (10, b"are you there") in got and any(f[0] == 1 and b'"events":[]' in f[1] for f in got)
        raw.send(client_frame(8, struct.pack(">H", 1000)))
        assert close_code(raw) == 1000
        assert raw.at_end(5)


def test_frames_that_come_with_the_upgrade_or_byte_by_byte_are_read(front):
    token = client_frame(1, front.token().encode())
    raw = front.raw()
    head = (b"GET /events/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    raw.send(head + token)
    assert raw.answer().status == 101 and server_frame(raw)[0] == 1
    raw.close()
    raw = front.raw()
    for i in range(len(head + token)):
        raw.send((head + token)[i:i + 1])
    assert raw.answer().status == 101 and server_frame(raw)[0] == 1
    raw.close()


def test_a_slow_subscriber_is_told_where_to_go_on_and_misses_nothing(front):
    with upgrade(front, "/events/stream?since=10-1", auth_line(front)) as slow:
        assert slow.answer().status == 101
        assert server_frame(slow)[0] == 1
        before = front.metric("abies_gateway_websocket_slow_total")
        (front.folder / "data").write_text(json.dumps({"filler": "x" * 50_000}))
        try:  # It does not read: the socket fills, then the ring.
            for _ in range(100):
                write(front, *[(1, 1, 1, "READY")] * 20)
                time.sleep(0.05)  # so that each batch is a frame of its own
                if front.metric("abies_gateway_websocket_slow_total") > before:
                    break
        finally:
            (front.folder / "data").unlink()
        assert front.metric("abies_gateway_websocket_slow_total") == before + 1
        ids, cursor = [], None
        while (f := server_frame(slow)) is not None:
            if f[0] == 1:
                ids += [e["id"] for e in json.loads(f[1])["events"]]
            elif f[0] == 8:
                assert int.from_bytes(f[1][:2], "big") == 4008
                cursor = f[1][2:].decode()
                break
        assert cursor and int(cursor.split("-")[1]) == ids[-1]
        assert ids == list(range(2, ids[-1] + 1))


def test_a_gateway_that_leaves_says_1012(tmp_path):
    with Front(tmp_path) as front:
        async def run():
            async with connect(front, "/events/stream", extra_headers=bearer(front)) as ws:
                await frame(ws)
                front.gateway.terminate()
                assert (await closed(ws))[0] == 1012
        (front.folder / "events").write_text("10 1 1 1 1 READY\n")
        asyncio.run(run())
        assert front.gateway.wait(5) == 0


def test_a_restart_of_the_jobs_service_is_survived(front):
    async def run():
        async with connect(front, "/events/stream", extra_headers=bearer(front)) as ws:
            await frame(ws)
            front.replica("jobs").kill()
            front.add("jobs")
            write(front, (4, 1, 2, "RUNNING"), hint=False)
            got, _ = await events(ws, 1, 15)
            assert got[0]["job_id"] == 4
    asyncio.run(run())
