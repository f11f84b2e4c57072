/* test_once.c - a request with an Idempotency-Key is done once, whatever it is and however often it
 * comes
 *
 * Every verb that changes something stands in the table below; a new one without a row is an error.
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define I PRId64

/* A world of things to change: SITE APP JOB OTHER BATCH SESSION ITEM stand for their numbers. */
static struct {
    int64_t user, site, app, job, other, batch, session, item;
} world;

static void make_world(void)
{
    world.user = new_user();
    world.site = new_site(world.user);
    world.app = new_app(world.user, world.site);
    world.job = new_job(world.user, world.app,
                        "'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'}}");
    world.item = pg_int(desk_db(), "SELECT id FROM transfer_items WHERE job_id = %" I, world.job);
    world.other = new_job(world.user, world.app, "");
    move(world.user, world.other, "PREPROCESSED");
    world.batch = new_batch_job(world.user, world.site);
    world.session = new_session(world.user, world.site, 0);
}

static const struct row {
    const char *verb, *method, *path, *body;
    const char *other_path, *other_body; /* what the same key must not be used for */
} rows[] = {
    {"site.create", "POST", "/sites/", "{'name': 'once', 'path': '/p'}", "/sites/",
     "{'name': 'twice', 'path': '/p'}"},
    {"site.update", "PUT", "/sites/SITE", "{'path': '/q'}", "/sites/SITE", "{'path': '/r'}"},
    {"site.delete", "DELETE", "/sites/SITE", "", "/sites/1", ""},
    {"app.create", "POST", "/apps/",
     "{'site_id': SITE, 'name': 'once', 'serialized_class': '', 'source_code': ''}", "/apps/",
     "{'site_id': SITE, 'name': 'twice', 'serialized_class': '', 'source_code': ''}"},
    {"app.update", "PUT", "/apps/APP", "{'description': 'a'}", "/apps/APP", "{'description': 'b'}"},
    {"app.delete", "DELETE", "/apps/APP", "", "/apps/1", ""},
    {"job.create", "POST", "/jobs/", "[{'app_id': APP, 'workdir': 'a'}]", "/jobs/",
     "[{'app_id': APP, 'workdir': 'b'}]"},
    {"job.array", "POST", "/jobs/array",
     "{'template': {'app_id': APP}, 'workdir': '{{n}}', 'parameters': {'n': [1, 2]}}",
     "/jobs/array",
     "{'template': {'app_id': APP}, 'workdir': '{{n}}', 'parameters': {'n': [1, 3]}}"},
    {"job.patch", "PATCH", "/jobs/", "[{'id': OTHER, 'state': 'RUNNING'}]", "/jobs/",
     "[{'id': OTHER, 'state': 'RUN_DONE'}]"},
    {"job.update_where", "PUT", "/jobs/?id=OTHER", "{'num_nodes': 3}", "/jobs/?id=JOB",
     "{'num_nodes': 3}"},
    {"job.delete_where", "DELETE", "/jobs/?id=OTHER", "", "/jobs/?id=JOB", ""},
    {"job.cancel_where", "POST", "/jobs/cancel?id=OTHER", "{}", "/jobs/cancel?id=OTHER",
     "{'reason': 'x'}"},
    {"job.update", "PUT", "/jobs/OTHER", "{'state': 'RUNNING'}", "/jobs/JOB",
     "{'state': 'RUNNING'}"},
    {"job.delete", "DELETE", "/jobs/OTHER", "", "/jobs/JOB", ""},
    {"job.cancel", "POST", "/jobs/OTHER/cancel", "{}", "/jobs/JOB/cancel", "{}"},
    {"batch_job.create", "POST", "/batch-jobs/",
     "{'site_id': SITE, 'project': 'p', 'queue': 'q', 'num_nodes': 4, 'wall_time_min': 30,"
     " 'job_mode': 'mpi'}",
     "/batch-jobs/",
     "{'site_id': SITE, 'project': 'p', 'queue': 'q', 'num_nodes': 5, 'wall_time_min': 30,"
     " 'job_mode': 'mpi'}"},
    {"batch_job.patch", "PATCH", "/batch-jobs/", "[{'id': BATCH, 'state': 'queued'}]",
     "/batch-jobs/", "[{'id': BATCH, 'state': 'running'}]"},
    {"batch_job.update", "PUT", "/batch-jobs/BATCH", "{'scheduler_id': 5}", "/batch-jobs/BATCH",
     "{'scheduler_id': 6}"},
    {"batch_job.delete", "DELETE", "/batch-jobs/BATCH", "", "/batch-jobs/1", ""},
    {"session.create", "POST", "/sessions/", "{'site_id': SITE}", "/sessions/",
     "{'site_id': SITE, 'batch_job_id': BATCH}"},
    {"session.acquire", "POST", "/sessions/SESSION", "{'max_num_jobs': 5, 'filter_tags': {}}",
     "/sessions/SESSION", "{'max_num_jobs': 6, 'filter_tags': {}}"},
    {"session.delete", "DELETE", "/sessions/SESSION", "", "/sessions/1", ""},
    {"transfer.patch", "PATCH", "/transfers/", "[{'id': ITEM, 'state': 'done'}]", "/transfers/",
     "[{'id': ITEM, 'state': 'active'}]"},
    {"transfer.update", "PUT", "/transfers/ITEM", "{'state': 'done'}", "/transfers/ITEM",
     "{'state': 'error'}"},
};

