/* schema.h - every message is described once, in rows of the .def files
 *
 * The rows expand here into structs and field numbers, and in schema.c into descriptors. Walkers do
 * the rest: JSON and query strings (json.h), msgpack between our processes (pack.h), OpenAPI
 * (openapi.h), SQL parameters and columns (db, service). A new field is one row and one column.
 *
 * One resource, one struct: `struct job` serves create, update and reply. `has` has a bit for each
 * field that was sent (or read), `null` one for each that was sent as null:
 *
 *     if (AB_HAS(job, item, num_nodes)) ...         sent, perhaps as null
 *     if (AB_IS_NULL(job, item, return_code)) ...   sent as null
 *     item->num_nodes = 2; AB_SET(job, item, num_nodes);
 */
#ifndef AB_SCHEMA_H
#define AB_SCHEMA_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */ /* tables from here on */

/* ------------------------------------------------------------------ C types of fields */

struct ab_bytes {            /* free JSON as text; not NUL-terminated; n == 0: absent */
    const char *p;
    size_t n;
};
struct ab_ids {
    int64_t *v;
    size_t n;
};
struct ab_strs {
    const char **v;
    size_t n;
};
struct ab_enums {
    int *v;
    size_t n;
};
struct ab_list {             /* n structs of one schema, one after the other */
    void *v;
    size_t n;
};

/* kind    C type            JSON                                        msgpack
 * BOOL    bool              true/false and the words of contract 1.2    bool
 * I32 I64 int32_t int64_t   integer, coerced by contract 1.2            int
 * F64     double            number                                      float (int accepted)
 * STR     const char *      string, coerced the Python way              str (no NUL inside)
 * PATH    const char *      string, normalised as PurePosixPath         str
 * UUID    const char *      any text form -> lower-case dashed          str
 * URL     const char *      needs scheme and host                       str
 * TIME    int64_t (us UTC)  ISO 8601 or number                          ext 2 (naive out) / ext 3 (aware out), 8 bytes big endian; requests: ext 3
 * ENUM    int               one of the names, exact                     str (the name)
 * JSON    struct ab_bytes   any object (or what its shape says)         ext 1: the JSON text
 * TAGS    struct ab_bytes   object of strings, values coerced           ext 1
 * IDS     struct ab_ids     list or set of integers                     array of int
 * STRS    struct ab_strs    list of strings                             array of str
 * ENUMS   struct ab_enums   list of names                               array of str
 * OBJ     struct NAME *     object of another schema                    map
 * LIST    struct ab_list    list of objects                             array of map
 * MAP     struct ab_list    object whose values are objects: each item is a struct whose first
 *                           field is `key` (STR, the member's name)     map of map */
enum ab_kind {
    AB_BOOL, AB_I32, AB_I64, AB_F64, AB_STR, AB_PATH, AB_UUID, AB_URL, AB_TIME, AB_ENUM,
    AB_JSON, AB_TAGS, AB_IDS, AB_STRS, AB_ENUMS, AB_OBJ, AB_LIST, AB_MAP,
    AB_KINDS
};

/* Roles: who may send or see a field. */
enum {
    AB_CREATE = 1 << 0,   /* taken from create requests (and from any request that is no resource) */
    AB_UPDATE = 1 << 1,   /* taken from update requests */
    AB_OUT = 1 << 2,      /* in replies */
    AB_REQUIRED = 1 << 3, /* create without it: 422 value_error.missing */
    AB_NULLABLE = 1 << 4, /* null is a value; otherwise null is 422 none.not_allowed */
    AB_KEY = 1 << 5,      /* identifies an item of a bulk update: required there */
    AB_AWARE = 1 << 6,    /* TIME: printed with +00:00 (contract 1.2's table says which) */
    AB_ABSOLUTE = 1 << 7, /* PATH: must be absolute */
    AB_RELATIVE = 1 << 8, /* PATH: must be relative */
    AB_FALSY = 1 << 9,    /* query: 0, "", false and [] mean "no filter" (contract 1.4) */
    AB_ADDED = 1 << 10,   /* ours, not the contract's: only for the docs */
    AB_SORT = 1 << 11,    /* may stand in `ordering`, with and without '-' */
    AB_NOT_CLEARED = 1 << 12, /* explicit null in an update means "no change" (job state, state_timestamp) */
    AB_SECRET_TEXT = 1 << 13, /* never logged */
    AB_UNIQUE = 1 << 14,      /* list: a set; duplicates are dropped, order is kept */
};

