/* order.c - packing, and reading what may come from elsewhere with every length checked */
#include "order.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "schema/pack.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_WORDS = 100000,
    MOST_CPUS = 4096
};

static void pack_words(struct ab_buf *out, const char *const *words)
{
    uint32_t n = 0;
    while (words && words[n])
        n++;
    ab_pack_array(out, n);
    for (uint32_t i = 0; i < n; i++)
        ab_pack_str(out, words[i]);
}

void order_pack_run(struct ab_buf *out, const struct run_spec *spec)
{
    ab_pack_array(out, 6);
    pack_words(out, spec->argv);
    pack_words(out, spec->env);
    ab_pack_str(out, spec->cwd);
    ab_pack_str(out, spec->output);
    ab_pack_int(out, spec->limit_ms);
    ab_pack_array(out, (uint32_t)spec->n_cpus);
    for (size_t i = 0; i < spec->n_cpus; i++)
        ab_pack_int(out, spec->cpus[i]);
}

static const char **read_words(struct ab_cursor *at, ab_arena_t *arena)
{
    uint32_t n = 0;
    if (ab_cursor_array(at, &n) < 0 || n > MOST_WORDS)
        return NULL;
    const char **words = ab_alloc(arena, n + 1, sizeof(char *));
    for (uint32_t i = 0; i < n; i++) {
        const char *s = NULL;
        size_t len = 0;
        if (ab_cursor_str(at, &s, &len) < 0)
            return NULL;
        words[i] = ab_strndup(arena, s, len);
    }
    return words;
}

static int read_text(struct ab_cursor *at, ab_arena_t *arena, const char **out)
{
    const char *s = NULL;
    size_t len = 0;
    if (ab_cursor_str(at, &s, &len) < 0)
        return -1;
    *out = ab_strndup(arena, s, len);
    return 0;
}

static int read_cpus(struct ab_cursor *at, ab_arena_t *arena, struct run_spec *out)
{
    uint32_t n = 0;
    if (ab_cursor_array(at, &n) < 0 || n > MOST_CPUS)
        return -1;
    int *cpus = ab_alloc(arena, n + 1, sizeof(int));
    for (uint32_t i = 0; i < n; i++) {
        int64_t v = 0;
        if (ab_cursor_int(at, &v) < 0 || v < 0 || v > 1 << 20)
            return -1;
        cpus[i] = (int)v;
    }
    out->cpus = n ? cpus : NULL;
    out->n_cpus = n;
    return 0;
}

int order_unpack_run(const void *body, size_t len, int64_t job, ab_arena_t *arena,
                     struct run_spec *out, struct ab_error *err)
{
    struct ab_cursor at = ab_cursor(body, len);
    uint32_t n = 0;
    *out = (struct run_spec){.job = job};
    if (ab_cursor_array(&at, &n) < 0 || n < 6 || !(out->argv = read_words(&at, arena))
        || !out->argv[0] || !(out->env = read_words(&at, arena))
        || read_text(&at, arena, &out->cwd) < 0 || read_text(&at, arena, &out->output) < 0
        || ab_cursor_int(&at, &out->limit_ms) < 0 || read_cpus(&at, arena, out) < 0)
        return ab_fail(err, AB_EINVAL, "the order of job %lld cannot be read", (long long)job);
    return 0;
}

void order_pack_exit(struct ab_buf *out, const struct run_exit *e)
{
    ab_pack_array(out, 3);
    ab_pack_int(out, e->end);
    ab_pack_int(out, e->code);
    ab_pack_str(out, e->tail ? e->tail : "");
}

int order_unpack_exit(const void *body, size_t len, int64_t job, ab_arena_t *arena,
                      struct run_exit *out)
{
    struct ab_cursor at = ab_cursor(body, len);
    uint32_t n = 0;
    int64_t end = 0, code = 0;
    *out = (struct run_exit){.job = job};
    if (ab_cursor_array(&at, &n) < 0 || n < 3 || ab_cursor_int(&at, &end) < 0
        || ab_cursor_int(&at, &code) < 0 || read_text(&at, arena, &out->tail) < 0 || end < RUN_ENDED
        || end > RUN_KILLED || code < INT32_MIN || code > INT32_MAX)
        return -1;
    out->end = (enum run_end)end;
    out->code = (int)code;
    return 0;
}

void order_pack_figures(struct ab_buf *out, const struct order_figures *figures)
{
    ab_pack_array(out, FIGURES);
    for (size_t i = 0; i < FIGURES; i++)
        ab_pack_int(out, figures->v[i]);
}

int order_unpack_figures(const void *body, size_t len, struct order_figures *out)
{
    struct ab_cursor at = ab_cursor(body, len);
    uint32_t n = 0;
    if (ab_cursor_array(&at, &n) < 0 || n != FIGURES)
        return -1;
    for (size_t i = 0; i < FIGURES; i++)
        if (ab_cursor_int(&at, &out->v[i]) < 0 || out->v[i] < 0)
            return -1;
    return 0;
}

int order_keys_write(const char *path, const struct order_keys *keys, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    ab_buf_printf(&text, "%s\n%s\n%s\n%s\n", keys->endpoint, keys->server, keys->public_key,
                  keys->secret_key);
    return ab_file_write(path, text.data, text.len, 0600, err);
}

int order_keys_read(const char *path, struct order_keys *keys, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    if (ab_file_private(path, err) < 0 || ab_file_read(path, 4096, &text, err) < 0)
        return -1;
    ab_buf_char(&text, '\0');
    if (sscanf(text.data, "%255s %40s %40s %40s", keys->endpoint, keys->server, keys->public_key,
               keys->secret_key)
        != 4)
        return ab_fail(err, AB_EINVAL, "%s is not the key file of a launcher", path);
    return 0;
}
