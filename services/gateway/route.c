/* route.c - paths are compared segment by segment, literals before parameters */
#include "route.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX 8

static const struct {
    const char *name;
    enum route_method bit;
} methods[] = {
    {"GET", M_GET}, {"POST", M_POST}, {"PUT", M_PUT}, {"PATCH", M_PATCH}, {"DELETE", M_DELETE},
};
#define METHODS (sizeof(methods) / sizeof(methods[0]))

static const struct {
    const char *path;
    enum own_page page;
} pages[] = {
    {"/", PAGE_ROOT},
    {"/healthz", PAGE_HEALTHZ},
    {"/readyz", PAGE_READYZ},
    {"/metrics", PAGE_METRICS},
    {"/openapi.json", PAGE_OPENAPI},
    {"/docs", PAGE_DOCS},
    {"/subscribe-user", PAGE_SUBSCRIBE_USER},
    {"/events/stream", PAGE_EVENTS_STREAM},
};

struct segment {
    const char *at;
    size_t n;
    enum {
        LITERAL,
        ID,
        NAME
    } kind;
};

/* One path with its routes by method. */
struct pattern {
    struct segment segment[SEGMENTS_MAX];
    size_t n, parameters;
    unsigned allow;
    const struct ab_route *route[METHODS];
    enum own_page page;
};

static struct pattern *patterns;
static size_t n_patterns;

/* "/jobs/{id}/cancel" -> jobs, {id}, cancel; a trailing slash makes no segment. -1: too many. */
static int split(const char *path, size_t len, struct segment *out, size_t *n)
{
    *n = 0;
    if (len > 0 && path[len - 1] == '/')
        len--;
    size_t at = 0;
    while (at < len) {
        if (*n == SEGMENTS_MAX)
            return -1;
        size_t from = at + 1, end = from; /* path[at] is '/' */
        while (end < len && path[end] != '/')
            end++;
        out[*n] = (struct segment){.at = path + from, .n = end - from, .kind = LITERAL};
        (*n)++;
        at = end;
    }
    return 0;
}

static bool same_pattern(const struct pattern *a, const struct pattern *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct segment *x = &a->segment[i], *y = &b->segment[i];
        if (x->kind != y->kind)
            return false;
        if (x->kind == LITERAL && (x->n != y->n || memcmp(x->at, y->at, x->n) != 0))
            return false;
    }
    return true;
}

static int pattern_make(const char *path, struct pattern *out, struct ab_error *err)
{
    *out = (struct pattern){0};
    if (path[0] != '/' || split(path, strlen(path), out->segment, &out->n) < 0)
        return ab_fail(err, AB_EINTERNAL, "route `%s` cannot be a path", path);
    for (size_t i = 0; i < out->n; i++) {
        struct segment *s = &out->segment[i];
        if (s->n < 2 || s->at[0] != '{')
            continue;
        s->kind = s->n == 4 && memcmp(s->at, "{id}", 4) == 0 ? ID : NAME;
        out->parameters++;
    }
    return 0;
}

/* The pattern in the table, added if it is new. */
static struct pattern *pattern_add(const struct pattern *p)
{
    for (size_t i = 0; i < n_patterns; i++)
        if (same_pattern(&patterns[i], p))
            return &patterns[i];
    patterns[n_patterns] = *p;
    return &patterns[n_patterns++];
}

static int method_of(const char *name, size_t n)
{
    for (size_t i = 0; i < METHODS; i++)
        if (strlen(methods[i].name) == n && memcmp(methods[i].name, name, n) == 0)
            return (int)i;
    return -1;
}

static int add_route(const struct ab_route *route, struct ab_error *err)
{
    struct pattern made;

    if (!route->method || route->path[0] == '\0')
        return 0; /* travels on the bus only */
    if (pattern_make(route->path, &made, err) < 0)
        return -1;
    int m = method_of(route->method, strlen(route->method));
    if (m < 0)
        return ab_fail(err, AB_EINTERNAL, "route %s: unknown method %s", route->verb,
                       route->method);
    struct pattern *p = pattern_add(&made);
    if (p->route[m])
        return ab_fail(err, AB_EINTERNAL, "routes %s and %s are the same: %s %s", p->route[m]->verb,
                       route->verb, route->method, route->path);
    p->route[m] = route;
    p->allow |= methods[m].bit;
    return 0;
}

/* Fewer parameters first: /jobs/cancel is asked before /jobs/{id}. */
static int by_parameters(const void *a, const void *b)
{
    const struct pattern *x = a, *y = b;
    return (x->parameters > y->parameters) - (x->parameters < y->parameters);
}

int route_init(struct ab_error *err)
{
    route_free();
    patterns = calloc(ab_n_routes + sizeof(pages) / sizeof(pages[0]), sizeof(*patterns));
    if (!patterns)
        return ab_fail(err, AB_EINTERNAL, "no memory for the routes");
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        struct pattern made;
        if (pattern_make(pages[i].path, &made, err) < 0)
            return -1;
        struct pattern *p = pattern_add(&made);
        p->page = pages[i].page;
        p->allow |= M_GET;
    }
    for (size_t i = 0; i < ab_n_routes; i++)
        if (add_route(&ab_routes[i], err) < 0)
            return -1;
    qsort(patterns, n_patterns, sizeof(*patterns), by_parameters);
    return 0;
}

void route_free(void)
{
    free(patterns);
    patterns = NULL;
    n_patterns = 0;
}

static bool matches(const struct pattern *p, const struct segment *have, size_t n)
{
    if (p->n != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct segment *s = &p->segment[i];
        if (s->kind != LITERAL) {
            if (have[i].n == 0)
                return false;
        } else if (s->n != have[i].n || memcmp(s->at, have[i].at, s->n) != 0) {
            return false;
        }
    }
    return true;
}

static void fill(const struct pattern *p, int method, const char *path, const struct segment *have,
                 struct route_match *out)
{
    out->route = p->route[method];
    out->page = methods[method].bit == M_GET && !out->route ? p->page : PAGE_NONE;
    for (size_t i = 0; i < p->n; i++) {
        if (p->segment[i].kind == ID) {
            out->id_at = (size_t)(have[i].at - path);
            out->id_n = have[i].n;
        } else if (p->segment[i].kind == NAME) {
            out->name_at = (size_t)(have[i].at - path);
            out->name_n = have[i].n;
        }
    }
}

void route_find(const char *method, size_t method_n, const char *path, size_t path_n,
                struct route_match *out)
{
    struct segment have[SEGMENTS_MAX] = {0};
    size_t n;
    int m = method_of(method, method_n);

    *out = (struct route_match){0};
    if (path_n == 0 || path[0] != '/' || split(path, path_n, have, &n) < 0)
        return;
    for (size_t i = 0; i < n_patterns; i++) {
        const struct pattern *p = &patterns[i];
        if (!matches(p, have, n))
            continue;
        out->allow |= p->allow;
        if (m >= 0 && (p->route[m] || (p->page && methods[m].bit == M_GET))) {
            fill(p, m, path, have, out);
            return;
        }
    }
}

void route_allow_text(unsigned allow, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < METHODS; i++)
        if ((allow & methods[i].bit) && at < size)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", methods[i].name);
}
