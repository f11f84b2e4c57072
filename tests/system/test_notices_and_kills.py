"""/subscribe-user while gateways and replicas are killed. It promises no more than the paper's system (a notice may be lost), but this:
requests succeed whoever listens, a message is whole, tells of something that has happened, to its user only, and once; and who connects again
is told what happens from then on."""
import asyncio
import collections
import json
import random
import signal
import ssl
import threading
import time

import pytest
import websockets

from api import ABSENT, Tenant
from centre import Centre, temporary_folder, wait_for

SECONDS = 8


@pytest.fixture(scope="module")
def centre():
    with Centre(temporary_folder("notices"), gateways=2, replicas={"jobs": 2}, settings={"beat": "250ms", "dead": "1500ms"}, patient=True) as centre:
        yield centre


class Listener:
    def __init__(self, tenant):
        self.tenant, self.told, self.connections = tenant, [], 0

    async def run(self, over):
        context = ssl.create_default_context(cafile=self.tenant.centre.ca)
        while not over.is_set():
            try:
                async with websockets.connect(self.tenant.root.replace("https", "wss", 1) + "/subscribe-user", ssl=context, open_timeout=5, close_timeout=0.2) as ws:
                    await ws.send(self.tenant.token)
                    self.connections += 1
                    while not over.is_set():
                        try:
                            frame = await asyncio.wait_for(ws.recv(), 0.1)
                        except asyncio.TimeoutError:
                            continue
                        assert isinstance(frame, bytes)
                        self.told.append((self.connections, json.loads(frame)))
            except websockets.ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd else 1006
                assert code in (1006, 1012, 1013), code
            except (OSError, asyncio.TimeoutError, websockets.InvalidHandshake):
                await asyncio.sleep(0.05)


def test_what_is_told_is_true_whole_and_once_and_nobody_fails_for_it(centre):
    tenants = [Tenant(centre), Tenant(centre)]
    sites = {t.id: t.site() for t in tenants}
    listeners = [Listener(tenants[0]), Listener(tenants[0]), Listener(tenants[1])]
    quiet, over, sent, errors = threading.Event(), threading.Event(), collections.defaultdict(set), []
    dice = random.Random(11)

    def writer(tenant, no):
        http, serial = tenant.twin().http, 0
        while not quiet.is_set():
            serial += 1
            word = f"{no}-{serial}"
            sent[tenant.id].add(word)
            body = {"allowed_projects": [word]}
            r = centre.request("PUT", f"/sites/{sites[tenant.id]['id']}", body, http=http)
            if r.status_code != 200:
                errors.append(f"{r.status_code} {r.text[:300]}")
            if serial % 5 == 0:  # what fails is not told
                r = centre.request("PUT", f"/sites/{ABSENT}", {"allowed_projects": ["never"]}, http=http)
                if r.status_code != 404:
                    errors.append(f"{r.status_code} {r.text[:300]}")

    async def listen():
        await asyncio.gather(*(x.run(over) for x in listeners))

    def guarded():
        try:
            asyncio.run(listen())
        except BaseException as error:  # noqa: BLE001
            errors.append(repr(error))

    threads = [threading.Thread(target=writer, args=(t, no)) for no, t in enumerate([tenants[0], tenants[0], tenants[1]])]
    reader = threading.Thread(target=guarded)
    for t in [*threads, reader]:
        t.start()
    kills = collections.Counter()
    until = time.monotonic() + SECONDS
    try:
        while time.monotonic() < until:
            time.sleep(dice.uniform(0.3, 1.2))
            role = dice.choice(("gateway", "jobs"))
            try:
                centre.kill(role, dice.randrange(2), signal.SIGKILL)
                kills[role] += 1
            except ProcessLookupError:
                pass
        quiet.set()
        for t in threads:
            t.join(60)
        centre.ready()

        def all_hear():
            """Whoever is connected is told of what happens now."""
            centre.request("PUT", f"/sites/{sites[tenants[0].id]['id']}", {"allowed_projects": ["last"]}, status=200, http=tenants[0].http)
            centre.request("PUT", f"/sites/{sites[tenants[1].id]['id']}", {"allowed_projects": ["last"]}, status=200, http=tenants[1].http)
            return errors or all(x.told and x.told[-1][1]["data"].get("allowed_projects") == ["last"] for x in listeners)

        wait_for(all_hear, 30, "everyone to be told again", every=0.2)
    finally:
        quiet.set()
        over.set()
        reader.join(30)
    assert not errors, errors[:3]
    assert kills["gateway"] and kills["jobs"], kills
    for x in listeners:
        words = []
        for connection, message in x.told:
            assert set(message) == {"action", "type", "data"} and (message["action"], message["type"]) == ("update", "site"), message
            assert message["data"]["id"] == sites[x.tenant.id]["id"], "somebody else's"
            [word] = message["data"]["allowed_projects"]
            if word != "last":
                assert word in sent[x.tenant.id], message
                words.append((connection, word))
        assert len(words) == len(set(words)), [w for w, n in collections.Counter(words).items() if n > 1][:5]
        assert len(words) > 20 and x.connections > 1, (len(words), x.connections)
