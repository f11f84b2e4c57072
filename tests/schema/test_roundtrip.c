/* test_roundtrip.c - every message of every route survives JSON, msgpack and structs */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

struct trip {
    const struct ab_route *route;
    ab_arena_t *arena;
    struct ab_request request;
};

/* From the client's text to the struct that a handler sees. */
static void go_in(struct trip *trip, const struct asked *asked, struct ab_buf *packed)
{
    struct ab_error err = {0};
    packed_of(asked, packed);
    if (!ab_wire_ok(packed->data, packed->len))
        fail_msg("%s: its frame is not well formed", asked->verb);
    if (ab_unpack_request(trip->route, packed->data, packed->len, trip->arena, &trip->request, &err)
        < 0)
        fail_msg("%s: %s", asked->verb, err.text);
}

/* The same frame again, from the struct. */
static void check_packed_again(const struct trip *trip, const struct ab_buf *packed)
{
    AB_AUTO(ab_buf_free) struct ab_buf again = {0};
    const struct ab_request *r = &trip->request;
    ab_pack_request(&again, trip->route, r->id, r->query, r->body.v, r->body.n);
    char *first = json_of(packed->data, packed->len), *second = json_of(again.data, again.len);
    assert_string_equal(first, second);
    free(first);
    free(second);
}

/* What an API client would send for this struct means the same. */
static void check_written_again(const struct trip *trip, const struct asked *asked,
                                const struct ab_buf *packed)
{
    const struct ab_route *route = trip->route;
    AB_AUTO(ab_buf_free) struct ab_buf text = {0}, again = {0};
    if (!route->body || route->body_form == AB_BODY_FORM)
        return;
    if (route->body_form == AB_BODY_LIST)
        ab_buf_char(&text, '[');
    ab_json_write(&text, route->body, route->role, trip->request.body.v);
    if (route->body_form == AB_BODY_LIST)
        ab_buf_char(&text, ']');
    struct asked second = *asked;
    second.body = text.data;
    packed_of(&second, &again);
    assert_int_equal(again.len, packed->len);
    assert_memory_equal(again.data, packed->data, again.len);
}

static void check_every_field_is_there(const struct trip *trip)
{
    const struct ab_route *route = trip->route;
    const struct ab_head *head = trip->request.body.v;
    for (int i = 0; route->body && i < route->body->n_fields; i++)
        if (route->body->fields[i].flags & route->role)
            assert_true(head->has >> i & 1);
    head = trip->request.query;
    for (int i = 0; route->query && i < route->query->n_fields; i++)
        assert_true(head->has >> i & 1);
}

static void every_request_survives_the_way_in_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        AB_AUTO(ab_buf_free) struct ab_buf body = {0}, query = {0}, packed = {0};
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        struct trip trip = {.route = route, .arena = arena};
        if (route->body)
            sample_body(&body, route);
        if (route->query)
            sample_query(&query, route->query);
        struct asked asked = {.verb = route->verb,
                              .id = "70000",
                              .query = query.data,
                              .body = body.data,
                              .type = route->body_form == AB_BODY_FORM ? "form" : NULL};
        go_in(&trip, &asked, &packed);
        check_every_field_is_there(&trip);
        check_packed_again(&trip, &packed);
        check_written_again(&trip, &asked, &packed);
    }
}

/* A reply of each resource: every AB_OUT field once filled (by way of the request's text), once
 * null. */
static void every_reply_is_read_by_clients(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        if (!route->reply)
            continue;
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        AB_AUTO(ab_buf_free) struct ab_buf body = {0}, packed = {0}, again = {0};
        struct ab_route out = *route; /* the sample writes the fields of a role */
        out.body = route->reply;
        out.body_form = AB_BODY;
        out.role = AB_OUT;
        sample_body(&body, &out);
        struct ab_list list;
        int64_t count;
        struct ab_error err = {0};
        assert_int_equal(
            ab_json_read(route->reply, body.data, body.len, arena, &list, &count, &err), 0);
        assert_int_equal(list.n, 1);
        const struct ab_head *head = list.v;
        for (int f = 0; f < route->reply->n_fields; f++)
            assert_true((head->has >> f & 1) == !!(route->reply->fields[f].flags & AB_OUT));
        ab_pack_item(&packed, route->reply, AB_OUT, list.v);
        assert_true(ab_wire_ok(packed.data, packed.len));
        char *text = json_of(packed.data, packed.len);
        assert_int_equal(ab_json_read(route->reply, text, strlen(text), arena, &list, &count, &err),
                         0);
        ab_pack_item(&again, route->reply, AB_OUT, list.v);
        assert_int_equal(again.len, packed.len);
        assert_memory_equal(again.data, packed.data, packed.len);
        free(text);

        struct ab_cursor at = ab_cursor(packed.data, packed.len);
        void *item = ab_alloc(arena, 1, route->reply->size);
        assert_int_equal(ab_unpack_item(&at, route->reply, AB_OUT, arena, item, &err), 0);
        ab_buf_clear(&again);
        ab_pack_item(&again, route->reply, AB_OUT, item);
        assert_memory_equal(again.data, packed.data, packed.len);

        void *empty = ab_alloc(arena, 1, route->reply->size),
             *nulls = ab_alloc(arena, 1, route->reply->size);
        ab_buf_clear(&packed);
        ab_pack_item(&packed, route->reply, AB_OUT, empty); /* all nil: a reply may hold that */
        at = ab_cursor(packed.data, packed.len);
        assert_int_equal(ab_unpack_item(&at, route->reply, AB_OUT, arena, nulls, &err), 0);
        assert_true(((struct ab_head *)nulls)->null == head->has);
    }
}

