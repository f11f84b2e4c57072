"""The first thing that anybody runs: from nothing to a checked result, and again over what is there."""
import os
import re
import shutil
import subprocess

import pytest
import requests

from centre import BIN, ROOT, processes_with, temporary_folder


@pytest.fixture
def home():
    """A user's empty home folder; what was started below it is stopped."""
    folder = temporary_folder("quick")
    env = {k: v for k, v in os.environ.items() if not k.startswith("ABIES_")}
    env.update(HOME=str(folder), ABIES_HOME=str(folder / "centre"), ABIES_QUICKSTART_BIN=str(BIN), PATH=f"{BIN}:{env['PATH']}",
               XDG_RUNTIME_DIR=str(folder / "xdg"), NO_COLOR="1")
    (folder / "xdg").mkdir(mode=0o700)
    yield folder, env
    for words in (["site", "stop", str(folder / ".abies" / "quickstart" / "site")], ["down"]):
        subprocess.run([BIN / "abies", *words], env=env, timeout=60)
    assert not processes_with(str(folder))
    shutil.rmtree(folder)


def test_quickstart_ends_with_a_checked_result_twice_in_a_row(home):
    folder, env = home
    for _ in range(2):
        done = subprocess.run([ROOT / "scripts" / "quickstart", "--matrices", "10", "--order", "40"], env=env, cwd=ROOT, text=True,
                              capture_output=True, timeout=240)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        assert "all spectra agree" in done.stdout and re.search(r"^pi = 3\.14159.*, 2 ranks", done.stdout, re.M)
        assert "Everything is still running" in done.stdout

    # What the closing text tells one to do works as it stands.
    url = re.search(r"documented at (https://\S+)/docs", done.stdout)[1]
    ca = re.search(r"^ca_file: *['\"]?([^'\"\n]+)", (folder / ".abies" / "client.yml").read_text(), re.M)[1]
    assert requests.get(url + "/docs", verify=ca, timeout=10).status_code == 200
    states = subprocess.run([BIN / "abies", "job", "ls", "--site", "all", "--by-state"], env=env, text=True, capture_output=True, timeout=60)
    assert states.returncode == 0 and re.search(r"JOB_FINISHED +24", states.stdout), states
    stop = subprocess.run(re.search(r"To stop: +(.*)$", done.stdout, re.M)[1], env=env, shell=True, timeout=60)
    assert stop.returncode == 0
    assert not processes_with(str(folder))
