"""/events/stream and transactions that are open: nothing comes too early, and nothing later than it must."""
import asyncio
import json
import ssl
import statistics
import time

import psycopg2
import pytest
import websockets

from api import Tenant, expect
from centre import Centre, temporary_folder

LIMIT = 20


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("open")) as centre:
        yield centre


@pytest.fixture
def t(centre):
    return Tenant(centre)


@pytest.fixture
def job(t):
    return t.job(t.app(t.site()))


@pytest.fixture
def stranger(centre):
    """A transaction that has nothing to do with anybody's events, but has a number."""
    db = psycopg2.connect((centre.home / "secrets" / "url-abies").read_text().strip())
    yield db
    db.close()


def connect(t, query=""):
    context = ssl.create_default_context(cafile=t.centre.ca)
    return websockets.connect(t.root.replace("https", "wss", 1) + "/events/stream" + query, ssl=context, open_timeout=LIMIT,
                              extra_headers={"Authorization": f"Bearer {t.token}"})


async def frame(ws, seconds=LIMIT):
    return json.loads(await asyncio.wait_for(ws.recv(), seconds))


def test_events_held_up_by_a_strangers_transaction_come_soon_after_its_end(t, job, stranger):
    async def run():
        waits = []
        async with connect(t) as ws:
            assert (await frame(ws))["events"] == []
            for state in ("PREPROCESSED", "RUNNING", "RUN_TIMEOUT", "RUNNING", "RUN_DONE"):
                with stranger.cursor() as cursor:
                    cursor.execute("SELECT pg_current_xact_id()")
                await asyncio.to_thread(t.set_state, job, state)
                with pytest.raises(asyncio.TimeoutError):
                    await frame(ws, 0.3)
                stranger.rollback()  # nobody is told of that
                begun = time.monotonic()
                assert [e["to_state"] for e in (await frame(ws))["events"]] == [state]
                waits.append(time.monotonic() - begun)
        return waits

    waits = asyncio.run(run())
    assert statistics.median(waits) < 0.35, f"{waits}: as if it had waited for the poll of a second"


def asked(centre):
    """How many requests the gateway has sent to the jobs service."""
    import requests
    text = requests.get(f"http://{centre.processes('gateway')[0]['health']}/metrics", timeout=5).text
    return float(next(x for x in text.splitlines() if x.startswith('abies_bus_sent_total{service="jobs"}')).split()[-1])


def test_who_comes_back_with_the_newest_event_does_not_ask_without_end(t, job, centre):
    """The place `now` of one subscriber lies behind the newest event, from which another goes on: between them is nothing."""
    newest = expect(t.get("/events/?since=0-0"), 200)["next"]

    async def run():
        async with connect(t) as now:
            assert (await frame(now))["events"] == []
            async with connect(t, f"?since={newest}") as back:
                assert await frame(back) == {"cursor": newest, "events": []}
                await asyncio.sleep(0.5)  # both have arrived
                before = asked(centre)
                await asyncio.sleep(2)
                sent = asked(centre) - before
                assert sent < 15, f"{sent} requests in two seconds in which nothing happened"
                await asyncio.to_thread(t.set_state, job, "PREPROCESSED")
                for ws in (now, back):
                    assert [e["to_state"] for e in (await frame(ws))["events"]] == ["PREPROCESSED"]
    asyncio.run(run())


def test_events_with_much_to_say_come_in_pieces_that_the_bus_can_carry(t, job):
    """Seventy megabytes of what the one who changed a state had to say: more than one message may have."""
    words = "x" * 3_500_000
    for i in range(20):
        expect(t.put(f"/jobs/{job['id']}", {"state": "RUNNING" if i % 2 else "RUN_TIMEOUT", "state_data": {"n": i, "text": words}}), 200)

    async def run():
        context = ssl.create_default_context(cafile=t.centre.ca)
        got = []
        async with websockets.connect(t.root.replace("https", "wss", 1) + "/events/stream?since=0-0", ssl=context, open_timeout=LIMIT,
                                      max_size=1 << 26, extra_headers={"Authorization": f"Bearer {t.token}"}) as ws:
            while len(got) < 20:
                got += [e["data"]["n"] for e in (await frame(ws))["events"] if "n" in e["data"]]
        assert got == list(range(20))
    asyncio.run(run())
