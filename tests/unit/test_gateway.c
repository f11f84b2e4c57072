/* test_gateway.c - the gateway's parts that need no socket: tokens, error bodies, pages of events,
 * filters */
#include "base/clock.h"
#include "base/rand.h"
#include "gateway/auth.h"
#include "gateway/filter.h"
#include "gateway/gateway.h"
#include "gateway/reply.h"
#include "gateway/stream.h"
#include "gateway/tail.h"
#include "schema/pack.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- tokens */

static uint8_t public_key[32], secret[64];

static void pack_keys(struct ab_buf *out, const char *kid)
{
    ab_pack_array(out, 1);
    ab_pack_map(out, 2);
    ab_pack_str(out, "kid");
    ab_pack_str(out, kid);
    ab_pack_str(out, "key");
    ab_pack_bin(out, public_key, sizeof(public_key));
}

static void pack_revoked(struct ab_buf *out, const char *jti)
{
    ab_pack_array(out, jti ? 1 : 0);
    if (!jti)
        return;
    ab_pack_map(out, 2);
    ab_pack_str(out, "jti");
    ab_pack_str(out, jti);
    ab_pack_str(out, "expires");
    ab_pack_int(out, time(NULL) + 100);
}

static int start_auth(void **state)
{
    struct ab_buf keys = {0}, none = {0};

    (void)state;
    ab_crypt_init();
    ab_token_keypair(public_key, secret);
    auth_init();
    struct ab_token token;
    assert_int_equal(auth_check_token("a.b.c", 5, &token), AUTH_NOT_YET);
    pack_keys(&keys, "one");
    pack_revoked(&none, NULL);
    assert_int_equal(auth_take_keys(keys.data, keys.len), 0);
    assert_false(auth_ready());
    assert_int_equal(auth_take_revoked(none.data, none.len), 0);
    assert_false(auth_ready());
    assert_int_equal(auth_take_ended(none.data, none.len), 0);
    assert_true(auth_ready());
    ab_buf_free(&keys);
    ab_buf_free(&none);
    return 0;
}

static int stop_auth(void **state)
{
    (void)state;
    auth_free();
    return 0;
}

static void make_token(char out[AB_TOKEN_MAX], const char *jti, int64_t seconds)
{
    struct ab_token token = {
        .user = 7, .scopes = AB_SCOPE_USER, .iat = time(NULL), .exp = time(NULL) + seconds};
    struct ab_error err = {0};

    strcpy(token.username, "tester");
    strcpy(token.jti, jti);
    assert_int_equal(ab_token_sign(&token, "one", secret, out, &err), 0);
}

static enum auth check(const char *scheme, const char *token)
{
    char header[AB_TOKEN_MAX + 32];
    struct ab_token out;

    (void)snprintf(header, sizeof(header), "%s%s", scheme, token);
    return auth_check_header(header, strlen(header), &out);
}

static void a_good_token_passes_and_is_remembered_no_longer_than_it_lives(void **state)
{
    char text[AB_TOKEN_MAX];
    struct ab_token out;

    (void)state;
    make_token(text, "a", 100);
    for (int i = 0; i < 3; i++)
        assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    assert_int_equal(out.user, 7);
    assert_string_equal(out.jti, "a");
    assert_int_equal(check("Bearer ", text), AUTH_OK);
    assert_int_equal(check("bEaReR   ", text), AUTH_OK);
    make_token(text, "b", 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_BAD);
}

static void what_is_no_bearers_token_is_none_and_a_wrong_one_is_bad(void **state)
{
    char text[AB_TOKEN_MAX];

    (void)state;
    make_token(text, "a", 100);
    assert_int_equal(check("", ""), AUTH_NONE);
    assert_int_equal(check("Bearer", ""), AUTH_NONE);
    assert_int_equal(check("Bearer ", ""), AUTH_NONE);
    assert_int_equal(check("Basic ", text), AUTH_NONE);
    assert_int_equal(check("Bearer\t", text), AUTH_NONE);
    assert_int_equal(check("Bearer ", "x"), AUTH_BAD);
    text[strlen(text) - 3] ^= 1;
    assert_int_equal(check("Bearer ", text), AUTH_BAD);
    char longer[AB_TOKEN_MAX + 10];
    memset(longer, 'a', sizeof(longer));
    struct ab_token out;
    assert_int_equal(auth_check_token(longer, sizeof(longer), &out), AUTH_BAD);
}

