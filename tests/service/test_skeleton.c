/* test_skeleton.c - what the skeleton promises to every handler and every caller */
#include "fake.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/rand.h"
#include "crypt/crypt.h"
#include "pg.h"
#include "schema/pack.h"
#include "scratch.sql.h"
#include <stdio.h>
#include <string.h>

static struct ab_service service;
static ab_db_t *db;
static int attempts;         /* of the handler */
static int conflicts;        /* so many come first */
static const char *sqlstate; /* of these */

/* ---- handlers */

static int add(struct ab_call *call, struct ab_error *err)
{
    PGresult *r = ab_run(call, &SQL_scratch_add, err);
    if (!r)
        return -1;
    call->events = true;
    int64_t id = ab_col_int(r, 0, 0);
    ab_record_ids(call, &id, 1);
    ab_pack_map(&call->reply, 1);
    ab_pack_str(&call->reply, "id");
    ab_pack_int(&call->reply, id);
    return 0;
}

static int add_with_trouble(struct ab_call *call, struct ab_error *err)
{
    if (add(call, err) < 0)
        return -1;
    if (attempts++ < conflicts) {
        ab_bind_text(call, "state", sqlstate);
        return ab_run(call, &SQL_scratch_conflict, err) ? 0 : -1;
    }
    return 0;
}

static int add_and_lose_the_server(struct ab_call *call, struct ab_error *err)
{
    if (add(call, err) < 0)
        return -1;
    return attempts++ > 0 || ab_run(call, &SQL_scratch_kill, err) ? 0 : -1;
}

static int add_and_hide_an_error(struct ab_call *call, struct ab_error *err)
{
    ab_bind_text(call, "state", "22012");
    if (add(call, err) < 0)
        return -1;
    (void)ab_run(call, &SQL_scratch_conflict, NULL);
    return 0;
}

static int add_and_fail(struct ab_call *call, struct ab_error *err)
{
    if (add(call, err) < 0)
        return -1;
    return ab_fail(err, AB_EINVAL, "no, thank you");
}

static int wait_long(struct ab_call *call, struct ab_error *err)
{
    return ab_run(call, &SQL_scratch_wait, err) ? 0 : -1;
}

static int add_large(struct ab_call *call, struct ab_error *err)
{
    if (add(call, err) < 0)
        return -1;
    static char text[20000];
    memset(text, 'x', sizeof(text) - 1);
    ab_buf_clear(&call->reply);
    ab_pack_str(&call->reply, text);
    return 0;
}

static int replay_large(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    (void)err;
    ab_pack_str(&call->reply, "again");
    ab_pack_int(&call->reply, ids->n == 1 ? ids->v[0] : -1);
    return 0;
}

static int read_rows(struct ab_call *call, struct ab_error *err)
{
    PGresult *r = ab_run(call, &SQL_scratch_count, err);
    if (!r)
        return -1;
    ab_pack_int(&call->reply, ab_col_int(r, 0, 0));
    return 0;
}

static struct ab_verb verbs[] = {
    {.name = "transfer.update", .handler = add},
    {.name = "transfer.get", .handler = read_rows},
    {0},
};
static const struct ab_sql *const *const sql[] = {scratch_sql, NULL};

static int ticks;
static int tick(struct ab_call *call, struct ab_error *err)
{
    (void)err;
    ticks++;
    static int64_t owners[] = {4, 5};
    call->event_owners = (struct ab_ids){owners, 2};
    return 0;
}
static const struct ab_timer timers[] = {{"sweep", tick, .every = "beat", .one_replica = true},
                                         {0}};

/* ---- calls */

static void use(struct ab_verb verb)
{
    fake_close(&service);
    verb.name = "transfer.update";
    verbs[0] = verb;
    fake_open(&service, "transfers", verbs);
    service.sql = sql;
    service.timers = timers;
    pg_exec(db, "TRUNCATE scratch, requests");
    attempts = conflicts = 0;
}

static int update(const struct ab_caller *caller, const char *task, struct ab_buf *reply)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct transfer item = {.task_id = task};
    AB_SET(transfer, &item, task_id);
    ab_pack_request(&body, ab_route_of_verb("transfer.update"), 1, NULL, &item, 1);
    return ab_service_call_as(&service, db, NULL, caller, "transfer.update", body.data, body.len,
                              reply);
}

static int rows(void)
{
    return (int)pg_int(db, "SELECT count(*) FROM scratch");
}

