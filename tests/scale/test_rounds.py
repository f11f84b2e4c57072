"""The short form of rounds.py: that all jobs go all the way, not how fast."""
from centre import Centre, temporary_folder
from rounds import Rounds

JOBS, ROUNDS = 1500, 3


def test_rounds_of_jobs_go_all_the_way_and_each_once():
    with Centre(temporary_folder("rounds")) as centre:  # ends with abies-admin check: chains of events, counts, leases
        rounds = Rounds(centre, launchers=3, processors=2)
        for _ in range(ROUNDS):
            rounds.round(JOBS)
        states, events = rounds.totals()
        assert states == {"JOB_FINISHED": JOBS * ROUNDS}
        # CREATED to STAGED_IN, PREPROCESSED, RUNNING, RUN_DONE, JOB_FINISHED
        assert events == 5 * JOBS * ROUNDS
        assert rounds.query("SELECT count(*) FROM jobs WHERE lease <> 3 OR attempts <> 1") == [(0,)]
        assert rounds.query("SELECT count(*) FROM sessions") == [(0,)]