static void a_revoked_token_is_refused_though_it_was_remembered(void **state)
{
    char text[AB_TOKEN_MAX];
    struct ab_token out;
    struct ab_buf list = {0}, none = {0};

    (void)state;
    make_token(text, "gone", 100);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    pack_revoked(&list, "gone");
    pack_revoked(&none, NULL);
    assert_int_equal(auth_take_revoked(list.data, list.len), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_BAD);
    assert_int_equal(auth_take_revoked("\xdd\xff\xff\xff\xff", 5),
                     -1); /* nonsense changes nothing */
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_BAD);
    assert_int_equal(auth_take_revoked(none.data, none.len), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    ab_buf_free(&list);
    ab_buf_free(&none);
}

static void pack_ended(struct ab_buf *out, int64_t user, int64_t from)
{
    ab_pack_array(out, 3);
    for (int64_t other = 100; other >= -100; other -= 100) { /* not sorted */
        ab_pack_map(out, 2);
        ab_pack_str(out, "user");
        ab_pack_int(out, user + other);
        ab_pack_str(out, "from");
        ab_pack_int(out, other ? INT64_MAX : from);
    }
}

static void a_user_that_is_locked_out_has_no_good_token(void **state)
{
    char text[AB_TOKEN_MAX];
    struct ab_token out;
    struct ab_buf list = {0};

    (void)state;
    make_token(text, "a", 100);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    pack_ended(&list, 7, INT64_MAX);
    assert_int_equal(auth_take_ended(list.data, list.len), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_BAD);
    assert_true(auth_ended(&out)); /* what a WebSocket asks */
    for (size_t n = 0; n < list.len; n++)
        assert_int_equal(auth_take_ended(list.data, n), -1);
    assert_int_equal(auth_take_ended("\xdd\xff\xff\xff\xff", 5), -1);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_BAD);
    assert_int_equal(auth_take_ended("\x90", 1), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    ab_buf_free(&list);
}

