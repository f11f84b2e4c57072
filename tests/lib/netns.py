"""netns.py - a second host: a network namespace behind a virtual cable that can be cut in several ways

    with Link() as link:
        mesh.gateway(bus=f"tcp://{link.here}:*")
        mesh.service("jobs", prefix=link.prefix, health_listen=f"{link.there}:0")      # runs over there, and sees link.here
        link.cut("silent"); link.heal()

Files and unix sockets are common to both. Needs root; possible() says whether it can be had.
"""
import itertools
import os
import subprocess

_names = itertools.count(1)
WRONG = "02:00:00:00:00:01"  # nobody's: packets to it vanish, and no error comes back


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert not check or done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done


def possible():
    if os.geteuid() != 0:
        return False
    try:
        name = f"ab-try-{os.getpid()}"
        if ip("netns", "add", name, check=False).returncode != 0:
            return False
        ip("netns", "del", name)
        return True
    except FileNotFoundError:
        return False


class Link:
    def __init__(self):
        n = next(_names)
        self.ns, self.va, self.vb = f"ab-{os.getpid()}-{n}", f"va{os.getpid()}{n}"[:15], f"vb{os.getpid()}{n}"[:15]
        net = f"10.97.{(os.getpid() + n) % 250}"
        self.here, self.there = f"{net}.1", f"{net}.2"
        self.prefix = ["ip", "netns", "exec", self.ns]

    def __enter__(self):
        ip("netns", "add", self.ns)
        try:
            ip("link", "add", self.va, "type", "veth", "peer", "name", self.vb, "netns", self.ns)
            ip("addr", "add", f"{self.here}/24", "dev", self.va)
            ip("-n", self.ns, "addr", "add", f"{self.there}/24", "dev", self.vb)
            ip("link", "set", self.va, "up")
            for device in ("lo", self.vb):
                ip("-n", self.ns, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        ip("link", "del", self.va, check=False)
        ip("netns", "del", self.ns, check=False)

    def lose(self, here):
        """What is sent from here (or there) goes to a station that does not exist."""
        to, at, device = (self.there, [], self.va) if here else (self.here, ["-n", self.ns], self.vb)
        ip(*at, "neigh", "replace", to, "lladdr", WRONG, "dev", device, "nud", "permanent")

    def cut(self, way):
        """link down | silent | silent to there | silent from there"""
        assert way in ("link down", "silent", "silent to there", "silent from there")
        if way == "link down":
            ip("-n", self.ns, "link", "set", self.vb, "down")
        if way in ("silent", "silent to there"):
            self.lose(here=True)
        if way in ("silent", "silent from there"):
            self.lose(here=False)

    def heal(self):
        ip("-n", self.ns, "link", "set", self.vb, "up")
        ip("neigh", "del", self.there, "dev", self.va, check=False)
        ip("-n", self.ns, "neigh", "del", self.here, "dev", self.vb, check=False)
