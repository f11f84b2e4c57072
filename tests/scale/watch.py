"""watch.py - what the processes of a centre hold while it is under load: memory, file descriptors; and what its tables do.

A sample every few seconds. A process counts from a minute after it was first seen, because it fills its pools and caches
first; only one that lives for long can say something about growth.
"""
import collections
import os
import pathlib
import statistics
import threading
import time

import psycopg2

WARM = 60     # seconds of a life that do not count
LONG = 300    # ... that it needs beyond them


def held(pid):
    """(resident kB, descriptors, threads), or None when it is gone."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return int(fields["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"])
    except (OSError, KeyError):
        return None


class Life:
    def __init__(self, what, pid):
        self.what, self.pid, self.samples = what, pid, []

    def seconds(self):
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0

    def growth(self):
        """{rss or fds or threads: (median of the first quarter, of the last one)} of what counts, or None: too short."""
        begun = self.samples[0][0] if self.samples else 0
        counted = [s for s in self.samples if s[0] - begun >= WARM]
        if not counted or counted[-1][0] - counted[0][0] < LONG:
            return None
        n = max(1, len(counted) // 4)
        return {name: (statistics.median(s[i] for s in counted[:n]), statistics.median(s[i] for s in counted[-n:]))
                for i, name in ((1, "rss"), (2, "fds"), (3, "threads"))}


class Watch:
    """Runs in a thread of its own. victims: () -> {what: pids}; url: of the database."""

    def __init__(self, victims, url, every=5):
        self.victims, self.url, self.every = victims, url, every
        self.lives, self.tables = {}, []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="watch", daemon=True)
        self.thread.start()

    def run(self):
        at = 0
        while not self.ended.wait(self.every):
            try:
                self.sample()
                if at % 12 == 0:
                    self.look_at_tables()
                at += 1
            except (OSError, ValueError, psycopg2.Error):
                pass  # it was just killed; the next time

    def sample(self):
        now = time.monotonic()
        for what, pids in self.victims().items():
            for pid in pids:
                if seen := held(pid):
                    self.lives.setdefault((what, pid), Life(what, pid)).samples.append((now, *seen))

    def look_at_tables(self):
        with psycopg2.connect(self.url) as db, db.cursor() as cursor:
            cursor.execute("""
                SELECT CASE WHEN relname LIKE 'events%' THEN 'events' ELSE relname END, sum(pg_relation_size(relid))::bigint,
                       sum(pg_indexes_size(relid))::bigint, sum(n_live_tup)::bigint, sum(n_dead_tup)::bigint
                FROM   pg_stat_user_tables GROUP BY 1""")
            self.tables.append((time.monotonic(), {row[0]: row[1:] for row in cursor.fetchall()}))
        db.close()

    def stop(self):
        self.ended.set()
        self.thread.join(60)

    # ------------------------------------------------------------------ what it says

    def grown(self, rss_kb, fds):
        """Lives that hold so much more at their end than at their beginning."""
        found = []
        for life in self.lives.values():
            g = life.growth()
            if g and (g["rss"][1] - g["rss"][0] > rss_kb or g["fds"][1] - g["fds"][0] > fds or g["threads"][1] > g["threads"][0]):
                found.append(f"{life.what} ({life.pid}) in {life.seconds():.0f} s: {g}")
        return found

    def report(self):
        by_kind = collections.defaultdict(list)
        for life in self.lives.values():
            by_kind[life.what].append(life)
        lines = []
        for what, lives in sorted(by_kind.items()):
            most = [max(s[i] for life in lives for s in life.samples) for i in (1, 2, 3)]
            lines.append(f"{what}: {len(lives)} lives, most {most[0] / 1024:.1f} MB, {most[1]} descriptors, {most[2]} threads")
            for life in lives:
                if g := life.growth():
                    lines.append(f"    {life.seconds():5.0f} s: {g['rss'][0] / 1024:.1f} -> {g['rss'][1] / 1024:.1f} MB, "
                                 f"{g['fds'][0]:.0f} -> {g['fds'][1]:.0f} descriptors")
        for at, tables in self.tables[:1] + self.tables[len(self.tables) // 2:len(self.tables) // 2 + 1] + self.tables[-1:]:
            lines.append(f"tables after {at - self.tables[0][0]:.0f} s: " + ", ".join(
                f"{name} {heap / 1e6:.1f} + {indexes / 1e6:.1f} MB ({live} rows, {dead} dead)"
                for name, (heap, indexes, live, dead) in sorted(tables.items()) if heap + indexes > 1e6))
        return "\n".join(lines)
