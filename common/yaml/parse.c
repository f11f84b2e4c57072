/* parse.c - libyaml's events become a tree in an arena
 *
 * The loader of libyaml is not used: it has no limits and follows aliases. What an event costs is
 * bounded by its size limit, the depth by our own counter, the search for duplicate keys by the
 * number of keys in one map.
 */
#include "yaml.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include <string.h>
#include <yaml.h>

#define TEXT_MAX_BYTES ((size_t)256 << 10)
#define DEPTH_MAX 32
#define KEYS_MAX 1000

struct parse {
    yaml_parser_t parser;
    ab_arena_t *arena;
    const char *name;
    struct ab_error *err;
};

static int fail_at(struct parse *p, yaml_mark_t mark, const char *text)
{
    return ab_fail(p->err, AB_EINVAL, "%s:%zu:%zu: %s", p->name, mark.line + 1, mark.column + 1,
                   text);
}

/* libyaml says where in one of three fields, depending on who found the mistake. */
static int fail_parser(struct parse *p)
{
    const yaml_parser_t *y = &p->parser;
    if (y->error == YAML_MEMORY_ERROR)
        return ab_fail(p->err, AB_EINTERNAL, "%s: no memory to read it", p->name);
    if (y->error == YAML_READER_ERROR)
        return ab_fail(p->err, AB_EINVAL, "%s:%zu: %s (byte %zu)", p->name, y->mark.line + 1,
                       y->problem ? y->problem : "cannot be read", y->problem_offset);
    yaml_mark_t mark = y->problem ? y->problem_mark : y->context_mark;
    return ab_fail(p->err, AB_EINVAL, "%s:%zu:%zu: %s%s%s", p->name, mark.line + 1, mark.column + 1,
                   y->problem ? y->problem : "is not YAML", y->context ? " " : "",
                   y->context ? y->context : "");
}

/* The caller deletes the event. */
static int next(struct parse *p, yaml_event_t *event)
{
    if (!yaml_parser_parse(&p->parser, event)) {
        memset(event, 0, sizeof(*event));
        return fail_parser(p);
    }
    return 0;
}

static int no_extras(struct parse *p, const yaml_event_t *e, const yaml_char_t *anchor,
                     const yaml_char_t *tag)
{
    if (anchor)
        return fail_at(p, e->start_mark, "anchors (&name) are not used here: write the value out");
    if (tag)
        return fail_at(p, e->start_mark, "tags (!name) are not used here: write the plain value");
    return 0;
}

static bool is_null(const char *text)
{
    return !*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static int scalar(struct parse *p, const yaml_event_t *e, struct ab_yaml *out)
{
    const char *value = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    if (no_extras(p, e, e->data.scalar.anchor, e->data.scalar.tag) < 0)
        return -1;
    if (memchr(value, '\0', len))
        return fail_at(p, e->start_mark, "a text must not hold a NUL character");
    out->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    out->text = ab_strndup(p->arena, value, len);
    out->type = !out->quoted && is_null(out->text) ? AB_Y_NULL : AB_Y_TEXT;
    return 0;
}

static int node(struct parse *p, const yaml_event_t *e, int depth, struct ab_yaml *out);

/* Room for one more item (and key). */
static struct ab_yaml *grow(struct parse *p, struct ab_yaml *self, size_t *cap)
{
    if (self->n == *cap) {
        size_t cap2 = *cap ? *cap * 2 : 4;
        struct ab_yaml *items = ab_alloc(p->arena, cap2, sizeof(*items));
        if (self->n > 0)
            memcpy(items, self->items, self->n * sizeof(*items));
        self->items = items;
        if (self->type == AB_Y_MAP) {
            const char **keys = ab_alloc(p->arena, cap2, sizeof(*keys));
            int *lines = ab_alloc(p->arena, cap2, sizeof(*lines));
            if (self->n > 0) {
                memcpy(keys, self->keys, self->n * sizeof(*keys));
                memcpy(lines, self->key_lines, self->n * sizeof(*lines));
            }
            self->keys = keys;
            self->key_lines = lines;
        }
        *cap = cap2;
    }
    return &self->items[self->n];
}

static int list(struct parse *p, int depth, struct ab_yaml *out)
{
    size_t cap = 0;
    for (;;) {
        AB_AUTO(yaml_event_delete) yaml_event_t e;
        if (next(p, &e) < 0)
            return -1;
        if (e.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        struct ab_yaml *item = grow(p, out, &cap);
        if (node(p, &e, depth, item) < 0)
            return -1;
        out->n++;
    }
}

static int key(struct parse *p, const yaml_event_t *e, const struct ab_yaml *map,
               struct ab_yaml *out)
{
    if (e->type != YAML_SCALAR_EVENT)
        return fail_at(p, e->start_mark, "a key must be a plain word");
    if (scalar(p, e, out) < 0)
        return -1;
    if (strcmp(out->text, "<<") == 0)
        return fail_at(p, e->start_mark, "merge keys (<<) are not used here: write the values out");
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i], out->text) == 0)
            return ab_fail(p->err, AB_EINVAL,
                           "%s:%zu:%zu: key `%.80s` stands twice, first in line %d", p->name,
                           e->start_mark.line + 1, e->start_mark.column + 1, out->text,
                           map->key_lines[i]);
    if (map->n == KEYS_MAX)
        return fail_at(p, e->start_mark, "too many keys in one map (more than 1000)");
    return 0;
}

