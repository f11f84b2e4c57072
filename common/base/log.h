/* log.h - structured lines on stderr: one line, one event (logfmt)
 *
 *     ab_log(AB_INFO, "lease.taken", AB_KV("session", id), AB_KV("jobs", n));
 *     ts=2026-03-01T12:00:00.123Z level=info svc=sessions req=7f3a event=lease.taken session=7 jobs=3
 *
 * The event name never changes. AB_KV picks the type. Secrets never have a key. Thread safe; a line
 * is one write(). A line is cut at 4 kB.
 */
#ifndef AB_LOG_H
#define AB_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ab_level {
    AB_DEBUG,
    AB_INFO,
    AB_WARN,
    AB_ERROR
};

struct ab_kv {
    const char *key;
    enum {
        AB_KV_INT,
        AB_KV_UINT,
        AB_KV_REAL,
        AB_KV_TEXT,
        AB_KV_BOOL
    } type;
    union {
        int64_t i;
        uint64_t u;
        double f;
        const char *s;
        bool b;
    } value;
};

static inline struct ab_kv ab_kv_int(const char *key, int64_t v)
{
    return (struct ab_kv){key, AB_KV_INT, {.i = v}};
}
static inline struct ab_kv ab_kv_uint(const char *key, uint64_t v)
{
    return (struct ab_kv){key, AB_KV_UINT, {.u = v}};
}
static inline struct ab_kv ab_kv_real(const char *key, double v)
{
    return (struct ab_kv){key, AB_KV_REAL, {.f = v}};
}
static inline struct ab_kv ab_kv_bool(const char *key, bool v)
{
    return (struct ab_kv){key, AB_KV_BOOL, {.b = v}};
}
static inline struct ab_kv ab_kv_text(const char *key, const char *v)
{
    return (struct ab_kv){key, AB_KV_TEXT, {.s = v}};
}

#define AB_KV(key, v)                                                                              \
    _Generic((v),                                                                                  \
        bool: ab_kv_bool, float: ab_kv_real, double: ab_kv_real,                                   \
        unsigned int: ab_kv_uint, unsigned long: ab_kv_uint, unsigned long long: ab_kv_uint,       \
        unsigned short: ab_kv_uint, unsigned char: ab_kv_uint,                                     \
        char *: ab_kv_text, const char *: ab_kv_text,                                              \
        default: ab_kv_int)(key, v)

/* Once at start: who writes (svc=, inst=), and from which level on. */
void ab_log_open(const char *service, const char *instance, enum ab_level least);
enum ab_level ab_log_level(void);

/* The request this thread works on (req=); NULL for none. Borrowed until the next call. */
void ab_log_request(const char *request_id);
/* And the trace that it belongs to (trace=; trace.h); the same rules. */
void ab_log_trace(const char *trace_id);
const char *ab_log_current_trace(void);

#define ab_log(level, event, ...)                                                                  \
    do {                                                                                           \
        if ((level) >= ab_log_level()) {                                                           \
            const struct ab_kv ab_kvs[] = {ab_kv_text("event", event), ##__VA_ARGS__};             \
            ab_log_write(level, ab_kvs, sizeof(ab_kvs) / sizeof(ab_kvs[0]));                       \
        }                                                                                          \
    } while (0)

void ab_log_write(enum ab_level level, const struct ab_kv *kvs, size_t n);

/* "debug" .. "error" <-> level; -1 for another word. */
int ab_level_of(const char *word);

#endif
