"""Subscribers and the table agree, in the short form. Longer: ABIES_LIVE_SECONDS=3600, or tests/scale/live.py --seconds 3600 --seed N."""
import os
import random

from centre import temporary_folder
from live import Storm


def test_subscribers_are_told_what_the_table_has_once_and_in_its_order():
    seed = int(os.environ.get("ABIES_LIVE_SEED", random.SystemRandom().randrange(10**6)))
    Storm(temporary_folder("live"), seed, float(os.environ.get("ABIES_LIVE_SECONDS", 8))).run()
