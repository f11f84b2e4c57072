/* conf.c - settings as a table */
#include "conf.h"

#include "buf.h"
#include "cleanup.h"
#include "file.h"
#include "log.h"
#include "str.h"
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_MAX ((size_t)64 << 10)
#define SECRET_MARK ", a secret" /* `abies up` reads it */

struct entry {
    const struct ab_setting *setting;
    enum ab_conf_source source;
    char *origin; /* malloc'ed, as are the next two; NULL for the default */
    char *value;
    const char **list; /* one allocation with its strings */
    int64_t number;    /* INT, BOOL, DURATION, SIZE */
};

struct ab_conf {
    struct entry *entries;
    size_t n;
    const char **names;
};

/* Variables that are no settings but ours all the same. */
static const char *const other_variables[] = {
    "ABIES_CONFIG",      "ABIES_FAULT",    "ABIES_HOME",      "ABIES_SITE_PATH",
    "ABIES_CLIENT_PATH", "ABIES_RUN_FILE", "ABIES_LOG_LEVEL", "ABIES_JOB_ID",
};

static const char *type_hint(enum ab_conf_type type)
{
    switch (type) {
    case AB_CONF_INT:
        return "a whole number";
    case AB_CONF_BOOL:
        return "true or false";
    case AB_CONF_DURATION:
        return "a duration such as 250ms, 30s, 5m or 48h";
    case AB_CONF_SIZE:
        return "a size such as 64MiB";
    default:
        return "a text";
    }
}

static const char *type_value(enum ab_conf_type type)
{
    switch (type) {
    case AB_CONF_INT:
        return "NUMBER";
    case AB_CONF_BOOL:
        return "true|false";
    case AB_CONF_DURATION:
        return "DURATION";
    case AB_CONF_SIZE:
        return "SIZE";
    case AB_CONF_LIST:
        return "A,B,...";
    default:
        return "TEXT";
    }
}

static int parse_value(enum ab_conf_type type, const char *value, int64_t *number)
{
    switch (type) {
    case AB_CONF_INT:
        return ab_parse_i64(value, strlen(value), INT64_MIN, INT64_MAX, number);
    case AB_CONF_BOOL:
        *number = strcmp(value, "true") == 0;
        return *number || strcmp(value, "false") == 0 ? 0 : -1;
    case AB_CONF_DURATION:
        return ab_parse_duration(value, number);
    case AB_CONF_SIZE:
        return ab_parse_size(value, number);
    default:
        return 0;
    }
}

/* "a, b" -> {"a", "b", NULL}: blanks around a word and empty words are dropped. */
static const char **split_list(const char *value)
{
    size_t words = 1;
    for (const char *p = value; *p; p++)
        words += *p == ',';
    const char **list = calloc(1, (words + 1) * sizeof(*list) + strlen(value) + 1);
    if (!list)
        abort();
    char *rest = (char *)(list + words + 1), *word;
    memcpy(rest, value, strlen(value) + 1);
    size_t n = 0;
    while ((word = strsep(&rest, ","))) {
        word += strspn(word, " \t");
        size_t len = strlen(word);
        while (len > 0 && (word[len - 1] == ' ' || word[len - 1] == '\t'))
            word[--len] = '\0';
        if (len > 0)
            list[n++] = word;
    }
    return list;
}

static void entry_store(struct entry *e, enum ab_conf_source source, const char *origin,
                        const char *value, int64_t number)
{
    char *own_value = value ? strdup(value) : NULL, *own_origin = strdup(origin);
    if ((value && !own_value) || !own_origin)
        abort();
    free(e->value);
    free(e->origin);
    free(e->list);
    e->source = source;
    e->value = own_value;
    e->origin = own_origin;
    e->list = e->setting->type == AB_CONF_LIST ? split_list(value ? value : "") : NULL;
    e->number = number;
}

static struct entry *find(const ab_conf_t *self, const char *name)
{
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->names[i], name) == 0)
            return &self->entries[i];
    return NULL;
}

static size_t count_rows(const struct ab_setting *const *tables, size_t n)
{
    size_t total = 0;
    for (size_t t = 0; t < n; t++)
        for (const struct ab_setting *s = tables[t]; s->name; s++)
            total++;
    return total;
}

static void add_row(ab_conf_t *self, const struct ab_setting *s)
{
    assert(!find(self, s->name));
    struct entry *e = &self->entries[self->n];
    int64_t number = 0;
    e->setting = s;
    self->names[self->n++] = s->name;
    int rc = s->def ? parse_value(s->type, s->def, &number) : 0;
    assert(rc == 0);
    (void)rc;
    entry_store(e, AB_CONF_DEFAULT, "default", s->def, number);
}

ab_conf_t *ab_conf_new(const struct ab_setting *const *tables, size_t n)
{
    ab_conf_t *self = calloc(1, sizeof(*self));
    size_t total = count_rows(tables, n);
    if (self) {
        self->entries = calloc(total + 1, sizeof(*self->entries));
        self->names = calloc(total + 1, sizeof(*self->names));
    }
    if (!self || !self->entries || !self->names)
        abort();
    for (size_t t = 0; t < n; t++)
        for (const struct ab_setting *s = tables[t]; s->name; s++)
            add_row(self, s);
    return self;
}

