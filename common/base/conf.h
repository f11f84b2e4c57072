/* conf.h - settings as a table: name, type, default, unit, text
 *
 * Precedence: flag --bus-port > environment ABIES_BUS_PORT > file (flat YAML `bus_port: 7440`) >
 * default. A secret never stands in a flag: ABIES_X_FILE names a file that holds it. An unknown key
 * in a file or flag stops the program with a near match; an unknown ABIES_* variable is a warning.
 *
 *     static const struct ab_setting settings[] = {
 *         {"listen", AB_CONF_TEXT, "0.0.0.0:8443", "address and port of HTTPS"},
 *         {"session_ttl", AB_CONF_DURATION, "5m", "a session without a heartbeat for this long ends"},
 *         {0},
 *     };
 */
#ifndef AB_CONF_H
#define AB_CONF_H

#include "error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ab_conf_type {
    AB_CONF_TEXT,
    AB_CONF_INT,
    AB_CONF_BOOL,     /* true, false */
    AB_CONF_DURATION, /* 250ms 30s 5m 48h; read with ab_conf_ms */
    AB_CONF_SIZE,     /* 64MiB; read with ab_conf_int */
    AB_CONF_LIST,     /* by comma */
    AB_CONF_SECRET, /* text; masked by --print-config; only from the environment, *_FILE or the file
                     */
};

struct ab_setting {
    const char *name;
    enum ab_conf_type type;
    const char *def;  /* NULL: no default, ab_conf_text gives NULL */
    const char *text; /* one line for --help */
};

typedef struct ab_conf ab_conf_t;

/* Several tables (each ends with a row of zeros) become one; names must differ. */
ab_conf_t *ab_conf_new(const struct ab_setting *const *tables, size_t n);
void ab_conf_destroy(ab_conf_t **self);

/* Set from one source; later calls of a weaker source do not overwrite. `origin` is what
 * --print-config shows, e.g. "flag", "environment", "centre.yml:3". */
enum ab_conf_source {
    AB_CONF_DEFAULT,
    AB_CONF_FILE,
    AB_CONF_ENV,
    AB_CONF_FLAG
};
int ab_conf_set(ab_conf_t *self, enum ab_conf_source source, const char *origin, const char *name,
                const char *value, struct ab_error *err);

/* All ABIES_* variables, and *_FILE ones. Unknown names are logged as warnings. */
int ab_conf_env(ab_conf_t *self, struct ab_error *err);

/* The usual command line of a daemon: --name value or --name=value for each setting, --help,
 * --version, --config FILE, --print-config. Returns 0 go on, 1 printed something and should exit 0,
 * -1 error. The file named by --config, else by ABIES_CONFIG, is read by `read_file` (common/yaml
 * gives one: ab_yaml_conf), so that base needs no YAML. */
typedef int ab_conf_read_f(ab_conf_t *self, const char *path, struct ab_error *err);
int ab_conf_main(ab_conf_t *self, const char *program, const char *about, ab_conf_read_f *read_file,
                 int argc, char **argv, struct ab_error *err);

/* Values. Asking for a name that is in no table is our own mistake (assert). */
const char *ab_conf_text(const ab_conf_t *self, const char *name);
int64_t ab_conf_int(const ab_conf_t *self, const char *name);
int64_t ab_conf_ms(const ab_conf_t *self, const char *name);
bool ab_conf_bool(const ab_conf_t *self, const char *name);
/* NULL-terminated, owned by self; empty list for NULL or "". */
const char *const *ab_conf_list(const ab_conf_t *self, const char *name);

/* "name: value    # origin" lines on stdout, secrets masked. */
void ab_conf_print(const ab_conf_t *self);

#endif