struct ab_enum {
    const char *name;
    const char *const *names; /* names[value] */
    int n;
};

struct ab_shape; /* what a JSON field must look like inside; see types.c */

struct ab_field {
    const char *name;
    enum ab_kind kind;
    unsigned flags;
    int64_t min, max;          /* of the number; of the length in characters (STR ..), of the list */
    const char *def;           /* default on create as JSON text; NULL: none */
    const struct ab_enum *enumeration; /* ENUM, ENUMS */
    const struct ab_schema *sub;       /* OBJ, LIST, MAP */
    const struct ab_shape *shape;      /* JSON; NULL: any object */
    size_t offset;             /* of the value in the struct */
    const char *column;        /* SQL: select expression (resources), filter predicate (queries); NULL none */
    const char *text;          /* for the docs */
};

struct ab_schema {
    const char *name;
    const char *text;
    size_t size;
    const struct ab_field *fields;
    int n_fields; /* at most 64 */
};

/* Every struct of a schema begins so; ab_has() works on any of them. */
struct ab_head {
    uint64_t has, null;
};

/* Field number by name, -1 if there is none. Fast when `guess` (the last answer + 1) is right. */
int ab_field_find(const struct ab_schema *schema, const char *name, size_t len, int guess);
const struct ab_schema *ab_schema_find(const char *name);

int ab_enum_find(const struct ab_enum *enumeration, const char *name, size_t len); /* -1 */