static int records(void)
{
    return (int)pg_int(db, "SELECT count(*) FROM requests");
}

static int open_all(void **state)
{
    (void)state;
    ab_crypt_init();
    db = pg_open();
    pg_exec(db, "CREATE TABLE scratch (id bigserial PRIMARY KEY, owner_id bigint, note text)");
    pg_exec(db, "CREATE FUNCTION scratch_fail(state text) RETURNS int LANGUAGE plpgsql AS "
                "'BEGIN RAISE EXCEPTION USING ERRCODE = state; END'");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    fake_close(&service);
    ab_db_close(&db);
    return 0;
}

/* ---- exactly once */

static void a_repeated_request_is_answered_from_its_record(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf first = {0}, again = {0};
    struct ab_caller caller = {.owner_id = 7, .key = "once"};
    use((struct ab_verb){.handler = add});
    assert_int_equal(update(&caller, "a", &first), 200);
    assert_string_equal(ab_service_hints(), "e7");
    assert_int_equal(update(&caller, "a", &again), 200);
    assert_string_equal(ab_service_hints(), "");
    assert_int_equal(rows(), 1);
    assert_int_equal(first.len, again.len);
    assert_memory_equal(first.data, again.data, first.len);
}

static void a_request_that_is_sent_again_keeps_its_id_and_happens_once(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    uint8_t uuid[16];
    ab_uuid7(uuid);
    struct ab_caller caller = {.owner_id = 7, .uuid = uuid};
    use((struct ab_verb){.handler = add});
    for (int i = 0; i < 3; i++)
        assert_int_equal(update(&caller, "a", &reply), 200);
    assert_int_equal(rows(), 1);
}

static void a_key_belongs_to_one_body_one_verb_and_one_user(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_caller caller = {.owner_id = 7, .key = "k"}, other = {.owner_id = 8, .key = "k"};
    use((struct ab_verb){.handler = add});
    assert_int_equal(update(&caller, "a", &reply), 200);
    assert_int_equal(update(&caller, "b", &reply), 422);
    assert_string_equal(ab_value_text(ab_value_get(fake_tree(arena, &reply), "kind"), ""),
                        "key_reused");
    assert_int_equal(update(&other, "b", &reply), 200);
    assert_int_equal(rows(), 2);
    pg_exec(db, "UPDATE requests SET verb = 'transfer.patch' WHERE owner_id = 7");
    assert_int_equal(update(&caller, "a", &reply), 422);
}

static void a_large_reply_is_rebuilt_from_its_ids(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_caller caller = {.owner_id = 7, .key = "large"};
    use((struct ab_verb){.handler = add_large, .replay = replay_large});
    assert_int_equal(update(&caller, "a", &reply), 200);
    assert_true(reply.len > 19000);
    assert_int_equal(pg_int(db, "SELECT count(*) FROM requests WHERE reply IS NULL"), 1);
    assert_int_equal(update(&caller, "a", &reply), 200);
    struct ab_cursor at = ab_cursor(reply.data, reply.len);
    const char *text;
    size_t n;
    int64_t id;
    assert_int_equal(ab_cursor_str(&at, &text, &n), 0);
    assert_memory_equal(text, "again", n);
    assert_int_equal(ab_cursor_int(&at, &id), 0);
    assert_int_equal(id, pg_int(db, "SELECT id FROM scratch"));
}

static void a_failed_request_leaves_nothing_and_may_be_repeated(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_caller caller = {.owner_id = 7, .key = "k"};
    use((struct ab_verb){.handler = add_and_fail});
    assert_int_equal(update(&caller, "a", &reply), 400);
    assert_string_equal(ab_service_hints(), "");
    assert_int_equal(rows() + records(), 0);
    verbs[0].handler = add;
    use(verbs[0]);
    assert_int_equal(update(&caller, "a", &reply), 200);
}

/* ---- conflicts and losses */

static void a_conflict_is_run_again_up_to_five_times(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_caller caller = {.owner_id = 7};
    static const char *const states[] = {"40001", "40P01"};
    for (size_t i = 0; i < AB_COUNT(states); i++) {
        use((struct ab_verb){.handler = add_with_trouble});
        sqlstate = states[i];
        conflicts = 5;
        assert_int_equal(update(&caller, "a", &reply), 200);
        assert_int_equal(attempts, 6);
        assert_int_equal(rows(), 1);
    }
    use((struct ab_verb){.handler = add_with_trouble});
    conflicts = 6;
    assert_int_equal(update(&caller, "a", &reply), 503);
    assert_int_equal(rows() + records(), 0);
}