/* The names of things become their numbers. */
static char *fill(const char *text)
{
    const struct {
        const char *name;
        int64_t id;
    } names[] = {{"SITE", world.site},   {"APP", world.app},     {"JOB", world.job},
                 {"OTHER", world.other}, {"BATCH", world.batch}, {"SESSION", world.session},
                 {"ITEM", world.item}};
    struct ab_buf out = {0};
    while (*text) {
        size_t k = 0;
        while (k < AB_COUNT(names) && strncmp(text, names[k].name, strlen(names[k].name)) != 0)
            k++;
        if (k < AB_COUNT(names)) {
            ab_buf_int(&out, names[k].id);
            text += strlen(names[k].name);
        } else {
            ab_buf_char(&out, *text++);
        }
    }
    ab_buf_char(&out, '\0');
    return ab_buf_take(&out);
}

static int send(const struct row *row, bool other, const char *key)
{
    char *where = fill(other ? row->other_path : row->path);
    char *body = fill(other ? row->other_body : row->body);
    const struct who who = {.user = world.user, .key = key};
    int status = ask_as(&who, row->method, where, "%s", body);
    free(where);
    free(body);
    return status;
}

/* Everything that there is of the user, as one number. */
static const char *all_there_is(void)
{
    return pg_text(desk_db(),
                   "SELECT md5(string_agg(t, '' ORDER BY t)) FROM ("
                   " SELECT j::text AS t FROM jobs j WHERE owner_id = %" I
                   " UNION ALL SELECT s::text FROM job_specs s WHERE owner_id = %" I
                   " UNION ALL SELECT e::text FROM events e WHERE owner_id = %" I
                   " UNION ALL SELECT i::text FROM transfer_items i WHERE owner_id = %" I
                   " UNION ALL SELECT s::text FROM sites s WHERE owner_id = %" I
                   " UNION ALL SELECT a::text FROM apps a WHERE owner_id = %" I
                   " UNION ALL SELECT b::text FROM batch_jobs b WHERE owner_id = %" I
                   " UNION ALL SELECT s::text FROM sessions s WHERE owner_id = %" I
                   " UNION ALL SELECT 'x') AS all_rows",
                   world.user, world.user, world.user, world.user, world.user, world.user,
                   world.user, world.user);
}

static void every_changing_verb_is_tried_here(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        size_t k = 0;
        if (!route->mutates || strcmp(route->service, "auth") == 0)
            continue;
        while (k < AB_COUNT(rows) && strcmp(rows[k].verb, route->verb) != 0)
            k++;
        if (k == AB_COUNT(rows))
            fail_msg("%s has no row here", route->verb);
    }
}

static void a_repeat_is_given_the_first_answer_and_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < AB_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        char key[64], *before, *after, *first;
        make_world();
        snprintf(key, sizeof(key), "key of %s", row->verb);
        before = strdup(all_there_is());
        int status = send(row, false, key);
        if (status / 100 != 2)
            fail_msg("%s: %d %s", row->verb, status, answer());
        first = strdup(answer());
        after = strdup(all_there_is());
        assert_string_not_equal(before, after);
        for (int n = 0; n < 3; n++) {
            int again = send(row, false, key);
            if (again != status || strcmp(answer(), first) != 0
                || strcmp(all_there_is(), after) != 0)
                fail_msg("%s again: %d %s, first %d %s", row->verb, again, answer(), status, first);
            assert_string_equal(noticed(), ""); /* and nobody is told twice */
        }
        free(before);
        free(after);
        free(first);
    }
}

