/* bind.c - the values of a block's :names, and running it */
#include "skeleton.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a handler binds */

void bind_reset(struct ab_worker *worker)
{
    worker->n_binds = 0;
}

void ab_bind_value(struct ab_call *call, const char *name, struct ab_db_value v)
{
    struct ab_worker *worker = call->worker;
    size_t i = 0;
    while (i < worker->n_binds && strcmp(worker->binds[i].name, name) != 0)
        i++;
    assert(i < MAX_BINDS);
    worker->binds[i] = (struct ab_db_param){name, v};
    if (i == worker->n_binds)
        worker->n_binds++;
}

void ab_bind_int(struct ab_call *call, const char *name, int64_t v)
{
    ab_bind_value(call, name, (struct ab_db_value){.type = AB_DB_INT, .i = v});
}

void ab_bind_real(struct ab_call *call, const char *name, double v)
{
    ab_bind_value(call, name, (struct ab_db_value){.type = AB_DB_REAL, .f = v});
}

void ab_bind_bool(struct ab_call *call, const char *name, bool v)
{
    ab_bind_value(call, name, (struct ab_db_value){.type = AB_DB_BOOL, .b = v});
}

struct ab_db_value bind_text(const char *text)
{
    if (!text)
        return (struct ab_db_value){.type = AB_DB_NULL};
    return (struct ab_db_value){.type = AB_DB_TEXT, .p = text, .n = strlen(text)};
}

void ab_bind_text(struct ab_call *call, const char *name, const char *v)
{
    ab_bind_value(call, name, bind_text(v));
}

void ab_bind_bytes(struct ab_call *call, const char *name, const void *v, size_t n)
{
    ab_bind_value(call, name, (struct ab_db_value){.type = AB_DB_BYTES, .p = v, .n = n});
}

void ab_bind_null(struct ab_call *call, const char *name)
{
    ab_bind_value(call, name, (struct ab_db_value){.type = AB_DB_NULL});
}

void ab_bind_time(struct ab_call *call, const char *name, int64_t utc_us)
{
    ab_bind_value(call, name, (struct ab_db_value){.type = AB_DB_TIME, .i = utc_us});
}

static struct ab_db_value int_array(ab_arena_t *arena, const int64_t *v, size_t n)
{
    struct ab_db_value *items = ab_alloc(arena, n + 1, sizeof(*items));
    for (size_t i = 0; i < n; i++)
        items[i] = (struct ab_db_value){.type = AB_DB_INT, .i = v[i]};
    return (struct ab_db_value){.type = AB_DB_ARRAY, .items = items, .n_items = n};
}

void ab_bind_ids(struct ab_call *call, const char *name, const int64_t *v, size_t n)
{
    ab_bind_value(call, name, int_array(call->arena, v, n));
}

/* ---- fields of structs */

static struct ab_db_value name_of(const struct ab_enum *enumeration, int value)
{
    assert(value >= 0 && value < enumeration->n);
    return bind_text(enumeration->names[value]);
}

static struct ab_db_value uuid_of(ab_arena_t *arena, const char *text)
{
    uint8_t *bytes = ab_alloc(arena, 16, 1);
    if (!text || ab_uuid_parse(text, strlen(text), bytes) < 0)
        return (struct ab_db_value){.type = AB_DB_NULL};
    return (struct ab_db_value){.type = AB_DB_UUID, .p = bytes, .n = 16};
}

static struct ab_db_value json_of(const struct ab_bytes *json)
{
    if (json->n == 0)
        return (struct ab_db_value){.type = AB_DB_NULL};
    return (struct ab_db_value){.type = AB_DB_TEXT, .p = json->p, .n = json->n};
}

static struct ab_db_value texts_of(ab_arena_t *arena, const struct ab_strs *strs)
{
    struct ab_db_value *items = ab_alloc(arena, strs->n + 1, sizeof(*items));
    for (size_t i = 0; i < strs->n; i++)
        items[i] = bind_text(strs->v[i]);
    return (struct ab_db_value){.type = AB_DB_ARRAY, .items = items, .n_items = strs->n};
}

