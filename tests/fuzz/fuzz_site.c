/* fuzz_site.c - what a site reads back or is told: messages of modules, outbox records, task files,
 * URLs
 *
 * The first byte picks. What was accepted is written again and must be read as the same.
 */
#include "fuzz.h"

#include "base/str.h"
#include "site/outbox_file.h"
#include "site/wire.h"
#include "sweep/sweep.h"
#include "transfer/transfer.h"
#include <string.h>

static void check_call(const char *bytes, size_t len)
{
    struct wire_text method, path, body, trace;
    int64_t timeout, again;

    if (wire_read_call(bytes, len, &method, &path, &timeout, &body, &trace) < 0)
        return;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf out = {0}, copy = {0};
    struct wire_text m, p, b, t;
    if (memchr(method.p, '\0', method.n) || memchr(path.p, '\0', path.n)
        || memchr(trace.p, '\0', trace.n))
        return;
    ab_buf_add(&copy, body.p, body.n);
    wire_pack_call(&out, ab_strndup(arena, method.p, method.n), ab_strndup(arena, path.p, path.n),
                   timeout, body.p ? &copy : NULL, ab_strndup(arena, trace.p, trace.n));
    FUZZ_CHECK(wire_read_call(out.data, out.len, &m, &p, &again, &b, &t) == 0);
    FUZZ_CHECK(again == timeout && m.n == method.n && p.n == path.n && b.n == body.n
               && t.n == trace.n);
}

static void check_reply(const char *bytes, size_t len)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct ab_error err = {0};
    int status;

    if (wire_read_reply(bytes, len, &status, &err, &body) == 0)
        FUZZ_CHECK(status >= -1 && status <= 999
                   && (status < 0 || status >= 300) == (err.code != 0));
}

static int count(void *arg, const char *target, const char *json, size_t len, struct ab_error *err)
{
    (void)json, (void)len, (void)err;
    FUZZ_CHECK(strlen(target) < 32);
    ++*(size_t *)arg;
    return 0;
}

static void check_put(const char *bytes, size_t len)
{
    size_t n = 0;
    struct ab_error err = {0};

    if (wire_read_put(bytes, len, count, &n, &err) < 0)
        FUZZ_CHECK(*err.text);
    FUZZ_CHECK(n <= len);
}

static void check_records(const char *bytes, size_t len)
{
    struct outbox_reader file = {(const unsigned char *)bytes, (const unsigned char *)bytes + len,
                                 0},
                         payload;
    size_t read = 0;

    while (outbox_record(&file, &payload)) {
        AB_AUTO(ab_buf_free) struct ab_buf copy = {0}, again = {0};
        size_t n = (size_t)(payload.end - payload.at);
        FUZZ_CHECK(n > 0 && n <= len);
        ab_buf_add(&copy, payload.at, n);
        outbox_frame(&again, &copy);
        FUZZ_CHECK(again.len == n + 8 && memcmp(again.data, bytes + read, again.len) == 0);
        read += again.len;
    }
    FUZZ_CHECK(read <= len);
}

static void check_task(const char *text, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct transfer_task task = {.arena = arena}, again = {.arena = arena};
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};
    struct ab_error err = {0};

    if (transfer_task_read(&task, text, len, &err) < 0) {
        FUZZ_CHECK(*err.text);
        return;
    }
    transfer_task_json(&task, &json);
    FUZZ_CHECK(transfer_task_read(&again, json.data, json.len, &err) == 0 && again.n == task.n);
    for (size_t i = 0; i < task.n; i++) {
        const char *remote = transfer_remote(&task.items[i], NULL);
        FUZZ_CHECK(!remote || ab_path_stays_below(remote));
    }
}

/* Host and user end in an ssh command line. */
static void check_url(const char *text, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct transfer_url url;

    if (transfer_url_parse(ab_strndup(arena, text, strnlen(text, len)), arena, &url, NULL) < 0)
        return;
    FUZZ_CHECK(*url.host != '-' && !strpbrk(url.host, " '\"$`;&|<>()\\\n"));
    FUZZ_CHECK(!url.user || (*url.user != '-' && !strpbrk(url.user, " '\"$`;&|<>()\\\n")));
    FUZZ_CHECK(*url.path == '/' && !strstr(url.path, "/../"));
}

static void check_pattern(const char *text, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *all = ab_strndup(arena, text, strnlen(text, len)), *line = strchr(all, '\n');

    if (line && line[1]) {
        FUZZ_CHECK(sweep_match("**", line + 1));
        (void)sweep_match(ab_strndup(arena, all, (size_t)(line - all)), line + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1 << 16)
        return 0;
    static const struct {
        char letter;
        void (*check)(const char *bytes, size_t len);
    } kinds[] = {{'c', check_call}, {'r', check_reply}, {'p', check_put},    {'o', check_records},
                 {'t', check_task}, {'u', check_url},   {'m', check_pattern}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (data[0] == kinds[i].letter)
            kinds[i].check((const char *)data + 1, size - 1);
    return 0;
}