static void only_tokens_from_before_a_users_cut_are_refused(void **state)
{
    char text[AB_TOKEN_MAX];
    struct ab_token out;
    struct ab_buf later = {0}, now = {0};

    (void)state;
    make_token(text, "a", 100);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    pack_ended(&later, 7, out.iat + 1);
    assert_int_equal(auth_take_ended(later.data, later.len), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_BAD);
    pack_ended(&now, 7, out.iat);
    assert_int_equal(auth_take_ended(now.data, now.len), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    assert_int_equal(auth_take_ended("\x90", 1), 0); /* nothing is left for the next test */
    ab_buf_free(&later);
    ab_buf_free(&now);
}

static void a_key_that_is_gone_takes_its_tokens_with_it(void **state)
{
    char text[AB_TOKEN_MAX];
    struct ab_token out;
    struct ab_buf other = {0}, same = {0};

    (void)state;
    make_token(text, "a", 100);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    pack_keys(&other, "two");
    assert_int_equal(auth_take_keys(other.data, other.len), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_BAD);
    pack_keys(&same, "one");
    assert_int_equal(auth_take_keys(same.data, same.len), 0);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    for (size_t n = 0; n < same.len; n++)
        assert_int_equal(auth_take_keys(same.data, n), -1);
    assert_int_equal(auth_check_token(text, strlen(text), &out), AUTH_OK);
    ab_buf_free(&other);
    ab_buf_free(&same);
}

/* ---- error bodies */

static void renders(const struct ab_error *err, const char *want)
{
    struct ab_buf out = {0};
    render_error(&out, err);
    assert_string_equal(out.data, want);
    ab_buf_free(&out);
}

static void errors_have_the_contracts_forms(void **state)
{
    struct ab_error err = {0};
    struct ab_error_item items[] = {{0, 7, "lost \"it\""}, {-1, 0, NULL}};

    (void)state;
    (void)ab_fail(&err, AB_ENOENT, "job 5 is not there");
    renders(&err, "{\"error\":\"Not found\",\"message\":\"job 5 is not there\"}");
    (void)ab_fail_kind(&err, AB_ENOENT, "bad_reference", "no app 9");
    renders(&err, "{\"detail\":\"no app 9\"}");
    (void)ab_fail(&err, AB_ECONFLICT, "lost");
    err.items = items;
    err.n_items = 2;
    renders(&err,
            "{\"detail\":\"lost\",\"items\":[{\"index\":0,\"id\":7,\"reason\":\"lost \\\"it\\\"\"},"
            "{\"reason\":\"\"}]}");
    (void)ab_fail(&err, AB_ESCHEMA, "no");
    renders(&err, "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"no\",\"type\":\"value_error\"}]}");
    err.items = items;
    err.n_items = 1;
    renders(&err, "{\"detail\":[{\"loc\":[\"body\",0],\"msg\":\"lost "
                  "\\\"it\\\"\",\"type\":\"value_error\"}]}");
}

/* ---- pages of events */

static void pack_event(struct ab_buf *out, const char *cursor, int64_t job, int64_t site,
                       const char *state, const char *tags)
{
    ab_pack_map(out, 6);
    ab_pack_str(out, "cursor");
    ab_pack_str(out, cursor);
    ab_pack_str(out, "job_id");
    ab_pack_int(out, job);
    ab_pack_str(out, "to_state");
    ab_pack_str(out, state);
    ab_pack_str(out, "site_id");
    if (site)
        ab_pack_int(out, site);
    else
        ab_pack_nil(out);
    ab_pack_str(out, "data");
    ab_pack_json(out, "{}", 2);
    ab_pack_str(out, "tags");
    if (tags)
        ab_pack_json(out, tags, strlen(tags));
    else
        ab_pack_nil(out);
}

static void pack_page(struct ab_buf *out)
{
    ab_pack_map(out, 3);
    ab_pack_str(out, "next");
    ab_pack_str(out, "11-2");
    ab_pack_str(out, "more");
    ab_pack_bool(out, true);
    ab_pack_str(out, "results");
    ab_pack_array(out, 2);
    pack_event(out, "10-9", 4, 1, "RUNNING", "{\"kind\":\"md\"}");
    pack_event(out, "11-2", 5, 0, "READY", NULL);
}

static void a_page_of_events_is_taken_apart(void **state)
{
    struct ab_buf page = {0};
    struct tail t;

    (void)state;
    pack_page(&page);
    assert_int_equal(tail_read(&t, page.data, page.len), 0);
    assert_int_equal(t.n, 2);
    assert_true(t.more);
    char text[PLACE_TEXT];
    assert_string_equal(place_text(&t.next, text), "11-2");
    assert_false(t.held);
    assert_false(t.head.known); /* of an older service */
    const char *want = "{\"job_id\":4,\"to_state\":\"RUNNING\",\"site_id\":1,\"data\":{}}";
    assert_int_equal(t.events[0].json_len, strlen(want));
    assert_memory_equal(t.text.data + t.events[0].json_at, want, strlen(want));
    assert_int_equal(t.events[1].site, 0);
    assert_null(t.events[1].tags);
    tail_free(&t);
    for (size_t n = 0; n < page.len; n++) { /* cut anywhere: refused, nothing leaks */
        char *cut = malloc(n ? n : 1);
        memcpy(cut, page.data, n);
        assert_int_equal(tail_read(&t, cut, n), -1);
        tail_free(&t);
        free(cut);
    }
    ab_buf_free(&page);
}

static void places_are_ordered_by_transaction_first(void **state)
{
    struct place a, b;

    (void)state;
    assert_int_equal(place_parse("9-100", 5, &a), 0);
    assert_int_equal(place_parse("10-1", 4, &b), 0);
    assert_true(place_cmp(&a, &b) < 0);
    assert_true(place_cmp(&b, &a) > 0);
    assert_int_equal(place_cmp(&a, &a), 0);
    static const char *const wrong[] = {
        "", "-", "1-", "-1", "1-2-3", "a-1", "1 -2", "+1-2", "18446744073709551616-1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(place_parse(wrong[i], strlen(wrong[i]), &a), -1);
}

static bool passes(const char *query, int64_t only_site, size_t which)
{
    struct ab_buf page = {0};
    struct tail t;
    struct filter f = {0};
    struct place since = {0};
    struct ab_issues issues = {0};

    pack_page(&page);
    assert_int_equal(tail_read(&t, page.data, page.len), 0);
    assert_int_equal(filter_read(&f, &since, query, strlen(query), &issues), 0);
    if (only_site)
        filter_only_site(&f, only_site);
    bool yes = filter_passes(&f, &t, &t.events[which]);
    filter_free(&f);
    tail_free(&t);
    ab_issues_free(&issues);
    ab_buf_free(&page);
    return yes;
}

static void filters_are_all_of_what_was_asked(void **state)
{
    (void)state;
    assert_true(passes("", 0, 0));
    assert_true(passes("job_id=4&job_id=9", 0, 0));
    assert_false(passes("job_id=9", 0, 0));
    assert_true(passes("state=RUNNING&tags=kind:md", 0, 0));
    assert_false(passes("state=READY&tags=kind:md", 0, 0));
    assert_false(passes("tags=kind:md", 0, 1)); /* a job that is gone has no tags */
    assert_true(passes("site_id=1", 0, 0));
    assert_true(passes("", 1, 0));
    assert_false(passes("", 2, 0));
    assert_false(passes("site_id=1", 2, 0)); /* a site's token widens nothing */
    assert_true(passes("unknown=5&job_id=4", 0, 0));
}

static void who_asks_for_the_same_is_found_by_it(void **state)
{
    static const char *const queries[] = {"",
                                          "job_id=4&state=RUNNING",
                                          "state=RUNNING&job_id=4&since=9-9",
                                          "job_id=5&state=RUNNING",
                                          "site_id=4&state=RUNNING",
                                          "tags=a:b&state=RUNNING"};
    struct filter f[6] = {0};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct place since = {0};
        struct ab_issues issues = {0};
        assert_int_equal(filter_read(&f[i], &since, queries[i], strlen(queries[i]), &issues), 0);
        assert_int_equal(since.known, i == 2);
    }
    for (size_t a = 0; a < 6; a++)
        for (size_t b = 0; b < 6; b++)
            assert_int_equal(filter_same(&f[a], &f[b]), a == b || (a + b == 3 && a && b));
    filter_only_site(&f[1], 7); /* a site's token asks for less with the same words */
    assert_false(filter_same(&f[1], &f[2]));
    for (size_t i = 0; i < 6; i++)
        filter_free(&f[i]);
}

static void a_wrong_filter_is_an_issue_of_the_query(void **state)
{
    static const char *const wrong[] = {"since=nonsense", "job_id=x", "state=NONE_SUCH"};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct filter f = {0};
        struct place since = {0};
        struct ab_issues issues = {0};
        assert_int_equal(filter_read(&f, &since, wrong[i], strlen(wrong[i]), &issues), -1);
        assert_true(issues.n > 0);
        assert_non_null(strstr(issues.list.data, "\"query\""));
        filter_free(&f);
        ab_issues_free(&issues);
    }
}

