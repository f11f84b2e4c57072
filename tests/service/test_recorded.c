/* test_recorded.c - every verb that changes something is recorded in the transaction that does it,
 * or stands here with the reason why twice is harmless
 *
 * What is in neither list runs READ ONLY (common/service): a new verb that writes fails at its first
 * call, and one that is let write without being recorded fails here.
 */
#include "service/service.h"
#include "svc_auth/auth.h"
#include "svc_jobs/jobs.h"
#include "svc_sessions/sessions.h"
#include "svc_transfers/transfers.h"
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct ab_service *const services[] = {&auth_service, &jobs_service, &sessions_service,
                                                    &transfers_service};

/* Verbs that may write and are not recorded, or have a transaction for each statement. */
static const struct {
    const char *verb, *why;
} harmless[] = {
    {"auth.how", "reads settings"},
    {"user.me", "reads one row"},
    {"user.login", "counts the try; a token that nobody got is of no use to anybody"},
    {"device.login", "a device code that nobody got expires"},
    {"device.token", "the answer of an agreed log-in is given to one key, again if it asks again"},
    {"oauth.login", "a state that nobody got expires"},
    {"oauth.login_device", "likewise"},
    {"oauth.callback", "the provider's code works once, whoever sends it"},
    {"token.refresh", "a repeat gets the same successor, from whoever proves to have asked"},
    {"token.revoke", "what is gone is gone"},
    {"session.touch", "a sign of life"},
    {"session.heartbeat", "a sign of life"},
};

static const char *reason(const char *verb)
{
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
        if (strcmp(harmless[i].verb, verb) == 0)
            return harmless[i].why;
    return NULL;
}

static const struct ab_verb *verb_of(const struct ab_route *route)
{
    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        if (strcmp(services[i]->name, route->service) != 0)
            continue;
        for (const struct ab_verb *verb = services[i]->verbs; verb->name; verb++)
            if (strcmp(verb->name, route->verb) == 0)
                return verb;
    }
    fail_msg("no service has %s", route->verb);
    return NULL;
}

static void what_changes_something_is_recorded_in_its_own_transaction(void **state)
{
    size_t recorded = 0;

    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        const struct ab_verb *verb = verb_of(route);
        if (route->mutates && verb->no_transaction)
            fail_msg("%s is to be recorded, and has no transaction to be recorded in", route->verb);
        if (route->mutates && reason(route->verb))
            fail_msg("%s is recorded: it needs no excuse", route->verb);
        recorded += route->mutates;
    }
    assert_true(recorded > 20);
}

static void what_is_not_recorded_only_reads_or_says_why(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        const struct ab_verb *verb = verb_of(route);
        bool asks = !route->method || strcmp(route->method, "GET") == 0;
        if (route->mutates || reason(route->verb))
            continue;
        if (verb->writes || verb->no_transaction || !asks)
            fail_msg(
                "%s may change something and is not recorded: set `mutates` in api.def, or say "
                "here why twice is harmless",
                route->verb);
    }
}

/* Schemas mark their secrets: an answer that has one must not lie in `requests`. */
static void an_answer_with_a_secret_is_made_again_and_never_recorded(void **state)
{
    size_t secret = 0;

    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        const struct ab_verb *verb = verb_of(route);
        bool has = false;
        for (int f = 0; route->reply && f < route->reply->n_fields; f++)
            has = has || (route->reply->fields[f].flags & AB_SECRET_TEXT);
        if (has && route->mutates && !verb->secret)
            fail_msg("%s answers with a secret: set `secret`, and make it again", route->verb);
        if (verb->secret)
            assert_non_null(verb->replay);
        secret += verb->secret;
    }
    assert_true(secret > 0);
}

static void no_excuse_is_left_of_a_verb_that_is_gone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
        if (!ab_route_of_verb(harmless[i].verb))
            fail_msg("%s is gone", harmless[i].verb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes_something_is_recorded_in_its_own_transaction),
        cmocka_unit_test(what_is_not_recorded_only_reads_or_says_why),
        cmocka_unit_test(an_answer_with_a_secret_is_made_again_and_never_recorded),
        cmocka_unit_test(no_excuse_is_left_of_a_verb_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
