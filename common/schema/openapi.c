/* openapi.c - the descriptors as an OpenAPI 3 document
 *
 * A resource has up to four schemas: Job (replies), JobCreate, JobUpdate, JobPatch (an item of a
 * bulk update: with its id). Anything else has one. Lines are broken where a reader of a diff wants
 * them.
 */
#include "openapi.h"

#include "types.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static void put_name(struct ab_buf *out, const char *name)
{
    bool upper = true;
    for (; *name; name++) {
        if (*name == '_') {
            upper = true;
            continue;
        }
        ab_buf_char(out, upper ? (char)toupper((unsigned char)*name) : *name);
        upper = false;
    }
}

static unsigned all_flags(const struct ab_schema *schema)
{
    unsigned flags = 0;
    for (int i = 0; i < schema->n_fields; i++)
        flags |= schema->fields[i].flags;
    return flags;
}

/* Has it more faces than one? */
static bool is_resource(const struct ab_schema *schema)
{
    unsigned flags = all_flags(schema);
    return (flags & AB_OUT) && (flags & (AB_CREATE | AB_UPDATE));
}

static const char *suffix_of(const struct ab_schema *schema, unsigned role)
{
    if (!is_resource(schema) || (role & AB_OUT))
        return "";
    return role & AB_CREATE ? "Create" : role & AB_KEY ? "Patch" : "Update";
}

static void put_ref(struct ab_buf *out, const struct ab_schema *schema, unsigned role)
{
    ab_buf_str(out, "{\"$ref\":\"#/components/schemas/");
    put_name(out, schema->name);
    ab_buf_str(out, suffix_of(schema, role));
    ab_buf_str(out, "\"}");
}

static void put_text(struct ab_buf *out, const char *text)
{
    ab_buf_json_str(out, text, strlen(text));
}

/* ------------------------------------------------------------------ types */

static void put_names(struct ab_buf *out, const struct ab_enum *enumeration)
{
    ab_buf_str(out, "\"type\":\"string\",\"enum\":[");
    for (int i = 0; i < enumeration->n; i++)
        ab_buf_printf(out, "%s\"%s\"", i > 0 ? "," : "", enumeration->names[i]);
    ab_buf_char(out, ']');
}

static void put_shape(struct ab_buf *out, const struct ab_shape *shape)
{
    switch (shape->form) {
    case AB_FORM_TEXT:
        ab_buf_str(out, "{\"type\":\"string\"}");
        break;
    case AB_FORM_URL:
        ab_buf_str(out, "{\"type\":\"string\",\"format\":\"uri\"}");
        break;
    case AB_FORM_ITEM:
        put_ref(out, shape->schema, AB_OUT);
        break;
    case AB_FORM_LIST:
        ab_buf_str(out, "{\"type\":\"array\",\"items\":");
        put_shape(out, shape->of);
        ab_buf_char(out, '}');
        break;
    case AB_FORM_MAP:
    case AB_FORM_INT_MAP:
        ab_buf_str(out, "{\"type\":\"object\",\"additionalProperties\":");
        put_shape(out, shape->of);
        ab_buf_char(out, '}');
        break;
    default:
        ab_buf_str(out, "{\"type\":\"object\",\"additionalProperties\":true}");
    }
}

static void put_length(struct ab_buf *out, const struct ab_field *field)
{
    if (field->min > 0)
        ab_buf_printf(out, ",\"minLength\":%" PRId64, field->min);
    if (field->max > 0)
        ab_buf_printf(out, ",\"maxLength\":%" PRId64, field->max);
}

static void put_range(struct ab_buf *out, const struct ab_field *field)
{
    int64_t min, max;
    ab_bounds(field, &min, &max);
    if (min != INT64_MIN && min != INT32_MIN)
        ab_buf_printf(out, ",\"minimum\":%" PRId64, min);
    if (max != INT64_MAX && max != INT32_MAX)
        ab_buf_printf(out, ",\"maximum\":%" PRId64, max);
}

