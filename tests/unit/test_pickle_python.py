"""The reader of pickles against this machine's Python: the fixed cases made afresh, and values at random."""
import os
import pathlib
import random
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
TEST_PICKLE = os.environ["TEST_PICKLE"]


def made(*words):
    return subprocess.run([sys.executable, FOLDER / "pickles.py", *words], check=True, capture_output=True).stdout


def read(path):
    done = subprocess.run([TEST_PICKLE, path], cwd=FOLDER.parent.parent, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fixed_cases_made_by_this_python_are_read(tmp_path):
    (tmp_path / "all").write_bytes(made())
    read(tmp_path / "all")


def test_values_at_random_are_read_as_python_has_them(tmp_path):
    seed = random.randrange(10**6)
    (tmp_path / f"seed-{seed}").write_bytes(made("--random", str(seed)))
    read(tmp_path / f"seed-{seed}")


def test_nothing_that_was_read_has_been_executed():
    assert not os.path.exists("/tmp/abies-owned")