/* ---- the budget */

static void the_budget_ends_exactly_at_its_limit(void **state)
{
    (void)state;
    assert_int_equal(budget_take(BUDGET - 5), 0);
    assert_int_equal(budget_take(6), -1);
    assert_int_equal(budget_take(5), 0);
    assert_int_equal(budget_take(1), -1);
    budget_give(BUDGET);
    assert_int_equal(gw.budget_used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_token_passes_and_is_remembered_no_longer_than_it_lives),
        cmocka_unit_test(what_is_no_bearers_token_is_none_and_a_wrong_one_is_bad),
        cmocka_unit_test(a_revoked_token_is_refused_though_it_was_remembered),
        cmocka_unit_test(a_user_that_is_locked_out_has_no_good_token),
        cmocka_unit_test(only_tokens_from_before_a_users_cut_are_refused),
        cmocka_unit_test(a_key_that_is_gone_takes_its_tokens_with_it),
        cmocka_unit_test(errors_have_the_contracts_forms),
        cmocka_unit_test(a_page_of_events_is_taken_apart),
        cmocka_unit_test(places_are_ordered_by_transaction_first),
        cmocka_unit_test(filters_are_all_of_what_was_asked),
        cmocka_unit_test(who_asks_for_the_same_is_found_by_it),
        cmocka_unit_test(a_wrong_filter_is_an_issue_of_the_query),
        cmocka_unit_test(the_budget_ends_exactly_at_its_limit),
    };
    return cmocka_run_group_tests(tests, start_auth, stop_auth);
}