void ab_conf_destroy(ab_conf_t **self_p)
{
    ab_conf_t *self = *self_p;
    if (!self)
        return;
    for (size_t i = 0; i < self->n; i++) {
        struct entry *e = &self->entries[i];
        if (e->value && e->setting->type == AB_CONF_SECRET)
            explicit_bzero(e->value, strlen(e->value));
        free(e->value);
        free(e->origin);
        free(e->list);
    }
    free(self->entries);
    free(self->names);
    free(self);
    *self_p = NULL;
}

int ab_conf_set(ab_conf_t *self, enum ab_conf_source source, const char *origin, const char *name,
                const char *value, struct ab_error *err)
{
    struct entry *e = find(self, name);
    if (!e) {
        const char *near = ab_str_nearest(name, self->names, self->n);
        return ab_fail(err, AB_EINVAL, "%s: unknown setting `%.80s`%s%s%s", origin, name,
                       near ? "; did you mean `" : "; --help lists them", near ? near : "",
                       near ? "`?" : "");
    }
    if (source == AB_CONF_FLAG && e->setting->type == AB_CONF_SECRET)
        return ab_fail(
            err, AB_EINVAL,
            "%s: setting `%s` is a secret and must not stand on a command line, where all users "
            "can read it: name a file that holds it in ABIES_<NAME>_FILE",
            origin, name);
    int64_t number = 0;
    if (parse_value(e->setting->type, value, &number) < 0)
        return ab_fail(err, AB_EINVAL, "%s: setting `%s` is %s, not `%.80s`", origin, name,
                       type_hint(e->setting->type), value);
    if (source >= e->source)
        entry_store(e, source, origin, value, number);
    return 0;
}

/* BUS_PORT or bus-port -> bus_port */
static void setting_name(const char *from, size_t len, char *out, size_t size)
{
    size_t i = 0;
    for (; i < len && i < size - 1; i++)
        out[i] = from[i] == '-' ? '_' : (char)tolower((unsigned char)from[i]);
    out[i] = '\0';
}

/* Container secrets are mounted world-readable on a file system of their own. */
static int secret_file_ok(const char *path, struct ab_error *err)
{
    struct stat st;
    if (ab_str_starts(path, "/run/secrets/") || ab_str_starts(path, "/var/run/secrets/"))
        return 0;
    if (stat(path, &st) == 0 && (st.st_mode & 077))
        return ab_fail(err, AB_EDENIED,
                       "`%s` holds a secret but others may read it (mode %04o): chmod 600 it", path,
                       (unsigned)(st.st_mode & 07777));
    return 0;
}

