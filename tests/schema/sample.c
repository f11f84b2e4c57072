/* sample.c - a request of any route with every field filled, made from its descriptor */
#include "sample.h"

#include <inttypes.h>
#include <string.h>

/* What a field's shape asks for, written by hand: a new shape needs a line here, or the test says
 * so. */
static const struct {
    const char *field, *json;
} shaped[] = {
    {"backfill_windows", "{\"q\":[{\"num_nodes\":4,\"wall_time_min\":30}]}"},
    {"queued_jobs",
     "{\"12\":{\"scheduler_id\":12,\"state\":\"queued\",\"queue\":\"q\",\"num_nodes\":1,"
     "\"wall_time_min\":2,\"project\":\"p\",\"time_remaining_min\":1,"
     "\"queued_time_min\":0}}"},
    {"allowed_projects", "[\"p\",\"q\"]"},
    {"allowed_queues", "{\"q\":{\"max_nodes\":1,\"max_walltime\":2,\"max_queued_jobs\":3}}"},
    {"transfer_locations", "{\"lab\":\"rsync://user@host\"}"},
    {"partitions", "[{\"job_mode\":\"mpi\",\"num_nodes\":2,\"filter_tags\":{\"a\":\"b\"}}]"},
    {"retry", "{\"max_attempts\":3,\"on\":[\"exit\"],\"backoff_sec\":30}"},
};

static const char *shape_of(const char *field)
{
    for (size_t i = 0; i < sizeof(shaped) / sizeof(*shaped); i++)
        if (strcmp(shaped[i].field, field) == 0)
            return shaped[i].json;
    return NULL;
}

static const char *json_field(const struct ab_schema *schema, const struct ab_field *field)
{
    if (strcmp(schema->name, "app") == 0 && strcmp(field->name, "parameters") == 0)
        return "{\"n\":{\"required\":false,\"default\":\"1\",\"help\":\"\"}}";
    if (strcmp(schema->name, "app") == 0 && strcmp(field->name, "transfers") == 0)
        return "{\"m\":{\"required\":true,\"direction\":\"in\",\"local_path\":\"m\","
               "\"description\":\"\","
               "\"recursive\":false}}";
    const char *json = shape_of(field->name);
    return json ? json : "{\"free\":[1,2.5,null]}";
}

static void put_members(struct ab_buf *out, const struct ab_schema *schema, int first,
                        unsigned role);

static void put_value(struct ab_buf *out, const struct ab_schema *schema,
                      const struct ab_field *field)
{
    switch (field->kind) {
    case AB_BOOL:
        ab_buf_str(out, "true");
        break;
    case AB_I32:
    case AB_I64:
        ab_buf_int(out, field->max > 0 && field->max < 17 ? field->max : 17);
        break;
    case AB_F64:
        ab_buf_str(out, "0.25");
        break;
    case AB_STR:
        ab_buf_str(out,
                   strcmp(field->name, "grant_type") == 0 ? "\"password\"" : "\"t\xc3\xa9xt\"");
        break;
    case AB_PATH:
        ab_buf_str(out, field->flags & AB_ABSOLUTE ? "\"/a/b\"" : "\"a/b\"");
        break;
    case AB_UUID:
        ab_buf_str(out, "\"01234567-89ab-cdef-0123-456789abcdef\"");
        break;
    case AB_URL:
        ab_buf_str(out, "\"local://host/a\"");
        break;
    case AB_TIME:
        ab_buf_str(out, "\"2026-01-02T03:04:05.000678+00:00\"");
        break;
    case AB_ENUM:
        ab_buf_printf(out, "\"%s\"", field->enumeration->names[field->enumeration->n - 1]);
        break;
    case AB_JSON:
        ab_buf_str(out, json_field(schema, field));
        break;
    case AB_TAGS:
        ab_buf_str(out, "{\"k\":\"v:w\"}");
        break;
    case AB_IDS:
        ab_buf_str(out, "[5,300,70000,5000000000]");
        break;
    case AB_STRS:
        ab_buf_str(out, "[\"a\",\"b\"]");
        break;
    case AB_ENUMS:
        ab_buf_printf(out, "[\"%s\",\"%s\"]", field->enumeration->names[1],
                      field->enumeration->names[0]);
        break;
    case AB_OBJ:
        put_members(out, field->sub, 0, AB_CREATE);
        break;
    case AB_LIST:
        ab_buf_char(out, '[');
        put_members(out, field->sub, 0, AB_CREATE);
        ab_buf_char(out, ']');
        break;
    case AB_MAP:
        ab_buf_str(out, "{\"slot\":");
        put_members(out, field->sub, 1, AB_CREATE);
        ab_buf_char(out, '}');
        break;
    case AB_KINDS:
        break;
    }
}

static void put_members(struct ab_buf *out, const struct ab_schema *schema, int first,
                        unsigned role)
{
    const char *comma = "";
    ab_buf_char(out, '{');
    for (int i = first; i < schema->n_fields; i++) {
        const struct ab_field *field = &schema->fields[i];
        if (!(field->flags & role))
            continue;
        ab_buf_printf(out, "%s\"%s\":", comma, field->name);
        put_value(out, schema, field);
        comma = ",";
    }
    ab_buf_char(out, '}');
}

static const char *form_value(const struct ab_schema *schema, const struct ab_field *field)
{
    if (strcmp(field->name, "grant_type") == 0)
        return strcmp(schema->name, "login") == 0 ? "password"
                                                  : "urn:ietf:params:oauth:grant-type:device_code";
    return field->kind == AB_BOOL   ? "true"
           : field->kind == AB_UUID ? "01234567-89ab-cdef-0123-456789abcdef"
                                    : "t%C3%A9xt";
}

static void put_form(struct ab_buf *out, const struct ab_schema *schema)
{
    for (int i = 0; i < schema->n_fields; i++)
        ab_buf_printf(out, "%s%s=%s", i > 0 ? "&" : "", schema->fields[i].name,
                      form_value(schema, &schema->fields[i]));
}

void sample_body(struct ab_buf *out, const struct ab_route *route)
{
    if (route->body_form == AB_BODY_FORM) {
        put_form(out, route->body);
        return;
    }
    if (route->body_form == AB_BODY_LIST)
        ab_buf_char(out, '[');
    put_members(out, route->body, 0, route->role);
    if (route->body_form == AB_BODY_LIST)
        ab_buf_char(out, ']');
}

static const char *query_value(const struct ab_field *field)
{
    switch (field->kind) {
    case AB_BOOL:
        return "True";
    case AB_I32:
    case AB_I64:
        return "17";
    case AB_TIME:
        return "2026-01-02+03:04:05.000678";
    case AB_ENUM:
    case AB_ENUMS:
        return field->enumeration->names[1];
    case AB_TAGS:
        return "k:v%3Aw";
    case AB_IDS:
        return "70000";
    default:
        return "t%C3%A9xt";
    }
}

void sample_query(struct ab_buf *out, const struct ab_schema *query)
{
    for (int i = 0; i < query->n_fields; i++)
        ab_buf_printf(out, "%s%s=%s", i > 0 ? "&" : "", query->fields[i].name,
                      query_value(&query->fields[i]));
}
