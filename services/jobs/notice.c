/* notice.c - what subscribers of /subscribe-user are told */
#include "notice.h"

#include "base/cleanup.h"
#include "lifecycle/lifecycle.h"

enum {
    WHOLE_BYTES = 64 * 1024,
    IDS_MOST = 5000,
};

void notice_reply(struct ab_call *call, const char *action, const char *type)
{
    ab_notice(call, action, type, &call->reply);
}

static void pack_member(struct ab_buf *out, const struct ab_schema *schema, int field,
                        const void *item)
{
    const struct ab_head *head = item;

    ab_pack_str(out, schema->fields[field].name);
    if (head->null >> field & 1)
        ab_pack_nil(out);
    else
        ab_pack_field(out, &schema->fields[field], item);
}

void notice_changes(struct ab_call *call, const char *type, const struct ab_schema *schema,
                    const void *fields, int64_t id)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    const struct ab_head *head = fields;
    uint32_t n = 1;

    for (int i = 0; i < schema->n_fields; i++)
        n += (schema->fields[i].flags & AB_UPDATE) && (head->has >> i & 1);
    ab_pack_map(&data, n);
    for (int i = 0; i < schema->n_fields; i++) {
        if (!(schema->fields[i].flags & AB_UPDATE) || !(head->has >> i & 1))
            continue;
        pack_member(&data, schema, i, fields);
    }
    ab_pack_str(&data, "id");
    ab_pack_int(&data, id);
    ab_notice(call, "update", type, &data);
}

void notice_id(struct ab_call *call, const char *action, const char *type, int64_t id)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    ab_pack_map(&data, 1);
    ab_pack_str(&data, "id");
    ab_pack_int(&data, id);
    ab_notice(call, action, type, &data);
}

void notice_ids(struct ab_call *call, const char *action, const char *type, const int64_t *ids,
                size_t n)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    ab_pack_map(&data, 1);
    ab_pack_str(&data, "ids");
    ab_pack_array(&data, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        ab_pack_int(&data, ids[i]);
    ab_notice(call, action, type, &data);
}

/* ---- jobs */

void notice_many(struct ab_call *call, const char *action, const int64_t *ids, size_t n,
                 int64_t count)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    size_t named = n < IDS_MOST ? n : IDS_MOST;

    if (count == 0)
        return;
    ab_pack_map(&data, 2);
    ab_pack_str(&data, "ids");
    ab_pack_array(&data, (uint32_t)named);
    for (size_t i = 0; i < named; i++)
        ab_pack_int(&data, ids[i]);
    ab_pack_str(&data, "count");
    ab_pack_int(&data, count);
    ab_notice(call, action, "job", &data);
}

void notice_created(struct ab_call *call, const int64_t *ids, size_t n, bool whole)
{
    if (whole && n <= AB_STEP_TELLS && call->reply.len <= WHOLE_BYTES)
        ab_notice(call, "bulk-create", "job", &call->reply);
    else
        notice_many(call, "bulk-create", ids, n, (int64_t)n);
}

/* What a job shows of itself and an update may change, but for the state. */
static bool is_change(const struct job *item, int field)
{
    unsigned flags = ab_schema_job.fields[field].flags;
    return (item->has >> field & 1) && (flags & AB_UPDATE) && (flags & AB_OUT)
           && field != AB_FIELD_job_state && field != AB_FIELD_job_lease;
}

static const int64_t *state_of(const struct ab_step_result *step, int64_t id)
{
    for (size_t i = 0; i < step->moved_ids.n && i < step->moved_to.n; i++)
        if (step->moved_ids.v[i] == id)
            return &step->moved_to.v[i];
    return NULL;
}

static void pack_change(struct ab_buf *out, const struct job *item,
                        const struct ab_step_result *step)
{
    const int64_t *state = state_of(step, item->id);
    uint32_t n = 1 + (state != NULL);

    for (int i = 0; i < ab_schema_job.n_fields; i++)
        n += is_change(item, i);
    ab_pack_map(out, n);
    ab_pack_str(out, "id");
    ab_pack_int(out, item->id);
    if (state) {
        ab_pack_str(out, "state");
        ab_pack_str(out, ab_enum_job_state.names[*state]);
    }
    for (int i = 0; i < ab_schema_job.n_fields; i++) {
        if (is_change(item, i))
            pack_member(out, &ab_schema_job, i, item);
    }
}

static void notice_ids_of(struct ab_call *call, const struct job *items, size_t n)
{
    int64_t *ids = ab_alloc(call->arena, n ? n : 1, sizeof(*ids));
    for (size_t i = 0; i < n; i++)
        ids[i] = items[i].id;
    notice_many(call, "bulk-update", ids, n, (int64_t)n);
}

void notice_changed(struct ab_call *call, const struct job *items, size_t n,
                    const struct ab_step_result *step)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};

    if (n > AB_STEP_TELLS) {
        notice_ids_of(call, items, n);
        return;
    }
    ab_pack_array(&data, (uint32_t)n);
    for (size_t i = 0; i < n && data.len <= WHOLE_BYTES; i++)
        pack_change(&data, &items[i], step);
    if (data.len > WHOLE_BYTES)
        notice_ids_of(call, items, n);
    else
        ab_notice(call, "bulk-update", "job", &data);
}