static int map(struct parse *p, int depth, struct ab_yaml *out)
{
    size_t cap = 0;
    for (;;) {
        AB_AUTO(yaml_event_delete) yaml_event_t k;
        AB_AUTO(yaml_event_delete) yaml_event_t v = {0};
        struct ab_yaml name = {0};
        if (next(p, &k) < 0)
            return -1;
        if (k.type == YAML_MAPPING_END_EVENT)
            return 0;
        if (key(p, &k, out, &name) < 0 || next(p, &v) < 0)
            return -1;
        struct ab_yaml *item = grow(p, out, &cap);
        if (node(p, &v, depth, item) < 0)
            return -1;
        out->keys[out->n] = name.text;
        out->key_lines[out->n] = (int)k.start_mark.line + 1;
        out->n++;
    }
}

static int node(struct parse *p, const yaml_event_t *e, int depth, struct ab_yaml *out)
{
    out->line = (int)e->start_mark.line + 1;
    out->column = (int)e->start_mark.column + 1;
    if (depth >= DEPTH_MAX)
        return fail_at(p, e->start_mark, "nested too deeply (more than 32 levels)");
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return scalar(p, e, out);
    case YAML_SEQUENCE_START_EVENT:
        out->type = AB_Y_LIST;
        if (no_extras(p, e, e->data.sequence_start.anchor, e->data.sequence_start.tag) < 0)
            return -1;
        return list(p, depth + 1, out);
    case YAML_MAPPING_START_EVENT:
        out->type = AB_Y_MAP;
        if (no_extras(p, e, e->data.mapping_start.anchor, e->data.mapping_start.tag) < 0)
            return -1;
        return map(p, depth + 1, out);
    case YAML_ALIAS_EVENT:
        return fail_at(p, e->start_mark, "aliases (*name) are not used here: write the value out");
    default:
        return fail_at(p, e->start_mark, "is not YAML that can be used here");
    }
}

/* One event that must be of this type. */
static int expect(struct parse *p, yaml_event_type_t type, const char *otherwise)
{
    AB_AUTO(yaml_event_delete) yaml_event_t e;
    if (next(p, &e) < 0)
        return -1;
    if (type == YAML_DOCUMENT_START_EVENT && e.type == type
        && (e.data.document_start.version_directive
            || e.data.document_start.tag_directives.start
                   != e.data.document_start.tag_directives.end))
        return fail_at(p, e.start_mark, "directives (%) are not used here");
    return e.type == type ? 0 : fail_at(p, e.start_mark, otherwise);
}

static int document(struct parse *p, struct ab_yaml *out)
{
    if (expect(p, YAML_DOCUMENT_START_EVENT, "a document was expected") < 0)
        return -1;
    AB_AUTO(yaml_event_delete) yaml_event_t e;
    if (next(p, &e) < 0 || node(p, &e, 0, out) < 0)
        return -1;
    if (out->type == AB_Y_NULL) /* "---" and nothing else is as good as empty */
        *out = (struct ab_yaml){.type = AB_Y_MAP, .line = 1, .column = 1};
    if (expect(p, YAML_DOCUMENT_END_EVENT, "the document should end here") < 0)
        return -1;
    return expect(p, YAML_STREAM_END_EVENT, "a second document begins here: one file holds one");
}

/* Nothing but comments, blanks and a byte order mark: libyaml makes no document of it. */
static bool is_blank(const char *text, size_t len)
{
    bool comment = false;
    size_t i = len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    for (; i < len; i++) {
        if (text[i] == '\n' || text[i] == '\r')
            comment = false;
        else if (text[i] == '#')
            comment = true;
        else if (!comment && text[i] != ' ' && text[i] != '\t')
            return false;
    }
    return true;
}

const struct ab_yaml *ab_yaml_parse(ab_arena_t *arena, const char *name, const char *text,
                                    size_t len, struct ab_error *err)
{
    struct ab_yaml *out = ab_alloc(arena, 1, sizeof(*out));
    *out = (struct ab_yaml){.type = AB_Y_MAP, .line = 1, .column = 1};
    if (len > TEXT_MAX_BYTES) {
        ab_fail(err, AB_ETOOBIG, "%s: larger than %zu kB", name, TEXT_MAX_BYTES >> 10);
        return NULL;
    }
    if (len > 0 && memchr(text, '\0', len)) {
        ab_fail(err, AB_EINVAL, "%s: holds a NUL byte; is it a text file?", name);
        return NULL;
    }
    if (!ab_utf8_ok(text, len)) {
        ab_fail(err, AB_EINVAL, "%s: is not UTF-8 text", name);
        return NULL;
    }
    if (is_blank(text, len))
        return out;

    struct parse p = {.arena = arena, .name = name, .err = err};
    if (!yaml_parser_initialize(&p.parser)) {
        ab_fail(err, AB_EINTERNAL, "%s: no memory to read it", name);
        return NULL;
    }
    yaml_parser_set_encoding(&p.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p.parser, (const unsigned char *)text, len);
    int rc = expect(&p, YAML_STREAM_START_EVENT, "is not YAML");
    if (rc == 0)
        rc = document(&p, out);
    yaml_parser_delete(&p.parser);
    return rc == 0 ? out : NULL;
}

const struct ab_yaml *ab_yaml_load(ab_arena_t *arena, const char *path, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *base = strrchr(path, '/');
    if (ab_file_read(path, TEXT_MAX_BYTES, &text, err) < 0)
        return NULL;
    return ab_yaml_parse(arena, base ? base + 1 : path, text.data ? text.data : "", text.len, err);
}