static void put_list(struct ab_buf *out, const struct ab_field *field)
{
    ab_buf_str(out, "\"type\":\"array\"");
    if (field->flags & AB_UNIQUE)
        ab_buf_str(out, ",\"uniqueItems\":true");
    if (field->max > 0)
        ab_buf_printf(out, ",\"maxItems\":%" PRId64, field->max);
    ab_buf_str(out, ",\"items\":{");
    if (field->kind == AB_IDS)
        ab_buf_str(out, "\"type\":\"integer\",\"format\":\"int64\"");
    else if (field->kind == AB_ENUMS)
        put_names(out, field->enumeration);
    else
        ab_buf_str(out, "\"type\":\"string\"");
    ab_buf_char(out, '}');
}

/* The members of a JSON schema, without braces. */
static void put_type(struct ab_buf *out, const struct ab_field *field)
{
    switch (field->kind) {
    case AB_BOOL:
        ab_buf_str(out, "\"type\":\"boolean\"");
        break;
    case AB_I32:
    case AB_I64:
        ab_buf_printf(out, "\"type\":\"integer\",\"format\":\"%s\"",
                      field->kind == AB_I32 ? "int32" : "int64");
        put_range(out, field);
        break;
    case AB_F64:
        ab_buf_str(out, "\"type\":\"number\"");
        if (ab_is_bounded(field))
            put_range(out, field);
        break;
    case AB_STR:
    case AB_PATH:
    case AB_UUID:
    case AB_URL:
        ab_buf_printf(out, "\"type\":\"string\"%s",
                      field->kind == AB_PATH   ? ",\"format\":\"path\""
                      : field->kind == AB_UUID ? ",\"format\":\"uuid\""
                      : field->kind == AB_URL  ? ",\"format\":\"uri\""
                                               : "");
        put_length(out, field);
        break;
    case AB_TIME:
        ab_buf_str(out, "\"type\":\"string\",\"format\":\"date-time\"");
        break;
    case AB_ENUM:
        put_names(out, field->enumeration);
        break;
    case AB_JSON:
        ab_buf_str(out, "\"allOf\":[");
        put_shape(out, field->shape);
        ab_buf_char(out, ']');
        break;
    case AB_TAGS:
        ab_buf_str(out, "\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}");
        break;
    case AB_IDS:
    case AB_STRS:
    case AB_ENUMS:
        put_list(out, field);
        break;
    case AB_OBJ:
        ab_buf_str(out, "\"allOf\":[");
        put_ref(out, field->sub, AB_OUT);
        ab_buf_char(out, ']');
        break;
    case AB_LIST:
    case AB_MAP:
        ab_buf_str(out, field->kind == AB_MAP ? "\"type\":\"object\",\"additionalProperties\":"
                                              : "\"type\":\"array\",\"items\":");
        put_ref(out, field->sub, AB_OUT);
        break;
    case AB_KINDS:
        break;
    }
}

/* ------------------------------------------------------------------ schemas */

static bool is_required(const struct ab_field *field, unsigned role)
{
    return role & AB_OUT ? !(field->flags & AB_NULLABLE)
                         : ((role & AB_CREATE) && (field->flags & AB_REQUIRED))
                               || (field->flags & role & AB_KEY);
}

static void put_property(struct ab_buf *out, const struct ab_field *field, unsigned role)
{
    put_text(out, field->name);
    ab_buf_str(out, ":{");
    put_type(out, field);
    if (field->flags & AB_NULLABLE)
        ab_buf_str(out, ",\"nullable\":true");
    if (field->def && (role & AB_CREATE)) {
        ab_buf_str(out, ",\"default\":");
        ab_buf_str(out, field->def);
    }
    ab_buf_str(out, ",\"description\":");
    put_text(out, field->text);
    ab_buf_char(out, '}');
}

/* Items of MAP fields begin with their key, which is no property. */
static bool is_map_item(const struct ab_schema *schema)
{
    return schema == &ab_schema_job_transfer;
}

