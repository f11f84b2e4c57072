/* opt.c - command lines of the CLI as tables */
#include "opt.h"

#include "cleanup.h"
#include "str.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 64

struct scan {
    const struct ab_opt *options;
    char **in;  /* next argument to look at */
    char **end; /* of argv */
    char **out; /* where the next kept argument goes */
};

static void print_help(const char *program, const char *usage, const char *about,
                       const struct ab_opt *options)
{
    printf("Usage: %s%s%s\n\n%s\n\nOptions:\n", program, usage && *usage ? " " : "",
           usage ? usage : "", about);
    for (const struct ab_opt *o = options; o->kind != AB_OPT_END; o++) {
        char left[80];
        int n = o->letter ? snprintf(left, sizeof(left), "  -%c, --%s", o->letter, o->name)
                          : snprintf(left, sizeof(left), "      --%s", o->name);
        if (o->value)
            snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->value);
        if (strlen(left) > 32)
            printf("%s\n%-34s%s\n", left, "", o->text);
        else
            printf("%-34s%s\n", left, o->text);
    }
    printf("%-34s%s\n", "  -h, --help", "print this text");
}

static const struct ab_opt *by_name(const struct ab_opt *options, const char *name, size_t len)
{
    for (const struct ab_opt *o = options; o->kind != AB_OPT_END; o++)
        if (o->name && strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

static const struct ab_opt *by_old(const struct ab_opt *options, const char *name, size_t len)
{
    for (const struct ab_opt *o = options; o->kind != AB_OPT_END; o++)
        if (o->old && strlen(o->old) == len && memcmp(o->old, name, len) == 0)
            return o;
    return NULL;
}

static const struct ab_opt *by_letter(const struct ab_opt *options, char letter)
{
    for (const struct ab_opt *o = options; o->kind != AB_OPT_END; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static int unknown(const struct ab_opt *options, const char *arg, struct ab_error *err)
{
    const char *names[NAMES_MAX];
    size_t n = 0;
    char word[65];
    for (const struct ab_opt *o = options; o->kind != AB_OPT_END && n < NAMES_MAX; o++)
        names[n++] = o->name;
    const char *start = arg + strspn(arg, "-");
    snprintf(word, sizeof(word), "%.*s", (int)strcspn(start, "="), start);
    const char *near = ab_str_nearest(word, names, n);
    return near ? ab_fail(err, AB_EINVAL, "unknown option `%.80s`; did you mean --%s?", arg, near)
                : ab_fail(err, AB_EINVAL, "unknown option `%.80s`; see --help", arg);
}

/* Lists live as long as the process and stay reachable, so that no leak checker minds. */
struct kept {
    struct kept *next;
    const char *v[];
};

/* An argument gives at most one value: room for all of them at the first. */
static void list_add(const struct scan *s, struct ab_opt_list *list, const char *value)
{
    static struct kept *all;
    if (!list->v) {
        size_t most = (size_t)(s->end - s->in) + 1;
        struct kept *kept = calloc(1, sizeof(*kept) + (most + 1) * sizeof(kept->v[0]));
        if (!kept)
            abort();
        kept->next = all;
        all = kept;
        list->v = kept->v;
    }
    list->v[list->n++] = value;
}

static int store(const struct scan *s, const struct ab_opt *o, const char *value,
                 struct ab_error *err)
{
    switch (o->kind) {
    case AB_OPT_KIND_FLAG:
        *(bool *)o->out = true;
        return 0;
    case AB_OPT_KIND_TEXT:
        *(const char **)o->out = value;
        return 0;
    case AB_OPT_KIND_LIST:
        list_add(s, o->out, value);
        return 0;
    case AB_OPT_KIND_INT:
        if (ab_parse_i64(value, strlen(value), INT64_MIN, INT64_MAX, o->out) < 0)
            return ab_fail(err, AB_EINVAL, "option --%s takes a whole number, not `%.80s`", o->name,
                           value);
        return 0;
    case AB_OPT_END:
        break;
    }
    return -1;
}

/* An option and its value, which stands behind '=' or in the next argument. */
static int with_value(struct scan *s, const struct ab_opt *o, const char *inside,
                      struct ab_error *err)
{
    if (o->kind == AB_OPT_KIND_FLAG)
        return inside ? ab_fail(err, AB_EINVAL, "option --%s takes no value", o->name)
                      : store(s, o, NULL, err);
    if (!inside && s->in < s->end)
        inside = *s->in++;
    if (!inside)
        return ab_fail(err, AB_EINVAL, "option --%s needs a value (%s)", o->name,
                       o->value ? o->value : "");
    return store(s, o, inside, err);
}

/* -abVALUE: flags, then at most one option with a value */
static int letters(struct scan *s, const char *arg, struct ab_error *err)
{
    for (const char *p = arg + 1; *p; p++) {
        const struct ab_opt *o = by_letter(s->options, *p);
        if (!o)
            return unknown(s->options, arg, err);
        if (o->kind != AB_OPT_KIND_FLAG)
            return with_value(s, o, p[1] ? p + 1 : NULL, err);
        (void)store(s, o, NULL, err);
    }
    return 0;
}

static int one_option(struct scan *s, const char *arg, struct ab_error *err)
{
    bool is_long = arg[1] == '-';
    const char *name = arg + (is_long ? 2 : 1), *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const struct ab_opt *o =
        is_long ? by_name(s->options, name, len) : by_old(s->options, name, len);
    if (o)
        return with_value(s, o, equals ? equals + 1 : NULL, err);
    return is_long ? unknown(s->options, arg, err) : letters(s, arg, err);
}

static bool is_negative_number(const char *arg)
{
    return arg[1] >= '0' && arg[1] <= '9';
}

int ab_opt_parse(const char *program, const char *usage, const char *about,
                 const struct ab_opt *options, int *argc, char ***argv, struct ab_error *err)
{
    struct scan s = {options, *argv, *argv + *argc, *argv};
    bool ended = false;
    while (s.in < s.end) {
        char *arg = *s.in++;
        if (ended || arg[0] != '-' || !arg[1] || is_negative_number(arg)) {
            *s.out++ = arg;
        } else if (strcmp(arg, "--") == 0) {
            ended = true;
        } else if ((strcmp(arg, "-h") == 0 && !by_letter(options, 'h'))
                   || strcmp(arg, "--help") == 0) {
            print_help(program, usage, about, options);
            return 1;
        } else if (one_option(&s, arg, err) < 0) {
            return -1;
        }
    }
    *argc = (int)(s.out - *argv);
    return 0;
}
