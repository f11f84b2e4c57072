/* test_openapi.c - the OpenAPI document is JSON, complete, and docs/openapi.json is not stale
 *
 *     test_openapi --write    writes docs/openapi.json
 */
#include "support.h"

#include "schema/openapi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "docs/openapi.json"

static struct ab_buf text;
static ab_arena_t *arena;
static const struct ab_value *doc;

static int set_up(void **state)
{
    (void)state;
    struct ab_error err = {0};
    arena = ab_arena_new();
    ab_openapi(&text, AB_VERSION);
    doc = ab_value_parse(arena, text.data, text.len, &err);
    if (!doc)
        print_error("%s\n", err.text);
    return doc ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ab_arena_destroy(&arena);
    ab_buf_free(&text);
    return 0;
}

/* "#/a/b/c" */
static const struct ab_value *resolve(const char *ref)
{
    const struct ab_value *at = doc;
    char part[128];
    for (ref += 2; at && *ref;) {
        size_t n = strcspn(ref, "/");
        snprintf(part, sizeof(part), "%.*s", (int)n, ref);
        at = ab_value_get(at, part);
        ref += n + (ref[n] == '/');
    }
    return at;
}

static void check_refs(const struct ab_value *v, int *n)
{
    if (v->type != AB_V_MAP && v->type != AB_V_LIST)
        return;
    for (size_t i = 0; i < v->n; i++) {
        if (v->type == AB_V_MAP && strcmp(v->keys[i], "$ref") == 0) {
            if (!resolve(ab_value_text(&v->items[i], "")))
                fail_msg("%s is not there", v->items[i].s);
            ++*n;
        }
        check_refs(&v->items[i], n);
    }
}

static void every_reference_has_its_place(void **state)
{
    (void)state;
    int n = 0;
    check_refs(doc, &n);
    assert_true(n > 100);
}

static void every_route_is_an_operation(void **state)
{
    (void)state;
    const struct ab_value *paths = ab_value_get(doc, "paths");
    size_t operations = 0, routes = 0;
    for (size_t i = 0; i < paths->n; i++)
        operations += paths->items[i].n;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        char method[16] = "";
        if (!route->method)
            continue;
        routes++;
        for (size_t k = 0; route->method[k]; k++)
            method[k] = (char)(route->method[k] | 0x20);
        const struct ab_value *op = ab_value_get(ab_value_get(paths, route->path), method);
        assert_string_equal(ab_value_text(ab_value_get(op, "operationId"), ""), route->verb);
        char status[16];
        snprintf(status, sizeof(status), "%d", route->status);
        assert_non_null(ab_value_get(ab_value_get(op, "responses"), status));
        assert_true(!!ab_value_get(op, "requestBody") == !!route->body);
        assert_true(!!ab_value_get(op, "security") == !(route->scopes & AB_SCOPE_PUBLIC));
        size_t parameters = !!strstr(route->path, "{id}") + route->mutates
                            + (route->query ? (size_t)route->query->n_fields : 0);
        assert_int_equal(ab_value_get(op, "parameters")->n, parameters);
    }
    assert_int_equal(operations, routes);
}

static void a_schema_says_what_is_required(void **state)
{
    (void)state;
    const struct ab_value *create = resolve("#/components/schemas/JobCreate");
    const struct ab_value *required = ab_value_get(create, "required");
    assert_int_equal(required->n, 2);
    assert_string_equal(required->items[0].s, "workdir");
    assert_string_equal(required->items[1].s, "app_id");
    assert_null(ab_value_get(ab_value_get(create, "properties"), "state"));
    assert_non_null(ab_value_get(
        ab_value_get(resolve("#/components/schemas/JobPatch"), "properties"), "state"));
    assert_string_equal(
        ab_value_get(resolve("#/components/schemas/JobPatch"), "required")->items[0].s, "id");
    assert_int_equal(
        ab_value_int(
            ab_value_get(ab_value_get(ab_value_get(create, "properties"), "num_nodes"), "default"),
            0),
        1);
}

static void the_document_in_docs_is_not_stale(void **state)
{
    (void)state;
    FILE *file = fopen(FILE_NAME, "re");
    if (!file)
        fail_msg(FILE_NAME " is not there: run test_openapi --write");
    char *stored = calloc(1, text.len + 2);
    size_t n = fread(stored, 1, text.len + 1, file);
    fclose(file);
    bool same = n == text.len && memcmp(stored, text.data, n) == 0;
    free(stored);
    if (!same)
        fail_msg(FILE_NAME " is stale: run test_openapi --write");
}

static int write_document(void)
{
    ab_openapi(&text, AB_VERSION);
    FILE *file = fopen(FILE_NAME, "we");
    bool ok = file && fwrite(text.data, 1, text.len, file) == text.len;
    ok = file && fclose(file) == 0 && ok;
    ab_buf_free(&text);
    if (!ok)
        perror(FILE_NAME);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reference_has_its_place),
        cmocka_unit_test(every_route_is_an_operation),
        cmocka_unit_test(a_schema_says_what_is_required),
        cmocka_unit_test(the_document_in_docs_is_not_stale),
    };
    if (argc > 1 && strcmp(argv[1], "--write") == 0)
        return write_document();
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