#define AB_HAS(schema, p, field) (((p)->has >> AB_FIELD_##schema##_##field) & 1)
#define AB_IS_NULL(schema, p, field) (((p)->null >> AB_FIELD_##schema##_##field) & 1)
#define AB_SET(schema, p, field) ((p)->has |= UINT64_C(1) << AB_FIELD_##schema##_##field)
#define AB_SET_NULL(schema, p, field)                                                              \
    ((p)->has |= UINT64_C(1) << AB_FIELD_##schema##_##field,                                       \
     (p)->null |= UINT64_C(1) << AB_FIELD_##schema##_##field)

/* ------------------------------------------------------------------ enumerations, structs
 * A row:  F(schema, kind, name, flags, min, max, default, extra, column, text)
 * where extra is the enumeration (ENUM, ENUMS), the schema (OBJ, LIST, MAP), the shape (JSON) or `_`. */

#define AB_C_BOOL(name, extra) bool name;
#define AB_C_I32(name, extra) int32_t name;
#define AB_C_I64(name, extra) int64_t name;
#define AB_C_F64(name, extra) double name;
#define AB_C_STR(name, extra) const char *name;
#define AB_C_PATH(name, extra) const char *name;
#define AB_C_UUID(name, extra) const char *name;
#define AB_C_URL(name, extra) const char *name;
#define AB_C_TIME(name, extra) int64_t name;
#define AB_C_ENUM(name, extra) int name;
#define AB_C_JSON(name, extra) struct ab_bytes name;
#define AB_C_TAGS(name, extra) struct ab_bytes name;
#define AB_C_IDS(name, extra) struct ab_ids name;
#define AB_C_STRS(name, extra) struct ab_strs name;
#define AB_C_ENUMS(name, extra) struct ab_enums name;
#define AB_C_OBJ(name, extra) struct extra *name;
#define AB_C_LIST(name, extra) struct ab_list name;
#define AB_C_MAP(name, extra) struct ab_list name;

#include "enums.h" /* enum ab_job_state { AB_JOB_AWAITING_PARENTS, ... }; extern const struct ab_enum ab_enum_job_state */

#define BEGIN(schema, text) struct schema { uint64_t has, null;
#define F(schema, kind, name, flags, min, max, def, extra, column, text) AB_C_##kind(name, extra)
#define END(schema) };
#include "messages.def"
#undef BEGIN
#undef F
#undef END

#define BEGIN(schema, text) enum {
#define F(schema, kind, name, flags, min, max, def, extra, column, text) AB_FIELD_##schema##_##name,
#define END(schema) AB_FIELDS_##schema };
#include "messages.def"
#undef BEGIN
#undef F
#undef END

#define BEGIN(schema, text) extern const struct ab_schema ab_schema_##schema;
#define F(schema, kind, name, flags, min, max, def, extra, column, text)
#define END(schema)
#include "messages.def"
#undef BEGIN
#undef F
#undef END

/* ------------------------------------------------------------------ routes (api.def) */

enum ab_body { AB_NO_BODY, AB_BODY, AB_BODY_LIST, AB_BODY_FORM, AB_BODY_OPTIONAL };
enum ab_reply {
    AB_REPLY_OBJECT, /* one resource */
    AB_REPLY_LIST,   /* a JSON list */
    AB_REPLY_PAGE,   /* {"count", "results"}: the gateway pulls pages, see pack.h */
    AB_REPLY_VALUE,  /* any other JSON value: a number, null */
    AB_REPLY_NONE,   /* 204 */
    AB_REPLY_REDIRECT,
};

/* Token scopes, as bits; a route's row says which may call it. */
enum { AB_SCOPE_USER = 1, AB_SCOPE_SITE = 2, AB_SCOPE_READ = 4, AB_SCOPE_ADMIN = 8, AB_SCOPE_PUBLIC = 16 };

struct ab_route {
    const char *verb;     /* "job.create" */
    const char *service;  /* "jobs" */
    const char *method;   /* "POST"; NULL: no path, between our own processes only */
    const char *path;     /* "/jobs/", "/jobs/{id}", "/auth/tokens/{id}": {id} is an integer, {name} text */
    const struct ab_schema *query; /* NULL none */
    const struct ab_schema *body;  /* NULL none */
    enum ab_body body_form;
    unsigned role;        /* which fields of the body count: AB_CREATE, AB_UPDATE, or AB_UPDATE | AB_KEY for lists of updates */
    const struct ab_schema *reply; /* item of the reply; NULL for other values */
    enum ab_reply reply_form;
    int status;           /* of success */
    unsigned scopes;      /* who may */
    bool mutates;         /* recorded for exactly-once; gets Idempotency-Key */
    size_t body_limit;
    const char *text;
};

extern const struct ab_route ab_routes[];
extern const size_t ab_n_routes;

const struct ab_route *ab_route_of_verb(const char *verb);

/* ------------------------------------------------------------------ what travels on the bus
 * The body of a REQUEST is a msgpack map: {"id": int?, "name": str?, "q": map?, "b": map | array?, "next": any?}. */

struct ab_request {
    const struct ab_route *route;
    int64_t id;           /* path {id}; 0 if the path has none */
    const char *name;     /* path {name} */
    const void *query;    /* struct <query schema>; never NULL when the route has one */
    struct ab_list body;  /* n items of the body schema (1 for an object, 0 for none) */
    struct ab_bytes next; /* msgpack of "next": where the page before ended; n == 0 for the first page */
};

/* Walk one msgpack map into a zeroed struct of `schema` in the arena. Unknown keys are skipped;
 * with AB_CREATE in `role` absent fields get their defaults (their `has` bits stay clear). Checks
 * kinds and bounds again: the sender may be older or broken. */
int ab_unpack_request(const struct ab_route *route, const void *bytes, size_t len, ab_arena_t *arena,
                      struct ab_request *out, struct ab_error *err);

#endif