static void put_schema(struct ab_buf *out, const struct ab_schema *schema, unsigned role,
                       const char *suffix)
{
    const char *comma = "";
    ab_buf_str(out, ",\n\"");
    put_name(out, schema->name);
    ab_buf_printf(out, "%s\":{\"type\":\"object\",\"description\":", suffix);
    put_text(out, schema->text);
    ab_buf_str(out, ",\"properties\":{");
    for (int i = is_map_item(schema); i < schema->n_fields; i++) {
        if (!(schema->fields[i].flags & role))
            continue;
        ab_buf_str(out, comma);
        ab_buf_str(out, "\n  ");
        put_property(out, &schema->fields[i], role);
        comma = ",";
    }
    ab_buf_char(out, '}');
    comma = ",\"required\":[";
    for (int i = is_map_item(schema); i < schema->n_fields; i++) {
        if (!(schema->fields[i].flags & role) || !is_required(&schema->fields[i], role))
            continue;
        ab_buf_str(out, comma);
        put_text(out, schema->fields[i].name);
        comma = ",";
    }
    ab_buf_str(out, *comma == ',' && comma[1] ? "}" : "]}");
}

/* Each face of each schema that a route shows, and what those contain, once. */
static bool is_shown(const struct ab_schema *schema, unsigned role)
{
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        if (!route->method)
            continue;
        if ((role == AB_OUT && route->reply == schema)
            || (role != AB_OUT && route->body == schema && route->role == role))
            return true;
    }
    return false;
}

static void put_schemas(struct ab_buf *out)
{
    static const struct ab_schema *const nested[] = {
        &ab_schema_window,        &ab_schema_queued_job,   &ab_schema_queue,
        &ab_schema_app_parameter, &ab_schema_app_transfer, &ab_schema_job_transfer,
        &ab_schema_retry,         &ab_schema_partition,    &ab_schema_job_template,
        &ab_schema_reason,
    };
    static const struct ab_schema *const all[] = {
#define BEGIN(schema, text) &ab_schema_##schema,
#define F(...)
#define END(schema)
#include "messages.def"
#undef BEGIN
#undef F
#undef END
    };
    static const unsigned roles[] = {AB_OUT, AB_CREATE, AB_UPDATE, AB_UPDATE | AB_KEY};
    ab_buf_str(
        out, "\"Error\":{\"type\":\"object\",\"properties\":{\"detail\":{\"type\":\"string\"},"
             "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
             "\"index\":{\"type\":\"integer\"},\"id\":{\"type\":\"integer\"},"
             "\"reason\":{\"type\":\"string\"}}}}},\"required\":[\"detail\"]},\n"
             "\"NotFound\":{\"type\":\"object\",\"description\":\"`error` when the row itself is "
             "not there, `detail` when something that it refers to is not\",\"properties\":{"
             "\"error\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"},"
             "\"detail\":{\"type\":\"string\"},\"items\":{\"type\":\"array\",\"items\":{"
             "\"type\":\"object\"}}}},\n"
             "\"ValidationError\":{\"type\":\"object\",\"properties\":{\"detail\":{\"type\":"
             "\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"loc\":{\"type\":"
             "\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}},"
             "\"msg\":{\"type\":\"string\"},\"type\":{\"type\":\"string\"},\"ctx\":{\"type\":"
             "\"object\"}},\"required\":[\"loc\",\"msg\",\"type\"]}}},\"required\":[\"detail\"]}");
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        for (size_t r = 0; r < sizeof(roles) / sizeof(*roles); r++)
            if (is_shown(all[i], roles[r]))
                put_schema(out, all[i], roles[r], suffix_of(all[i], roles[r]));
    for (size_t i = 0; i < sizeof(nested) / sizeof(*nested); i++)
        put_schema(out, nested[i], all_flags(nested[i]) & AB_CREATE ? AB_CREATE : AB_OUT, "");
}

/* ------------------------------------------------------------------ paths */

static void put_parameter(struct ab_buf *out, const struct ab_field *field)
{
    ab_buf_str(out, "{\"name\":");
    put_text(out, field->name);
    ab_buf_str(out, ",\"in\":\"query\",\"required\":false,\"description\":");
    put_text(out, field->text);
    ab_buf_str(out, ",\"schema\":{");
    if (field->kind == AB_TAGS)
        ab_buf_str(out, "\"type\":\"array\",\"items\":{\"type\":\"string\"}");
    else
        put_type(out, field);
    if (field->def)
        ab_buf_printf(out, ",\"default\":%s", field->def);
    ab_buf_str(out, "}}");
}