static void a_mistake_of_ours_is_not_run_again_and_not_told(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    use((struct ab_verb){.handler = add_with_trouble});
    sqlstate = "42P01";
    conflicts = 1;
    assert_int_equal(update(&(struct ab_caller){.owner_id = 7}, "a", &reply), 500);
    assert_int_equal(attempts, 1);
    assert_int_equal(rows(), 0);
    assert_null(strstr(fake_json(&reply), "42P01"));
}

static void an_error_that_a_handler_hides_cannot_be_committed(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    use((struct ab_verb){.handler = add_and_hide_an_error});
    assert_int_equal(update(&(struct ab_caller){.owner_id = 7}, "a", &reply), 500);
    assert_int_equal(rows() + records(), 0);
}

static void a_lost_connection_costs_no_request(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    use((struct ab_verb){.handler = add_and_lose_the_server});
    assert_int_equal(update(&(struct ab_caller){.owner_id = 7}, "a", &reply), 200);
    assert_int_equal(attempts, 2);
    assert_int_equal(rows(), 1);
}

static void one_failure_anywhere_leaves_all_or_nothing(void **state)
{
    (void)state;
    int failed = 0, nth = 1;
    for (;; nth++) {
        AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
        use((struct ab_verb){.handler = add});
        /* prepared beforehand: it is the call that shall fail, not the start */
        assert_int_equal(update(&(struct ab_caller){.owner_id = 6}, "a", &reply), 200);
        ab_fault_arm(nth);
        int status = update(&(struct ab_caller){.owner_id = 7}, "a", &reply);
        bool fired = ab_fault_fired();
        ab_fault_arm(0);
        assert_true(status == 200 || (fired && status == 503));
        assert_int_equal(rows(), status == 200 ? 2 : 1);
        assert_int_equal(records(), status == 200 ? 2 : 1);
        assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
        failed += status != 200;
        if (!fired)
            break;
    }
    assert_true(nth > 4);    /* begin, statement, commit and the named places */
    assert_true(failed > 0); /* some of them are not to be healed by another attempt */
}

/* ---- who and when */

static void a_request_past_its_deadline_is_answered_504_and_not_begun(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    use((struct ab_verb){.handler = add});
    struct ab_caller late = {.owner_id = 7, .deadline_ms = ab_now_ms() - 1};
    assert_int_equal(update(&late, "a", &reply), 504);
    assert_int_equal(rows() + records(), 0);
}

static void no_statement_works_longer_than_the_deadline(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    use((struct ab_verb){.handler = wait_long});
    int64_t from = ab_now_ms();
    struct ab_caller hurried = {.owner_id = 7, .deadline_ms = from + 300};
    assert_int_equal(update(&hurried, "a", &reply), 504);
    assert_true(ab_now_ms() - from < 10 * 1000);
    assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
}

static void the_scopes_of_a_route_are_looked_at_again(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0}, body = {0};
    use((struct ab_verb){.handler = add});
    struct ab_caller reader = {.owner_id = 7, .scopes = AB_SCOPE_READ}, nobody = {.owner_id = 0},
                     site = {.owner_id = 7, .scopes = AB_SCOPE_SITE, .token_site = 3};
    assert_int_equal(update(&reader, "a", &reply), 403);
    assert_int_equal(update(&nobody, "a", &reply), 401);
    assert_int_equal(update(&site, "a", &reply), 200);
    ab_pack_request(&body, ab_route_of_verb("transfer.get"), 1, NULL, NULL, 0);
    assert_int_equal(ab_service_call_as(&service, db, NULL, &reader, "transfer.get", body.data,
                                        body.len, &reply),
                     200);
    assert_string_equal(fake_json(&reply), "1");
}

static void a_site_token_speaks_for_one_site(void **state)
{
    (void)state;
    assert_true(ab_site_allowed(&(struct ab_call){.token_site = 0}, 3));
    assert_true(ab_site_allowed(&(struct ab_call){.token_site = 3}, 3));
    assert_false(ab_site_allowed(&(struct ab_call){.token_site = 3}, 4));
}

