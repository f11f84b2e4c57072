/* fake.c - services made of a few handlers */
#include "fake.h"

#include "schema/pack.h"
#include <stdlib.h>
#include <string.h>

static int not_given(struct ab_call *call, struct ab_error *err)
{
    return ab_fail(err, AB_EINTERNAL, "this test gives no `%s`", call->route->verb);
}

static struct ab_verb pick(const struct ab_verb *verbs, const char *name)
{
    for (; verbs->name; verbs++)
        if (strcmp(verbs->name, name) == 0)
            return *verbs;
    return (struct ab_verb){.name = name, .handler = not_given};
}

void fake_open(struct ab_service *service, const char *name, const struct ab_verb *verbs)
{
    struct ab_verb *all = calloc(ab_n_routes + 1, sizeof(*all));
    size_t n = 0;
    assert_non_null(all);
    for (size_t i = 0; i < ab_n_routes; i++)
        if (strcmp(ab_routes[i].service, name) == 0)
            all[n++] = pick(verbs, ab_routes[i].verb);
    service->name = name;
    service->verbs = all;
}

void fake_close(struct ab_service *service)
{
    free((void *)(uintptr_t)service->verbs);
    service->verbs = NULL;
}

const char *fake_json(const struct ab_buf *reply)
{
    static struct ab_buf text;
    struct ab_walk walk;
    ab_buf_clear(&text);
    ab_walk_start(&walk, reply->data, reply->len);
    for (int done = reply->len == 0; !done;) {
        char piece[4096], *end = piece;
        done = ab_walk_json(&walk, &end, piece + sizeof(piece));
        assert_true(done >= 0);
        ab_buf_add(&text, piece, (size_t)(end - piece));
    }
    ab_buf_str(&text, "");
    return text.data ? text.data : "";
}

const struct ab_value *fake_tree(ab_arena_t *arena, const struct ab_buf *reply)
{
    struct ab_error err = {0};
    const char *text = fake_json(reply);
    const struct ab_value *tree = ab_value_parse(arena, text, strlen(text), &err);
    if (!tree)
        fail_msg("%s: %s", err.text, text);
    return tree;
}
