/* notice.c - what subscribers of /subscribe-user are told */
#include "notice.h"

#include "base/cleanup.h"

void notice_reply(struct ab_call *call, const char *action, const char *type)
{
    ab_notice(call, action, type, &call->reply);
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
        ab_pack_str(&data, schema->fields[i].name);
        ab_pack_field(&data, &schema->fields[i], fields);
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
