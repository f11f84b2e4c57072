"""fakeclock.py - a clock that tests may set, for processes that are started with its environment

    clock = Clock(folder)
    mesh.gateway(env=clock.env)
    clock.set(+3600)          # from now on an hour ahead, for all of them at once

The time of day only: CLOCK_MONOTONIC goes on, as when somebody sets a host's clock. (Debian: package faketime)
"""
import glob
import os
import pathlib

LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)


class Clock:
    def __init__(self, folder, name="clock"):
        self.file = pathlib.Path(folder) / name
        self.set(0)
        self.file.chmod(0o644)
        options = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"]))
        self.env = {"LD_PRELOAD": LIBRARY, "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                    "DONT_FAKE_MONOTONIC": "1", "ASAN_OPTIONS": options}

    def set(self, seconds):
        temporary = self.file.with_suffix(".new")
        temporary.write_text(f"{seconds:+d}\n")
        temporary.rename(self.file)