static struct ab_db_value names_of(ab_arena_t *arena, const struct ab_enum *enumeration,
                                   const struct ab_enums *enums)
{
    struct ab_db_value *items = ab_alloc(arena, enums->n + 1, sizeof(*items));
    for (size_t i = 0; i < enums->n; i++)
        items[i] = name_of(enumeration, enums->v[i]);
    return (struct ab_db_value){.type = AB_DB_ARRAY, .items = items, .n_items = enums->n};
}

static struct ab_db_value value_of(ab_arena_t *arena, const struct ab_field *field, const void *at)
{
    switch (field->kind) {
    case AB_BOOL:
        return (struct ab_db_value){.type = AB_DB_BOOL, .b = *(const bool *)at};
    case AB_I32:
        return (struct ab_db_value){.type = AB_DB_INT, .i = *(const int32_t *)at};
    case AB_I64:
        return (struct ab_db_value){.type = AB_DB_INT, .i = *(const int64_t *)at};
    case AB_F64:
        return (struct ab_db_value){.type = AB_DB_REAL, .f = *(const double *)at};
    case AB_TIME:
        return (struct ab_db_value){.type = AB_DB_TIME, .i = *(const int64_t *)at};
    case AB_STR:
    case AB_PATH:
    case AB_URL:
        return bind_text(*(const char *const *)at);
    case AB_UUID:
        return uuid_of(arena, *(const char *const *)at);
    case AB_ENUM:
        return name_of(field->enumeration, *(const int *)at);
    case AB_JSON:
    case AB_TAGS:
        return json_of(at);
    case AB_IDS:
        return int_array(arena, ((const struct ab_ids *)at)->v, ((const struct ab_ids *)at)->n);
    case AB_STRS:
        return texts_of(arena, at);
    case AB_ENUMS:
        return names_of(arena, field->enumeration, at);
    default:
        assert(!"an object inside an object is no parameter");
        return (struct ab_db_value){.type = AB_DB_NULL};
    }
}

struct ab_db_value bind_field(ab_arena_t *arena, const struct ab_field *field,
                              const struct ab_schema *schema, const void *item, bool with_defaults)
{
    const struct ab_head *head = item;
    uint64_t bit = UINT64_C(1) << (field - schema->fields);
    bool absent = !(head->has & bit) && !(with_defaults && field->def);
    if (absent || head->null & bit)
        return (struct ab_db_value){.type = AB_DB_NULL};
    return value_of(arena, field, (const char *)item + field->offset);
}

static const struct ab_field *field_of(const struct ab_schema *schema, const char *name)
{
    int i = schema ? ab_field_find(schema, name, strlen(name), 0) : -1;
    return i < 0 ? NULL : &schema->fields[i];
}

static struct ab_db_value each(ab_arena_t *arena, const struct ab_schema *schema,
                               const struct ab_field *field, const void *items, size_t n)
{
    struct ab_db_value *values = ab_alloc(arena, n + 1, sizeof(*values));
    for (size_t i = 0; i < n; i++)
        values[i] = bind_field(arena, field, schema, (const char *)items + i * schema->size, false);
    return (struct ab_db_value){.type = AB_DB_ARRAY, .items = values, .n_items = n};
}

void ab_bind_each(struct ab_call *call, const struct ab_schema *schema, const void *items, size_t n,
                  ...)
{
    va_list pairs;
    va_start(pairs, n);
    for (const char *param; (param = va_arg(pairs, const char *)) != NULL;) {
        const struct ab_field *field = field_of(schema, va_arg(pairs, const char *));
        assert(field);
        ab_bind_value(call, param, each(call->arena, schema, field, items, n));
    }
    va_end(pairs);
}

/* ---- looking a :name up */

static bool from_call(const struct ab_call *call, const char *name, struct ab_db_value *out)
{
    if (strcmp(name, "owner_id") == 0)
        *out = (struct ab_db_value){.type = AB_DB_INT, .i = call->owner_id};
    else if (strcmp(name, "key") == 0)
        *out = (struct ab_db_value){.type = AB_DB_UUID, .p = call->worker->key, .n = 16};
    else if (strcmp(name, "verb") == 0 && call->route)
        *out = bind_text(call->route->verb);
    else
        return false;
    return true;
}

