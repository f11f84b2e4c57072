/* yaml.h - YAML that people write: strict, with limits and line numbers
 *
 * Event API of libyaml: at most 256 kB, 32 levels; anchors, aliases, tags, a second document,
 * duplicate keys and NUL are refused. Errors: "settings.yml:12:5: unknown key `prefetch_dept`; did
 * you mean `prefetch_depth`?". Scalars stay text; the typed readers say what they accept.
 */
#ifndef AB_YAML_H
#define AB_YAML_H

#include "base/arena.h"
#include "base/conf.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

enum ab_yaml_type {
    AB_Y_NULL,
    AB_Y_TEXT,
    AB_Y_LIST,
    AB_Y_MAP
};
struct ab_yaml {
    enum ab_yaml_type type;
    bool quoted;           /* TEXT in quotes: never null, number or bool */
    int line, column;      /* from 1 */
    const char *text;      /* TEXT, NUL-terminated */
    struct ab_yaml *items; /* LIST and MAP values */
    const char **keys;
    int *key_lines;
    size_t n;
};

/* An empty file is an empty MAP. `name` is what errors call it. */
const struct ab_yaml *ab_yaml_parse(ab_arena_t *arena, const char *name, const char *text,
                                    size_t len, struct ab_error *err);
const struct ab_yaml *ab_yaml_load(ab_arena_t *arena, const char *path, struct ab_error *err);

const struct ab_yaml *ab_yaml_get(const struct ab_yaml *map, const char *key); /* NULL if absent */
/* Every key of the map must be among `names`. */
int ab_yaml_only(const char *file, const struct ab_yaml *map, const char *const *names, size_t n,
                 struct ab_error *err);

/* Typed readers: absent (v NULL) gives `otherwise`; a wrong form is an error with file:line:column.
 */
int ab_yaml_text(const char *file, const struct ab_yaml *v, const char *otherwise, const char **out,
                 struct ab_error *err);
int ab_yaml_int(const char *file, const struct ab_yaml *v, int64_t min, int64_t max,
                int64_t otherwise, int64_t *out, struct ab_error *err);
int ab_yaml_real(const char *file, const struct ab_yaml *v, double otherwise, double *out,
                 struct ab_error *err);
int ab_yaml_bool(const char *file, const struct ab_yaml *v, bool otherwise, bool *out,
                 struct ab_error *err);
/* "5m", or a plain number of `unit_ms` (contract settings are numbers of seconds). */
int ab_yaml_duration(const char *file, const struct ab_yaml *v, int64_t unit_ms,
                     int64_t otherwise_ms, int64_t *out_ms, struct ab_error *err);
int ab_yaml_strings(const char *file, const struct ab_yaml *v, ab_arena_t *arena, const char ***out,
                    size_t *n, struct ab_error *err);

/* The file reader for ab_conf_main: flat YAML of setting names. */
int ab_yaml_conf(ab_conf_t *conf, const char *path, struct ab_error *err);

/* Writing: quotes when a plain scalar would read back as something else. */
struct ab_buf;
void ab_yaml_scalar(struct ab_buf *out, const char *text);

#endif