static int set_from_file(ab_conf_t *self, const char *name, const char *path, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const struct entry *e = find(self, name);
    if (e->setting->type == AB_CONF_SECRET && secret_file_ok(path, err) < 0)
        return -1;
    if (ab_file_read(path, SECRET_MAX, &text, err) < 0)
        return -1;
    while (text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r'))
        text.data[--text.len] = '\0';
    if (memchr(text.data, '\0', text.len))
        return ab_fail(err, AB_EINVAL, "`%s` holds a NUL byte", path);
    int rc = ab_conf_set(self, AB_CONF_ENV, "environment", name, text.data, err);
    explicit_bzero(text.data, text.len);
    return rc;
}

static int set_from_variable(ab_conf_t *self, const char *variable, struct ab_error *err)
{
    const char *equals = strchr(variable, '=');
    char name[128];
    size_t len = (size_t)(equals - variable);
    for (size_t i = 0; i < AB_COUNT(other_variables); i++)
        if (strlen(other_variables[i]) == len && memcmp(variable, other_variables[i], len) == 0) {
            setting_name(variable + 6, len - 6, name, sizeof(name));
            return find(self, name)
                       ? ab_conf_set(self, AB_CONF_ENV, "environment", name, equals + 1, err)
                       : 0;
        }
    setting_name(variable + 6, len - 6, name, sizeof(name));
    if (find(self, name))
        return ab_conf_set(self, AB_CONF_ENV, "environment", name, equals + 1, err);
    if (ab_str_ends(name, "_file")) {
        name[strlen(name) - 5] = '\0';
        if (find(self, name))
            return set_from_file(self, name, equals + 1, err);
    }
    char whole[128];
    snprintf(whole, sizeof(whole), "%.*s", (int)len, variable);
    ab_log(AB_WARN, "conf.unknown_variable", AB_KV("name", (const char *)whole));
    return 0;
}

int ab_conf_env(ab_conf_t *self, struct ab_error *err)
{
    for (char **v = environ; v && *v; v++) {
        if (!ab_str_starts(*v, "ABIES_") || !strchr(*v, '='))
            continue;
        if (set_from_variable(self, *v, err) < 0)
            return ab_fail_within(err, "variable %.*s", (int)strcspn(*v, "="), *v);
    }
    return 0;
}

static void print_help(const ab_conf_t *self, const char *program, const char *about)
{
    printf("Usage: %s [--config FILE] [--SETTING VALUE]...\n\n%s\n\nSettings "
           "(flag, or variable ABIES_NAME, or line `name: value` of the file):\n",
           program, about);
    for (size_t i = 0; i < self->n; i++) {
        const struct ab_setting *s = self->entries[i].setting;
        char flag[128];
        int n = snprintf(flag, sizeof(flag), "%s%s %s", s->type == AB_CONF_SECRET ? "" : "--",
                         s->name, s->type == AB_CONF_SECRET ? "(secret)" : type_value(s->type));
        for (int k = 0; k < n && flag[k] != ' '; k++)
            if (flag[k] == '_')
                flag[k] = '-';
        printf("  %-34s %s", flag, s->text ? s->text : "");
        if (s->def && *s->def)
            printf(" [%s]", s->def);
        printf("\n");
    }
    printf("\n  %-34s %s\n  %-34s %s\n  %-34s %s\n  %-34s %s\n", "--config FILE",
           "read settings from this YAML file (also ABIES_CONFIG)", "--print-config",
           "print each setting and where it comes from, then exit", "--version",
           "print the version", "--help", "print this text");
}

struct main_flags {
    const char *config;
    bool print;
};

/* One argument; *i is its place and is moved past a value of its own. */
static int one_flag(ab_conf_t *self, struct main_flags *flags, int argc, char **argv, int *i,
                    struct ab_error *err)
{
    const char *arg = argv[*i];
    if (!ab_str_starts(arg, "--") || !arg[2])
        return ab_fail(err, AB_EINVAL,
                       "unexpected argument `%.80s`; settings are --name value, see --help", arg);
    char name[128];
    const char *equals = strchr(arg, '='), *value = equals ? equals + 1 : NULL;
    size_t len = equals ? (size_t)(equals - arg) - 2 : strlen(arg) - 2;
    setting_name(arg + 2, len, name, sizeof(name));
    if (strcmp(name, "print_config") == 0) {
        flags->print = true;
        return 0;
    }
    const struct entry *e = find(self, name);
    bool next_is_value = *i + 1 < argc && !ab_str_starts(argv[*i + 1], "--");
    if (!value && next_is_value)
        value = argv[++*i];
    if (!value && e && e->setting->type == AB_CONF_BOOL)
        value = "true";
    if (strcmp(name, "config") == 0 && value) {
        flags->config = value;
        return 0;
    }
    if (!value && (e || strcmp(name, "config") == 0))
        return ab_fail(err, AB_EINVAL, "--%.*s needs a value", (int)len, arg + 2);
    return ab_conf_set(self, AB_CONF_FLAG, "flag", name, value ? value : "", err);
}

int ab_conf_main(ab_conf_t *self, const char *program, const char *about, ab_conf_read_f *read_file,
                 int argc, char **argv, struct ab_error *err)
{
    struct main_flags flags = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(self, program, about);
            return 1;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("%s %s\n", program, AB_VERSION);
            return 1;
        }
        if (one_flag(self, &flags, argc, argv, &i, err) < 0)
            return -1;
    }
    if (!flags.config)
        flags.config = getenv("ABIES_CONFIG");
    if (flags.config && *flags.config && read_file && read_file(self, flags.config, err) < 0)
        return -1;
    if (ab_conf_env(self, err) < 0)
        return -1;
    if (flags.print) {
        ab_conf_print(self);
        return 1;
    }
    return 0;
}

static const struct entry *must_find(const ab_conf_t *self, const char *name)
{
    const struct entry *e = find(self, name);
    if (!e)
        ab_log(AB_ERROR, "conf.no_such_setting", AB_KV("name", name));
    assert(e);
    return e;
}

const char *ab_conf_text(const ab_conf_t *self, const char *name)
{
    return must_find(self, name)->value;
}

int64_t ab_conf_int(const ab_conf_t *self, const char *name)
{
    return must_find(self, name)->number;
}

int64_t ab_conf_ms(const ab_conf_t *self, const char *name)
{
    const struct entry *e = must_find(self, name);
    assert(e->setting->type == AB_CONF_DURATION);
    return e->number;
}

bool ab_conf_bool(const ab_conf_t *self, const char *name)
{
    return must_find(self, name)->number != 0;
}

const char *const *ab_conf_list(const ab_conf_t *self, const char *name)
{
    const struct entry *e = must_find(self, name);
    assert(e->setting->type == AB_CONF_LIST);
    return e->list;
}

void ab_conf_print(const ab_conf_t *self)
{
    for (size_t i = 0; i < self->n; i++) {
        const struct entry *e = &self->entries[i];
        const char *shown = !e->value                            ? ""
                            : e->setting->type == AB_CONF_SECRET ? "********"
                                                                 : e->value;
        int n = printf("%s: %s", e->setting->name, shown);
        printf("%*s# %s%s\n", n < 48 ? 48 - n : 1, "", e->origin,
               e->setting->type == AB_CONF_SECRET ? SECRET_MARK : "");
    }
}