static void an_absent_field_has_its_default_and_says_that_it_is_absent(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct trip trip = {.route = ab_route_of_verb("job.create"), .arena = arena};
    go_in(&trip,
          &(struct asked){.verb = "job.create", .body = "[{\"workdir\":\"a\",\"app_id\":1}]"},
          &packed);
    const struct job *job = trip.request.body.v;
    assert_true(AB_HAS(job, job, workdir));
    assert_false(AB_HAS(job, job, num_nodes));
    assert_false(AB_HAS(job, job, tags));
    assert_int_equal(job->num_nodes, 1);
    assert_int_equal(job->wall_time_min, 0);
    assert_true(job->gpus_per_rank == 0);
    assert_string_equal(job->serialized_parameters, "");
    assert_int_equal(job->tags.n, 2);
    assert_memory_equal(job->tags.p, "{}", 2);
    assert_int_equal(job->parent_ids.n, 0);
    assert_int_equal(job->transfers.n, 0);
    assert_false(AB_HAS(job, job, return_code));

    ab_buf_clear(&packed);
    trip.route = ab_route_of_verb("session.acquire");
    go_in(&trip,
          &(struct asked){.verb = "session.acquire",
                          .id = "1",
                          .body = "{\"max_num_jobs\":5,\"filter_tags\":{}}"},
          &packed);
    const struct session_acquire *acquire = trip.request.body.v;
    assert_int_equal(acquire->states.n, 2);
    assert_int_equal(acquire->states.v[0], AB_JOB_PREPROCESSED);
    assert_int_equal(acquire->states.v[1], AB_JOB_RESTART_READY);

    ab_buf_clear(&packed);
    trip.route = ab_route_of_verb("job.list");
    go_in(&trip, &(struct asked){.verb = "job.list"}, &packed);
    const struct job_query *query = trip.request.query;
    assert_int_equal(query->limit, 100000);
    assert_int_equal(query->offset, 0);
    assert_false(AB_HAS(job_query, query, limit));
}

static void an_empty_list_of_states_is_not_the_default(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct trip trip = {.route = ab_route_of_verb("session.acquire"), .arena = arena};
    go_in(&trip,
          &(struct asked){.verb = "session.acquire",
                          .id = "1",
                          .body = "{\"max_num_jobs\":5,\"filter_tags\":{},\"states\":[]}"},
          &packed);
    const struct session_acquire *acquire = trip.request.body.v;
    assert_true(AB_HAS(session_acquire, acquire, states));
    assert_int_equal(acquire->states.n, 0);
}

static void an_update_tells_absent_null_and_value_apart(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct trip trip = {.route = ab_route_of_verb("job.patch"), .arena = arena};
    go_in(&trip,
          &(struct asked){
              .verb = "job.patch",
              .body = "[{\"id\":1},{\"id\":2,\"return_code\":null},{\"id\":3,\"return_code\":0}]"},
          &packed);
    const struct job *jobs = trip.request.body.v;
    assert_int_equal(trip.request.body.n, 3);
    assert_false(AB_HAS(job, &jobs[0], return_code));
    assert_true(AB_HAS(job, &jobs[1], return_code) && AB_IS_NULL(job, &jobs[1], return_code));
    assert_true(AB_HAS(job, &jobs[2], return_code) && !AB_IS_NULL(job, &jobs[2], return_code));
    assert_int_equal(jobs[2].id, 3);
}

static void a_map_of_objects_becomes_a_list_with_keys(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct trip trip = {.route = ab_route_of_verb("job.create"), .arena = arena};
    go_in(&trip,
          &(struct asked){.verb = "job.create",
                          .body = "[{\"workdir\":\"a\",\"app_id\":1,\"transfers\":{\"x\":{"
                                  "\"location_alias\":\"l\",\"path\":\"/1\"},"
                                  "\"y\":{\"location_alias\":\"m\",\"path\":\"/"
                                  "2\"},\"x\":{\"location_alias\":\"n\",\"path\":\"/3\"}}}]"},
          &packed);
    const struct job *job = trip.request.body.v;
    const struct job_transfer *items = job->transfers.v;
    assert_int_equal(job->transfers.n, 2); /* of members with the same name the last one counts */
    assert_string_equal(items[0].key, "y");
    assert_string_equal(items[0].path, "/2");
    assert_string_equal(items[1].key, "x");
    assert_string_equal(items[1].location_alias, "n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_survives_the_way_in_and_back),
        cmocka_unit_test(every_reply_is_read_by_clients),
        cmocka_unit_test(an_absent_field_has_its_default_and_says_that_it_is_absent),
        cmocka_unit_test(an_empty_list_of_states_is_not_the_default),
        cmocka_unit_test(an_update_tells_absent_null_and_value_apart),
        cmocka_unit_test(a_map_of_objects_becomes_a_list_with_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
