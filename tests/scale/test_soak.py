"""The soak test in its short form. Longer: ABIES_SOAK_SECONDS=14400, or tests/scale/soak.py --seconds 14400 --seed N."""
import os
import random

from centre import temporary_folder
from soak import Soak


def test_random_kills_lose_nothing_and_double_nothing():
    seed = int(os.environ.get("ABIES_SOAK_SEED", random.SystemRandom().randrange(10**6)))
    Soak(temporary_folder("soak"), seed, float(os.environ.get("ABIES_SOAK_SECONDS", 20))).run()