static void garbage_is_answered_and_not_believed(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "", "\xc0", "\x81", "\xdf\xff\xff\xff\xff", "\x93\x01\x02\x03", "\x81\xa1q\x05"};
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_caller caller = {.owner_id = 7};
    use((struct ab_verb){.handler = add});
    for (size_t i = 0; i < AB_COUNT(bodies); i++) {
        int status = ab_service_call_as(&service, db, NULL, &caller, "transfer.update", bodies[i],
                                        strlen(bodies[i]), &reply);
        assert_true(status >= 400 && status < 500);
    }
    assert_int_equal(ab_service_call_as(&service, db, NULL, &caller, "no.such", "", 0, &reply),
                     404);
    assert_int_equal(rows() + records(), 0);
}

static void the_skeleton_answers_ping_info_and_stats(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_caller nobody = {.owner_id = 0};
    assert_int_equal(ab_service_call_as(&service, db, NULL, &nobody, "ping", "", 0, &reply), 200);
    assert_string_equal(fake_json(&reply), "null");
    assert_int_equal(ab_service_call_as(&service, db, NULL, &nobody, "info", "", 0, &reply), 200);
    assert_non_null(strstr(fake_json(&reply), "\"service\":\"transfers\""));
    assert_int_equal(ab_service_call_as(&service, db, NULL, &nobody, "stats", "", 0, &reply), 200);
}

/* ---- timers */

static void a_timer_of_one_replica_runs_nowhere_twice_at_a_time(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_db_close) ab_db_t *other = pg_open();
    use((struct ab_verb){.handler = add});
    ticks = 0;
    assert_int_equal(ab_service_tick(&service, db, NULL, "sweep", &err), 0);
    assert_int_equal(ticks, 1);
    assert_string_equal(ab_service_hints(), "e4 e5");
    pg_exec(other, "BEGIN");
    pg_exec(other, "SELECT pg_advisory_xact_lock(x'AB1E5'::int, hashtext('transfers.sweep'))");
    assert_int_equal(ab_service_tick(&service, db, NULL, "sweep", &err), 0);
    assert_int_equal(ticks, 1);
    assert_string_equal(ab_service_hints(), "");
    pg_exec(other, "COMMIT");
    assert_int_equal(ab_service_tick(&service, db, NULL, "sweep", &err), 0);
    assert_int_equal(ticks, 2);
}

static void a_table_that_does_not_fit_the_routes_does_not_start(void **state)
{
    (void)state;
    struct ab_error err = {0};
    static const struct ab_verb none[] = {{0}},
                                strange[] = {{.name = "job.list", .handler = add}, {0}};
    struct ab_service bad = {.name = "transfers", .verbs = none, .timers = timers};
    assert_int_equal(ab_service_tick(&bad, db, NULL, "sweep", &err), -1);
    assert_non_null(strstr(err.text, "transfer.list"));
    bad.verbs = strange;
    assert_int_equal(ab_service_tick(&bad, db, NULL, "sweep", &err), -1);
    assert_non_null(strstr(err.text, "job.list"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_request_is_answered_from_its_record),
        cmocka_unit_test(a_request_that_is_sent_again_keeps_its_id_and_happens_once),
        cmocka_unit_test(a_key_belongs_to_one_body_one_verb_and_one_user),
        cmocka_unit_test(a_large_reply_is_rebuilt_from_its_ids),
        cmocka_unit_test(a_failed_request_leaves_nothing_and_may_be_repeated),
        cmocka_unit_test(a_conflict_is_run_again_up_to_five_times),
        cmocka_unit_test(a_mistake_of_ours_is_not_run_again_and_not_told),
        cmocka_unit_test(an_error_that_a_handler_hides_cannot_be_committed),
        cmocka_unit_test(a_lost_connection_costs_no_request),
        cmocka_unit_test(one_failure_anywhere_leaves_all_or_nothing),
        cmocka_unit_test(a_request_past_its_deadline_is_answered_504_and_not_begun),
        cmocka_unit_test(no_statement_works_longer_than_the_deadline),
        cmocka_unit_test(the_scopes_of_a_route_are_looked_at_again),
        cmocka_unit_test(a_site_token_speaks_for_one_site),
        cmocka_unit_test(garbage_is_answered_and_not_believed),
        cmocka_unit_test(the_skeleton_answers_ping_info_and_stats),
        cmocka_unit_test(a_timer_of_one_replica_runs_nowhere_twice_at_a_time),
        cmocka_unit_test(a_table_that_does_not_fit_the_routes_does_not_start),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
