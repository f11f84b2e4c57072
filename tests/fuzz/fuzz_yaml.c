/* fuzz_yaml.c - YAML that people write, and apps made of it: what is read can be written and read
 * again
 *
 * The first byte picks: a document, the text of one scalar, or an app definition.
 */
#include "fuzz.h"

#include "app/app.h"
#include "base/str.h"
#include "yaml/yaml.h"
#include <string.h>
#include <unistd.h>

static void put_indent(struct ab_buf *out, int depth)
{
    for (int i = 0; i < depth; i++)
        ab_buf_str(out, "  ");
}

/* In block style; keys and texts as scalars. */
static void write_node(struct ab_buf *out, const struct ab_yaml *node, int depth)
{
    if (node->type == AB_Y_NULL) {
        ab_buf_str(out, " null\n");
    } else if (node->type == AB_Y_TEXT) {
        ab_buf_char(out, ' ');
        ab_yaml_scalar(out, node->text);
        ab_buf_char(out, '\n');
    } else if (node->n == 0) {
        ab_buf_str(out, node->type == AB_Y_MAP ? " {}\n" : " []\n");
    } else {
        ab_buf_char(out, '\n');
        for (size_t i = 0; i < node->n; i++) {
            put_indent(out, depth);
            if (node->type == AB_Y_MAP) {
                ab_yaml_scalar(out, node->keys[i]);
                ab_buf_char(out, ':');
            } else {
                ab_buf_char(out, '-');
            }
            write_node(out, &node->items[i], depth + 1);
        }
    }
}

static bool same(const struct ab_yaml *a, const struct ab_yaml *b)
{
    if (a->type != b->type || a->n != b->n)
        return false;
    if (a->type == AB_Y_TEXT && strcmp(a->text, b->text) != 0)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if ((a->type == AB_Y_MAP && strcmp(a->keys[i], b->keys[i]) != 0)
            || !same(&a->items[i], &b->items[i]))
            return false;
    return true;
}

static void check_document(const char *text, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf again = {0};
    struct ab_error err = {0};
    const struct ab_yaml *root = ab_yaml_parse(arena, "f.yml", text, len, &err);
    if (!root) {
        FUZZ_CHECK(err.code && strncmp(err.text, "f.yml", 5) == 0);
        return;
    }
    write_node(&again, root, 0);
    if (again.len > 256 * 1024)
        return; /* indented it is larger than what is read */
    const struct ab_yaml *second = ab_yaml_parse(arena, "f.yml", again.data, again.len, &err);
    FUZZ_CHECK(second && same(root, second));
}

static void check_scalar(const char *text, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct ab_error err;
    if (memchr(text, '\0', len) || !ab_utf8_ok(text, len) || len > 4096)
        return;
    const char *value = ab_strndup(arena, text, len);
    ab_buf_str(&out, "v: ");
    ab_yaml_scalar(&out, value);
    ab_buf_char(&out, '\n');
    const struct ab_yaml *root = ab_yaml_parse(arena, "f", out.data, out.len, &err);
    FUZZ_CHECK(root && root->n == 1 && root->items[0].type == AB_Y_TEXT);
    FUZZ_CHECK(strcmp(root->items[0].text, value) == 0);
}

/* The number of words of a command does not depend on what a job brings. */
static void check_command(const struct ab_app *app)
{
    static const char *const values[] = {"plain", "a b;c $(d) `e` 'f' \"g\" *"};
    size_t words[2] = {0, 0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    for (size_t v = 0; v < 2; v++) {
        AB_AUTO(ab_buf_free) struct ab_buf text = {0};
        struct ab_error err;
        ab_buf_char(&text, '{');
        for (size_t i = 0; i < app->n_params; i++) {
            ab_buf_str(&text, i ? "," : "");
            ab_buf_json_str(&text, app->params[i].name, strlen(app->params[i].name));
            ab_buf_char(&text, ':');
            ab_buf_json_str(&text, values[v], strlen(values[v]));
        }
        ab_buf_char(&text, '}');
        const struct ab_value *parameters = ab_value_parse(arena, text.data, text.len, &err);
        FUZZ_CHECK(parameters);
        const char **argv = ab_app_command(app, parameters, arena, &err);
        if (!argv)
            return; /* of another type, or refused */
        while (argv[words[v]])
            words[v]++;
    }
    FUZZ_CHECK(words[0] == words[1]);
}

static void check_app(const char *text, size_t len)
{
    static char folder[] = "/tmp/abies-fuzz-XXXXXX", path[64];
    if (!*path) {
        FUZZ_CHECK(mkdtemp(folder));
        snprintf(path, sizeof(path), "%s/a.yml", folder);
    }
    FILE *file = fopen(path, "we");
    FUZZ_CHECK(file);
    fwrite(text, 1, len, file);
    fclose(file);
    struct ab_error err = {0};
    AB_AUTO(ab_app_destroy) struct ab_app *app = ab_app_load(path, &err);
    unlink(path);
    if (!app) {
        FUZZ_CHECK(err.code && *err.text);
        return;
    }
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    ab_app_json(app, 1, &json);
    FUZZ_CHECK(ab_value_parse(arena, json.data, json.len, &err));
    check_command(app);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    if (data[0] == 's')
        check_scalar(text, size - 1);
    else if (data[0] == 'a')
        check_app(text, size - 1);
    else
        check_document(text, size - 1);
    return 0;
}
