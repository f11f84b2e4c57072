/* test_golden.c - bytes that an older program wrote are still read, and mean what they meant
 *
 * tests/golden/VERB.msgpack is a request as it once went over the bus, VERB.json what it says. The
 * files are never written again: a change that cannot read them breaks updates of a running centre.
 *
 *     test_golden --write    makes files for verbs that have none yet
 */
#include "sample.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden/"

static int read_file(const char *verb, const char *ending, struct ab_buf *out)
{
    char path[256];
    snprintf(path, sizeof(path), FOLDER "%s%s", verb, ending);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof(piece), file)) > 0;)
        ab_buf_add(out, piece, n);
    return fclose(file);
}

static void write_file(const char *verb, const char *ending, const char *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof(path), FOLDER "%s%s", verb, ending);
    FILE *file = fopen(path, "wxe");
    if (!file && errno == EEXIST)
        return;
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* The request as structs, packed again: as JSON text. */
static char *meaning_of(const struct ab_route *route, const struct ab_buf *frame)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf again = {0};
    struct ab_request r;
    struct ab_error err = {0};
    assert_true(ab_wire_ok(frame->data, frame->len));
    if (ab_unpack_request(route, frame->data, frame->len, arena, &r, &err) < 0)
        fail_msg("%s", err.text);
    ab_pack_request(&again, route, r.id, r.query, r.body.v, r.body.n);
    return json_of(again.data, again.len);
}

static void write_missing(void)
{
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        AB_AUTO(ab_buf_free) struct ab_buf body = {0}, query = {0}, packed = {0};
        if (route->body)
            sample_body(&body, route);
        if (route->query)
            sample_query(&query, route->query);
        packed_of(&(struct asked){.verb = route->verb,
                                  .id = "70000",
                                  .query = query.data,
                                  .body = body.data,
                                  .type = route->body_form == AB_BODY_FORM ? "form" : NULL},
                  &packed);
        char *text = meaning_of(route, &packed);
        write_file(route->verb, ".msgpack", packed.data, packed.len);
        write_file(route->verb, ".json", text, strlen(text));
        free(text);
    }
}

static void old_requests_are_read_and_mean_the_same(void **state)
{
    (void)state;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".msgpack") != 0)
            continue;
        *dot = '\0';
        AB_AUTO(ab_buf_free) struct ab_buf frame = {0}, expected = {0};
        const struct ab_route *route = ab_route_of_verb(entry->d_name);
        assert_non_null(route);
        assert_int_equal(read_file(route->verb, ".msgpack", &frame), 0);
        assert_int_equal(read_file(route->verb, ".json", &expected), 0);
        char *text = meaning_of(route, &frame);
        assert_string_equal(text, expected.data);
        free(text);
        n++;
    }
    closedir(folder);
    assert_true(n > 0);
}

static void every_verb_has_its_golden_request(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
        if (read_file(ab_routes[i].verb, ".msgpack", &frame) != 0)
            fail_msg("%s has no file below " FOLDER ": run test_golden --write", ab_routes[i].verb);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_requests_are_read_and_mean_the_same),
        cmocka_unit_test(every_verb_has_its_golden_request),
    };
    if (argc > 1 && strcmp(argv[1], "--write") == 0)
        write_missing();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
