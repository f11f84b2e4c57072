/* test_storm.c - several replicas of all services at the same jobs: no half step, no job twice, no
 * wrong counter
 *
 * Four processes, each with connections of its own, lease, report, finish, reopen, cancel, delete
 * and create at random over one graph of jobs. Conflicts are the services' to solve: a client sees
 * a good answer, or one of the refusals that the contract has.
 */
#include "desk.h"
#include "testlib/pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define I PRId64

enum {
    PROCESSES = 4,
    STEPS = 120,
    FIRST_JOBS = 200,
};

static int64_t user, site, app, first;

static uint64_t seed;

static int roll(int below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)below);
}

static int64_t any_job(void)
{
    return first + roll(FIRST_JOBS * 2);
}

/* 0: what a client may see. */
static int check(const char *what, int status, int64_t a)
{
    if (status < 500)
        return 0;
    fprintf(stderr, "%s %" I ": %d %s\n", what, a, status, answer());
    return 1;
}

static int run_leased(int64_t session)
{
    int status =
        ask(user, "POST", path("/sessions/%" I, session),
            "{'max_num_jobs': %d, 'filter_tags': {}, 'max_aggregate_nodes': 20}", 1 + roll(20));
    if (check("acquire", status, session) || status != 200)
        return status >= 500;
    int n = len("");
    int64_t ids[32], leases[32];
    for (int i = 0; i < n; i++) {
        ids[i] = num(path("%d.id", i));
        leases[i] = num(path("%d.lease", i));
    }
    for (int i = 0; i < n; i++) {
        static const char *const ends[] = {"RUN_DONE", "RUN_ERROR", "POSTPROCESSED",
                                           "PREPROCESSED"};
        status = ask(user, "PUT", path("/jobs/%" I, ids[i]),
                     "{'state': 'RUNNING', 'lease': %" I "}", leases[i]);
        if (check("running", status, ids[i]))
            return 1;
        if (status != 200 || roll(8) == 0)
            continue;
        status = ask(user, "PUT", path("/jobs/%" I, ids[i]), "{'state': '%s', 'lease': %" I "}",
                     ends[roll(4)], leases[i]);
        if (check("end", status, ids[i]))
            return 1;
    }
    return 0;
}

static int patch_some(void)
{
    static const char *const states[] = {"PREPROCESSED",  "POSTPROCESSED", "JOB_FINISHED",
                                         "RESTART_READY", "READY",         "FAILED"};
    char body[8192] = "[";
    bool seen[FIRST_JOBS * 2] = {false};
    for (int n = 1 + roll(40); n > 0; n--) {
        int64_t job = any_job();
        if (seen[job - first])
            continue;
        seen[job - first] = true;
        snprintf(body + strlen(body), sizeof(body) - strlen(body),
                 "%s{'id': %" I ", 'state': '%s', 'num_nodes': %d}", body[1] ? "," : "", job,
                 states[roll(6)], 1 + roll(3));
    }
    return check("patch", ask(user, "PATCH", "/jobs/", "%s]", body), 0);
}

static int finish_items(void)
{
    int status =
        ask(user, "GET",
            path("/transfers/?state=%s&limit=10&offset=%d", roll(2) ? "pending" : "done", roll(20)),
            NO_BODY);
    if (check("items", status, 0))
        return 1;
    static const char *const ends[] = {"done", "done", "done", "done", "pending", "error"};
    char body[2048] = "[";
    for (int i = 0; i < len("results"); i++)
        snprintf(body + strlen(body), sizeof(body) - strlen(body),
                 "%s{'id': %" I ", 'state': '%s'}", i ? "," : "", num(path("results.%d.id", i)),
                 ends[roll(6)]);
    return check("transfers", ask(user, "PATCH", "/transfers/", "%s]", body), 0);
}