static bool from_binds(const struct ab_call *call, const char *name, struct ab_db_value *out)
{
    const struct ab_worker *worker = call->worker;
    for (size_t i = 0; i < worker->n_binds; i++) {
        if (strcmp(worker->binds[i].name, name) != 0)
            continue;
        *out = worker->binds[i].value;
        return true;
    }
    return false;
}

static bool from_path(const struct ab_call *call, const char *name, struct ab_db_value *out)
{
    if (!call->req || !call->route->path)
        return false;
    if (strcmp(name, "id") == 0 && strstr(call->route->path, "{id}"))
        *out = (struct ab_db_value){.type = AB_DB_INT, .i = call->req->id};
    else if (strcmp(name, "name") == 0 && strstr(call->route->path, "{name}"))
        *out = bind_text(call->req->name);
    else
        return false;
    return true;
}

static bool from_body(const struct ab_call *call, const char *name, struct ab_db_value *out)
{
    const struct ab_field *field;
    if (!call->req || call->req->body.n != 1 || !(field = field_of(call->route->body, name)))
        return false;
    *out = bind_field(call->arena, field, call->route->body, call->req->body.v,
                      call->route->role & AB_CREATE);
    return true;
}

static bool from_query(const struct ab_call *call, const char *name, struct ab_db_value *out)
{
    const struct ab_field *field;
    if (!call->req || !call->req->query || !(field = field_of(call->route->query, name)))
        return false;
    *out = bind_field(call->arena, field, call->route->query, call->req->query, true);
    return true;
}

static struct ab_db_value look_up(const struct ab_call *call, const struct ab_sql *sql,
                                  const char *name)
{
    struct ab_db_value v;
    if (from_call(call, name, &v) || from_binds(call, name, &v) || from_path(call, name, &v)
        || from_body(call, name, &v) || from_query(call, name, &v))
        return v;
    ab_log(AB_ERROR, "bind.missing", AB_KV("block", sql->name), AB_KV("param", name));
    abort(); /* our own mistake, in every build: a guessed NULL could touch the wrong rows */
}

size_t bind_params(struct ab_call *call, const struct ab_sql *sql, struct ab_db_param **out)
{
    size_t n = 0;
    while (sql->params[n])
        n++;
    *out = ab_alloc(call->arena, n + 1, sizeof(**out));
    for (size_t i = 0; i < n; i++)
        (*out)[i] = (struct ab_db_param){sql->params[i], look_up(call, sql, sql->params[i])};
    return n;
}

/* ---- running */

PGresult *ab_run(struct ab_call *call, const struct ab_sql *sql, struct ab_error *err)
{
    struct ab_db_param *params;
    size_t n = bind_params(call, sql, &params);
    int64_t from = ab_now_us();
    PGresult *r = ab_db_run(call->db, sql, params, n, call->arena, err);
    call->worker->db_us += ab_now_us() - from;
    return r;
}

int ab_run_many(struct ab_call *call, const struct ab_sql *const *blocks, size_t n,
                PGresult **results, struct ab_error *err)
{
    struct ab_db_step *steps = ab_alloc(call->arena, n + 1, sizeof(*steps));
    for (size_t i = 0; i < n; i++) {
        struct ab_db_param *params;
        steps[i].sql = blocks[i];
        steps[i].n = bind_params(call, blocks[i], &params);
        steps[i].params = params;
    }
    int64_t from = ab_now_us();
    int rc = ab_db_pipeline(call->db, steps, n, call->arena, err);
    call->worker->db_us += ab_now_us() - from;
    for (size_t i = 0; i < n && results; i++)
        results[i] = steps[i].result;
    return rc;
}

int ab_ahead(struct ab_call *call, const struct ab_sql *sql, struct ab_error *err)
{
    struct ab_db_param *params;
    size_t n = bind_params(call, sql, &params);
    return ab_db_ahead(call->db, &(struct ab_db_step){.sql = sql, .params = params, .n = n},
                       call->arena, err);
}

bool ab_site_allowed(const struct ab_call *call, int64_t site_id)
{
    return call->token_site == 0 || call->token_site == site_id;
}
