"""Databases of a throw-away cluster, through psql."""
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Database:
    def __init__(self, conninfo, name):
        self.conninfo, self.name = conninfo, name
        self.env = dict(os.environ, PGDATABASE=name,
                        **{"PG" + k.upper(): v for k, v in (p.split("=", 1) for p in conninfo.split())})

    def psql(self, text, *options):
        """Run statements; the lines printed. An error in one of them is an error here."""
        done = subprocess.run(["psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", *options], input=text, text=True,
                              capture_output=True, env=self.env, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