static void put_parameters(struct ab_buf *out, const struct ab_route *route)
{
    const char *comma = "";
    ab_buf_str(out, ",\"parameters\":[");
    if (strstr(route->path, "{id}")) {
        ab_buf_str(out, "{\"name\":\"id\",\"in\":\"path\",\"required\":true,\"schema\":"
                        "{\"type\":\"integer\",\"format\":\"int64\"}}");
        comma = ",";
    }
    for (int i = 0; route->query && i < route->query->n_fields; i++) {
        ab_buf_str(out, comma);
        put_parameter(out, &route->query->fields[i]);
        comma = ",";
    }
    if (route->mutates) {
        ab_buf_str(out, comma);
        ab_buf_str(out, "{\"name\":\"Idempotency-Key\",\"in\":\"header\",\"required\":false,"
                        "\"description\":\"a repeated request with the same key is done once\","
                        "\"schema\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":255}}");
    }
    ab_buf_char(out, ']');
}

static void put_body(struct ab_buf *out, const struct ab_route *route)
{
    if (!route->body)
        return;
    ab_buf_printf(out, ",\"requestBody\":{\"required\":%s,\"content\":{\"%s\":{\"schema\":",
                  route->body_form == AB_BODY_OPTIONAL ? "false" : "true",
                  route->body_form == AB_BODY_FORM ? "application/x-www-form-urlencoded"
                                                   : "application/json");
    if (route->body_form == AB_BODY_LIST)
        ab_buf_str(out, "{\"type\":\"array\",\"items\":");
    put_ref(out, route->body, route->role);
    ab_buf_str(out, route->body_form == AB_BODY_LIST ? "}}}}" : "}}}");
}

static bool has_field(const struct ab_schema *schema, const char *name)
{
    return schema && ab_field_find(schema, name, strlen(name), 0) >= 0;
}

static void put_reply(struct ab_buf *out, const struct ab_route *route)
{
    bool empty = route->reply_form == AB_REPLY_NONE || route->reply_form == AB_REPLY_REDIRECT;

    ab_buf_printf(out, "\"%d\":{\"description\":", route->status);
    put_text(out, route->text);
    if (!empty)
        ab_buf_str(out, ",\"content\":{\"application/json\":{\"schema\":");
    switch (route->reply_form) {
    case AB_REPLY_OBJECT:
        put_ref(out, route->reply, AB_OUT);
        break;
    case AB_REPLY_LIST:
        ab_buf_str(out, "{\"type\":\"array\",\"items\":");
        put_ref(out, route->reply, AB_OUT);
        ab_buf_char(out, '}');
        break;
    case AB_REPLY_PAGE:
        ab_buf_str(out, "{\"type\":\"object\",\"properties\":{\"count\":{\"type\":\"integer\"},"
                        "\"results\":{\"type\":\"array\",\"items\":");
        put_ref(out, route->reply, AB_OUT);
        ab_buf_str(out, "}");
        if (has_field(route->query, "since"))
            ab_buf_str(out, ",\"next\":{\"type\":\"string\",\"description\":"
                            "\"with `since`: the cursor to go on from\"}");
        ab_buf_str(out, "},\"required\":[\"count\",\"results\"]}");
        break;
    case AB_REPLY_VALUE:
        ab_buf_str(out, "{}");
        break;
    case AB_REPLY_REDIRECT:
    case AB_REPLY_NONE:
        break;
    }
    ab_buf_str(out, empty ? "}" : "}}}");
}

static void put_error(struct ab_buf *out, int status, const char *name)
{
    ab_buf_printf(out, ",\"%d\":{\"$ref\":\"#/components/responses/%s\"}", status, name);
}

static void put_responses(struct ab_buf *out, const struct ab_route *route)
{
    bool open = route->scopes & AB_SCOPE_PUBLIC, parts = strchr(route->path, '{') != NULL;
    bool creates = route->mutates && !open && (route->role & AB_CREATE);

    ab_buf_str(out, ",\"responses\":{");
    put_reply(out, route);
    if (route->mutates || parts || open)
        put_error(out, 400, "BadRequest");
    if (!open || route->body)
        put_error(out, 401, "Unauthorized");
    if (!open || route->body)
        put_error(out, 403, "Forbidden");
    if (parts || creates || (open && route->body)) /* (a way to log in may be switched off) */
        put_error(out, 404, "NotFound");
    if ((route->role & AB_UPDATE) && has_field(route->body, "lease"))
        put_error(out, 409, "Conflict");
    if (has_field(route->query, "since"))
        put_error(out, 410, "Gone");
    if (route->body)
        put_error(out, 413, "TooLarge");
    if (route->query || route->body || parts || route->mutates)
        put_error(out, 422, "Invalid");
    if (open && route->body)
        put_error(out, 429, "Busy");
    put_error(out, 503, "Busy");
    ab_buf_char(out, '}');
}

