/* test_hostile.c - broken requests on the bus: refused, and nothing else happens
 *
 * The gateway checks what clients send; but services check again, for a gateway may be older, or
 * not one of ours. Packed requests are damaged in thousands of ways, always the same ones.
 */
#include "base/cleanup.h"
#include "desk.h"
#include "schema/pack.h"
#include "service/service.h"
#include "svc_jobs/jobs.h"
#include "svc_sessions/sessions.h"
#include "svc_transfers/transfers.h"
#include "testlib/pg.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define I PRId64

static uint64_t seed = 0x9e3779b97f4a7c15;

static uint32_t roll(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static void damage(uint8_t *bytes, size_t *len)
{
    static const uint8_t nasty[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0xa0, 0xc0,
                                    0xc1, 0xc3, 0xc4, 0xc7, 0xca, 0xcb, 0xcf,
                                    0xd3, 0xd8, 0xd9, 0xdb, 0xdd, 0xdf, 0xff};
    for (uint32_t n = 1 + roll(3); n > 0; n--) {
        size_t at = roll((uint32_t)*len);
        switch (roll(4)) {
        case 0:
            bytes[at] = nasty[roll(sizeof(nasty))];
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << roll(8));
            break;
        case 2: /* a piece twice */
            bytes[at] = bytes[roll((uint32_t)*len)];
            break;
        default: /* a byte less, in the middle or at the end */
            memmove(bytes + at, bytes + at + 1, *len - at - 1);
            if (*len > 2)
                --*len;
        }
    }
}

struct target {
    const struct ab_service *service;
    const char *role, *verb;
    int64_t id;
    const char *query, *body;
};

static void pack(const struct target *target, struct ab_buf *out)
{
    struct ab_issues issues = {0};
    char id[32], *body = strdup(target->body);
    snprintf(id, sizeof(id), "%" I, target->id);
    for (char *c = body; *c; c++)
        if (*c == '\'')
            *c = '"';
    const struct ab_http_parts parts = {
        .path_id = id,
        .path_id_len = strlen(id),
        .query = target->query,
        .query_len = strlen(target->query),
        .body = body,
        .body_len = strlen(body),
        .has_body = *body != '\0',
        .content_json = true,
    };
    if (ab_json_request(ab_route_of_verb(target->verb), &parts, out, &issues) < 0)
        fail_msg("%s: %s", target->verb, issues.list.data);
    free(body);
}

static void damaged_requests_are_refused_and_never_the_services_fault(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site),
            job = new_job(tenant, app, "");
    int64_t session = new_session(tenant, site, 0), stranger = new_user(),
            foreign = new_job(stranger, new_app(stranger, new_site(stranger)), "");
    char create[1024], patch[512], app_body[512];
    snprintf(create, sizeof(create),
             "[{'app_id': %" I ", 'workdir': 'a', 'parent_ids': [%" I
             "], 'tags': {'a': 'b'}, 'data': {'x': [1]},"
             " 'retry': {'max_attempts': 2}, 'transfers': {'input': {'location_alias': 'beamline', "
             "'path': '/p'}}},"
             " {'app_id': %" I
             ", 'workdir': 'b', 'launch_params': {'x': 'y'}, 'gpus_per_rank': 0.5}]",
             app, job, app);
    snprintf(patch, sizeof(patch),
             "[{'id': %" I
             ", 'state': 'RUNNING', 'state_timestamp': '2026-01-02T03:04', 'state_data': {'a': 1},"
             " 'num_nodes': 2, 'tags': {'c': 'd'}, 'return_code': null, 'lease': 0, "
             "'serialized_exception': 'x'}]",
             job);
    snprintf(app_body, sizeof(app_body),
             "{'site_id': %" I ", 'name': 'X', 'serialized_class': '', 'source_code': 'y',"
             " 'transfers': {'t': {'required': true, 'direction': 'in', 'local_path': 'l'}}}",
             site);
    const struct target targets[] = {
        {&jobs_service, "abies_jobs", "job.create", 0, "", create},
        {&jobs_service, "abies_jobs", "job.patch", 0, "", patch},
        {&jobs_service, "abies_jobs", "job.list", 0,
         "id=1&tags=a:b&state=READY&limit=3&ordering=-workdir&last_update_after=2026-01-01T00:00&"
         "workdir__contains=x",
         ""},
        {&jobs_service, "abies_jobs", "job.update_where", 0, "state=FAILED&tags=a:b",
         "{'num_nodes': 2, 'data': {'a': 1}}"},
        {&jobs_service, "abies_jobs", "app.create", 0, "", app_body},
        {&jobs_service, "abies_jobs", "site.update", site, "",
         "{'name': 'n', 'transfer_locations': {'a': 'rsync://c'}}"},
        {&jobs_service, "abies_jobs", "event.list", 0,
         "data=a:b&to_state=READY&timestamp_after=2026-01-01T00:00", ""},
        {&sessions_service, "abies_sessions", "session.acquire", session, "",
         "{'max_num_jobs': 3, 'filter_tags': {'a': 'b'}, 'states': ['READY'], 'app_ids': [1], "
         "'max_aggregate_nodes': 2}"},
        {&transfers_service, "abies_transfers", "transfer.patch", 0, "",
         "[{'id': 1, 'state': 'done', 'task_id': 'x', 'transfer_info': {'a': 1}}]"},
    };
    int refused = 0;
    for (size_t t = 0; t < sizeof(targets) / sizeof(targets[0]); t++) {
        AB_AUTO(ab_buf_free) struct ab_buf whole = {0};
        ab_db_t *db = pg_open_as(targets[t].role);
        pack(&targets[t], &whole);
        for (int i = 0; i < 400; i++) {
            AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
            size_t len = whole.len;
            uint8_t *bytes = malloc(len); /* of exactly this size, for the sanitizer */
            memcpy(bytes, whole.data, len);
            damage(bytes, &len);
            int status = ab_service_call(targets[t].service, db, NULL, targets[t].verb, tenant,
                                         NULL, bytes, len, &reply);
            if (status >= 500)
                fail_msg("%s answered %d in round %d", targets[t].verb, status, i);
            refused += status >= 400;
            free(bytes);
        }
        ab_db_close(&db);
    }
    assert_true(refused > 1000);
    assert_string_equal(history_of(foreign), "CREATED>STAGED_IN");
    check_books();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_requests_are_refused_and_never_the_services_fault),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
