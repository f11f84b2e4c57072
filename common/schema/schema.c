/* schema.c - the rows of the .def files as tables */
#include "types.h"
#include <string.h>

/* ------------------------------------------------------------------ enumerations */

#define AB_ENUM(name) static const char *const names_of_##name[] = {
#define AB_NAME(name, constant, text) [constant] = (text),
#define AB_ENUM_END(name)                                                                          \
    }                                                                                              \
    ;
#include "enums.def"
#undef AB_ENUM
#undef AB_NAME
#undef AB_ENUM_END

#define AB_ENUM(enumeration)                                                                       \
    const struct ab_enum ab_enum_##enumeration = {                                                 \
        #enumeration, names_of_##enumeration,                                                      \
        (int)(sizeof(names_of_##enumeration) / sizeof(*names_of_##enumeration))};
#define AB_NAME(enumeration, constant, text)
#define AB_ENUM_END(enumeration)
#include "enums.def"
#undef AB_ENUM
#undef AB_NAME
#undef AB_ENUM_END

const struct ab_job_step ab_job_steps[] = {
#define AB_STATE(name, text)
#define AB_STEP(from, to, text) {AB_JOB_##from, AB_JOB_##to, text},
#include "job_states.def"
#undef AB_STATE
#undef AB_STEP
    {0, 0, NULL},
};

const char *const ab_job_state_texts[] = {
#define AB_STATE(name, text) [AB_JOB_##name] = (text),
#define AB_STEP(from, to, text)
#include "job_states.def"
#undef AB_STATE
#undef AB_STEP
};

int ab_enum_find(const struct ab_enum *enumeration, const char *name, size_t len)
{
    for (int i = 0; i < enumeration->n; i++)
        if (strlen(enumeration->names[i]) == len && memcmp(enumeration->names[i], name, len) == 0)
            return i;
    return -1;
}

/* ------------------------------------------------------------------ shapes and fields */

#define AB_SHAPE(name, ...) const struct ab_shape ab_shape_##name = {__VA_ARGS__};
#include "shapes.def"
#undef AB_SHAPE

/* A name that is a word of C: AB_ALIAS_<name> holds a comma and the name that the wire has. */
#define AB_ALIAS_default_ , "default"
#define AB_SECOND(a, b, ...) b
#define AB_PICK(...) AB_SECOND(__VA_ARGS__)
#define AB_WIRE_NAME(name) AB_PICK(AB_ALIAS_##name, #name, )

#define AB_X_BOOL(extra)
#define AB_X_I32(extra)
#define AB_X_I64(extra)
#define AB_X_F64(extra)
#define AB_X_STR(extra) .shape = &ab_shape_##extra,
#define AB_X_PATH(extra)
#define AB_X_UUID(extra)
#define AB_X_URL(extra)
#define AB_X_TIME(extra)
#define AB_X_ENUM(extra) .enumeration = &ab_enum_##extra,
#define AB_X_JSON(extra) .shape = &ab_shape_##extra,
#define AB_X_TAGS(extra)
#define AB_X_IDS(extra)
#define AB_X_STRS(extra)
#define AB_X_ENUMS(extra) .enumeration = &ab_enum_##extra,
#define AB_X_OBJ(extra) .sub = &ab_schema_##extra,
#define AB_X_LIST(extra) .sub = &ab_schema_##extra,
#define AB_X_MAP(extra) .sub = &ab_schema_##extra,

#define BEGIN(schema, text) static const struct ab_field fields_of_##schema[] = {
#define F(of, of_kind, field, of_flags, least, most, preset, extra, sql, about)                    \
    {.name = AB_WIRE_NAME(field),                                                                  \
     .kind = AB_##of_kind,                                                                         \
     .flags = (of_flags),                                                                          \
     .min = (least),                                                                               \
     .max = (most),                                                                                \
     .def = (preset),                                                                              \
     AB_X_##of_kind(extra).offset = offsetof(struct of, field),                                    \
     .column = (sql),                                                                              \
     .text = (about)},
#define END(schema)                                                                                \
    }                                                                                              \
    ;
#include "messages.def"
#undef BEGIN
#undef F
#undef END

#define BEGIN(schema, about)                                                                       \
    const struct ab_schema ab_schema_##schema = {#schema, (about), sizeof(struct schema),          \
                                                 fields_of_##schema, AB_FIELDS_##schema};          \
    _Static_assert(AB_FIELDS_##schema <= 64, #schema " has more fields than bits");
#define F(...)
#define END(schema)
#include "messages.def"
#undef BEGIN
#undef F
#undef END

static const struct ab_schema *const schemas[] = {
#define BEGIN(schema, about) &ab_schema_##schema,
#define F(...)
#define END(schema)
#include "messages.def"
#undef BEGIN
#undef F
#undef END
};

const struct ab_schema *ab_schema_find(const char *name)
{
    for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++)
        if (strcmp(schemas[i]->name, name) == 0)
            return schemas[i];
    return NULL;
}

static bool is_field(const struct ab_field *field, const char *name, size_t len)
{
    return strlen(field->name) == len && memcmp(field->name, name, len) == 0;
}

int ab_field_find(const struct ab_schema *schema, const char *name, size_t len, int guess)
{
    if (guess >= 0 && guess < schema->n_fields && is_field(&schema->fields[guess], name, len))
        return guess;
    for (int i = 0; i < schema->n_fields; i++)
        if (is_field(&schema->fields[i], name, len))
            return i;
    return -1;
}

/* ------------------------------------------------------------------ routes */

#define ab_schema__ (*(const struct ab_schema *)NULL) /* `_` in a row: &ab_schema__ is NULL */

const struct ab_route ab_routes[] = {
#define R(of_verb, of_service, of_method, of_path, query_of, body_of, form, of_role, reply_of,     \
          of_reply, of_status, of_scopes, of_mutates, limit, about)                                \
    {.verb = (of_verb),                                                                            \
     .service = (of_service),                                                                      \
     .method = (of_method),                                                                        \
     .path = (of_path),                                                                            \
     .query = &ab_schema_##query_of,                                                               \
     .body = &ab_schema_##body_of,                                                                 \
     .body_form = (form),                                                                          \
     .role = (of_role),                                                                            \
     .reply = &ab_schema_##reply_of,                                                               \
     .reply_form = (of_reply),                                                                     \
     .status = (of_status),                                                                        \
     .scopes = (of_scopes),                                                                        \
     .mutates = (of_mutates),                                                                      \
     .body_limit = (limit) ? (limit) : 1024 * 1024,                                                \
     .text = (about)},
#include "api.def"
#undef R
};
const size_t ab_n_routes = sizeof(ab_routes) / sizeof(*ab_routes);

const struct ab_route *ab_route_of_verb(const char *verb)
{
    for (size_t i = 0; i < ab_n_routes; i++)
        if (strcmp(ab_routes[i].verb, verb) == 0)
            return &ab_routes[i];
    return NULL;
}