static void put_operation(struct ab_buf *out, const struct ab_route *route)
{
    char method[16] = "";
    for (size_t i = 0; route->method[i] && i < sizeof(method) - 1; i++)
        method[i] = (char)tolower((unsigned char)route->method[i]);
    ab_buf_printf(out, "\n \"%s\":{\"operationId\":\"%s\",\"tags\":[\"%.*s\"],\"summary\":", method,
                  route->verb, (int)strcspn(route->verb, "."), route->verb);
    put_text(out, route->text);
    if (!(route->scopes & AB_SCOPE_PUBLIC))
        ab_buf_str(out, ",\"security\":[{\"bearer\":[]}]");
    put_parameters(out, route);
    put_body(out, route);
    put_responses(out, route);
    ab_buf_char(out, '}');
}

static bool is_first_of_path(size_t nth)
{
    for (size_t i = 0; i < nth; i++)
        if (ab_routes[i].method && strcmp(ab_routes[i].path, ab_routes[nth].path) == 0)
            return false;
    return true;
}

static void put_paths(struct ab_buf *out)
{
    const char *comma = "";
    for (size_t i = 0; i < ab_n_routes; i++) {
        if (!ab_routes[i].method || !is_first_of_path(i))
            continue;
        ab_buf_printf(out, "%s\n\"%s\":{", comma, ab_routes[i].path);
        comma = "";
        for (size_t k = i; k < ab_n_routes; k++) {
            if (!ab_routes[k].method || strcmp(ab_routes[k].path, ab_routes[i].path) != 0)
                continue;
            ab_buf_str(out, comma);
            put_operation(out, &ab_routes[k]);
            comma = ",";
        }
        ab_buf_char(out, '}');
        comma = ",";
    }
}

static const struct known_error {
    const char *name, *text, *schema;
} errors[] = {
    {"BadRequest", "asks for something impossible", "Error"},
    {"Unauthorized", "no valid token", "Error"},
    {"Forbidden", "a token of this scope may not do that", "Error"},
    {"NotFound", "not there, or not yours", "NotFound"},
    {"Conflict", "the lease of a job is lost; nothing was changed", "Error"},
    {"Gone", "events behind this cursor are kept no longer", "Error"},
    {"TooLarge", "the body is larger than this route takes", "Error"},
    {"Invalid", "does not match its description", "ValidationError"},
    {"Busy", "try again after the time in Retry-After", "Error"},
};

static void put_response(struct ab_buf *out, const char *comma, const struct known_error *error)
{
    ab_buf_printf(out,
                  "%s\"%s\":{\"description\":\"%s\",\"content\":{\"application/json\":{\"schema\":"
                  "{\"$ref\":\"#/components/schemas/%s\"}}}}",
                  comma, error->name, error->text, error->schema);
}

void ab_openapi(struct ab_buf *out, const char *version)
{
    ab_buf_str(out, "{\"openapi\":\"3.0.3\",\n\"info\":{\"title\":\"Abies\",\"description\":"
                    "\"Workflows on many supercomputers\",\"version\":");
    put_text(out, version);
    ab_buf_str(out, "},\n\"paths\":{");
    put_paths(out);
    ab_buf_str(out, "},\n\"components\":{\n\"securitySchemes\":{\"bearer\":{\"type\":\"http\","
                    "\"scheme\":\"bearer\",\"bearerFormat\":\"JWT\"}},\n\"responses\":{");
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        put_response(out, i > 0 ? ",\n" : "", &errors[i]);
    ab_buf_str(out, "},\n\"schemas\":{\n");
    put_schemas(out);
    ab_buf_str(out, "}}}\n");
}