static void the_key_of_one_request_is_refused_for_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < AB_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        make_world();
        assert_int_equal(send(row, false, "taken") / 100, 2);
        char *after = strdup(all_there_is());
        int status = send(row, true, "taken");
        if (status != 422 || strcmp(txt("kind"), "key_reused") != 0)
            fail_msg("%s, other body: %d %s", row->verb, status, answer());
        /* nor for another verb */
        status = send(&rows[(i + 1) % AB_COUNT(rows)], false, "taken");
        if (status != 422)
            fail_msg("%s after %s: %d %s", rows[(i + 1) % AB_COUNT(rows)].verb, row->verb, status,
                     answer());
        assert_string_equal(all_there_is(), after);
        free(after);
    }
}

static void a_key_is_its_users_own(void **state)
{
    (void)state;
    make_world();
    assert_int_equal(send(&rows[0], false, "shared"), 201);
    int64_t first = num("id");
    make_world();
    assert_int_equal(send(&rows[0], false, "shared"), 201);
    assert_true(num("id") != first);
}

static void a_refused_request_leaves_its_key_free(void **state)
{
    (void)state;
    make_world();
    struct who who = {.user = world.user, .key = "once more"};
    assert_int_equal(ask_as(&who, "POST", "/jobs/", "[{'app_id': 999999, 'workdir': 'a'}]"), 404);
    assert_int_equal(
        ask_as(&who, "POST", "/jobs/", "[{'app_id': %" I ", 'workdir': 'a'}]", world.app), 201);
}

static void keys_are_forgotten_in_the_end(void **state)
{
    (void)state;
    make_world();
    struct who who = {.user = world.user, .key = "long ago"};
    assert_int_equal(
        ask_as(&who, "POST", "/jobs/", "[{'app_id': %" I ", 'workdir': 'a'}]", world.app), 201);
    int64_t first = num("0.id");
    pg_exec(desk_db(), "UPDATE requests SET created = now() - interval '25 hours'");
    tick("sessions", "requests");
    assert_int_equal(
        ask_as(&who, "POST", "/jobs/", "[{'app_id': %" I ", 'workdir': 'a'}]", world.app), 201);
    assert_true(num("0.id") > first);
}

/* One of several at once. Its answer goes to the pipe. */
static void one_twin(const struct row *row, const char *key, int out)
{
    desk_open(NULL);
    int status = send(row, false, key);
    dprintf(out, "%d %s\n", status, answer());
    close(out);
    _exit(0);
}

static void twins_at_once_are_done_once(void **state)
{
    (void)state;
    enum {
        TWINS = 4
    };
    for (size_t i = 0; i < AB_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        char answers[TWINS][8192];
        pid_t pids[TWINS];
        int pipes[TWINS][2];
        make_world();
        int64_t events =
            pg_int(desk_db(), "SELECT count(*) FROM events WHERE owner_id = %" I, world.user);
        for (int k = 0; k < TWINS; k++) {
            assert_int_equal(pipe(pipes[k]), 0);
            pids[k] = fork();
            assert_true(pids[k] >= 0);
            if (pids[k] == 0)
                one_twin(row, "twin", pipes[k][1]);
            close(pipes[k][1]);
        }
        for (int k = 0; k < TWINS; k++) {
            size_t n = 0;
            for (ssize_t got;
                 n < sizeof(answers[k]) - 1
                 && (got = read(pipes[k][0], answers[k] + n, sizeof(answers[k]) - 1 - n)) > 0;)
                n += (size_t)got;
            answers[k][n] = '\0';
            close(pipes[k][0]);
            int status;
            assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        assert_int_equal(answers[0][0], '2');
        for (int k = 1; k < TWINS; k++)
            if (strcmp(answers[k], answers[0]) != 0)
                fail_msg("%s: %sand %s", row->verb, answers[0], answers[k]);
        events = pg_int(desk_db(), "SELECT count(*) FROM events WHERE owner_id = %" I, world.user)
                 - events;
        int64_t made = strcmp(row->verb, "job.array") == 0 ? 2 : 1;
        if (events > made)
            fail_msg("%s: %" I " events", row->verb, events);
    }
    check_books();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_changing_verb_is_tried_here),
        cmocka_unit_test(a_repeat_is_given_the_first_answer_and_changes_nothing),
        cmocka_unit_test(the_key_of_one_request_is_refused_for_another),
        cmocka_unit_test(a_key_is_its_users_own),
        cmocka_unit_test(a_refused_request_leaves_its_key_free),
        cmocka_unit_test(keys_are_forgotten_in_the_end),
        cmocka_unit_test(twins_at_once_are_done_once),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