static int create_some(int step)
{
    int64_t a = any_job(), b = any_job();
    return check("create",
                 ask(user, "POST", "/jobs/",
                     "[{'app_id': %" I ", 'workdir': 'x/%d/%d', 'parent_ids': [%" I ", %" I "]},"
                     " {'app_id': %" I
                     ", 'workdir': 'y/%d/%d', 'transfers': {'output': {'location_alias': 'archive',"
                     " 'path': '/z'}}}]",
                     app, (int)getpid(), step, a, b, app, (int)getpid(), step),
                 a);
}

static int one_step(int step, int64_t *session)
{
    switch (roll(12)) {
    case 0:
    case 1:
    case 2:
        return run_leased(*session);
    case 3:
    case 4:
        return finish_items();
    case 5:
        return create_some(step);
    case 6:
        return check("delete",
                     ask(user, "DELETE",
                         path("/jobs/?state=FAILED&id=%" I "&id=%" I, any_job(), any_job()),
                         NO_BODY),
                     0);
    case 7:
        return check(
            "cancel",
            ask(user, "POST", path("/jobs/cancel?id=%" I "&id=%" I, any_job(), any_job()), "{}"),
            0);
    case 8:
        if (check("leave", ask(user, "DELETE", path("/sessions/%" I, *session), NO_BODY), *session))
            return 1;
        *session = new_session(user, site, 0);
        return 0;
    case 9:
        return check(
            "put",
            ask(user, "PUT", "/jobs/?state=RUN_DONE&state=RUN_ERROR", "{'state': 'POSTPROCESSED'}"),
            0);
    case 10:
        tick("jobs", "fold");
        tick("sessions", "sweep");
        tick("sessions", "waiting");
        tick("transfers", "waiting");
        return 0;
    default:
        return patch_some();
    }
}

static void one_process(int which)
{
    int failed = 0;
    desk_open(NULL);
    seed = 77 + (uint64_t)which;
    int64_t session = new_session(user, site, 0);
    for (int step = 0; step < STEPS && !failed; step++)
        failed = one_step(step, &session);
    _exit(failed);
}

static void many_at_once_leave_the_books_right(void **state)
{
    (void)state;
    pid_t pids[PROCESSES];
    user = new_user();
    site = new_site(user);
    app = new_app(user, site);
    int64_t ids[FIRST_JOBS];
    first = new_jobs(user, app, FIRST_JOBS, ids,
                     "'node_packing_count': 2, 'retry': {'max_attempts': 3, 'on': ['exit',"
                     " 'node_loss', 'stage_in'], 'backoff_sec': 1}");
    for (int i = 1; i <= FIRST_JOBS; i++) /* children of two, with a file each */
        new_job(user, app,
                path("'parent_ids': [%" I ", %" I
                     "], 'retry': {'max_attempts': 2, 'on': ['stage_in'], 'backoff_sec': %d},"
                     " 'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'}}",
                     ids[(i * 7) % FIRST_JOBS], ids[(i * 13) % FIRST_JOBS], i % 2));
    assert_int_equal(ask(user, "PUT", "/jobs/?state=STAGED_IN", "{'state': 'PREPROCESSED'}"), 200);

    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            one_process(i);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    check_books();
    assert_int_equal(
        pg_int(desk_db(), "SELECT count(*) FROM jobs j WHERE session_id IS NOT NULL AND NOT EXISTS"
                          " (SELECT FROM sessions s WHERE s.id = j.session_id)"),
        0);
    /* each event begins where the one before it ended */
    assert_int_equal(
        pg_int(desk_db(),
               "SELECT count(*) FROM (SELECT from_state, lag(to_state) OVER (PARTITION BY job_id"
               " ORDER BY id) AS before FROM events) AS e WHERE before <> from_state"),
        0);
    assert_int_equal(
        pg_int(desk_db(),
               "SELECT count(*) FROM jobs j WHERE state <> (SELECT to_state FROM events e WHERE"
               " e.job_id = j.id ORDER BY id DESC LIMIT 1)"),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_at_once_leave_the_books_right),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
