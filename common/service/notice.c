/* notice.c - what goes to the gateways once a call is committed and answered
 *
 * Lossy by design: whoever needs it for certain asks the database as well.
 */
#include "skeleton.h"

static void add_hint(struct ab_call *call, char topic, int64_t owner, const struct ab_buf *body)
{
    struct ab_worker *worker = call->worker;
    struct hint *hint = ab_alloc(call->arena, 1, sizeof(*hint));
    hint->topic = topic;
    hint->owner = owner;
    hint->body = ab_memdup(call->arena, body->data ? body->data : "", body->len);
    hint->len = body->len;
    *worker->last_hint = hint;
    worker->last_hint = &hint->next;
}

void ab_notice(struct ab_call *call, const char *action, const char *type,
               const struct ab_buf *data)
{
    struct ab_buf body = {0};
    ab_pack_map(&body, 3);
    ab_pack_str(&body, "action");
    ab_pack_str(&body, action);
    ab_pack_str(&body, "type");
    ab_pack_str(&body, type);
    ab_pack_str(&body, "data");
    if (data && data->len)
        ab_buf_add(&body, data->data, data->len);
    else
        ab_pack_nil(&body);
    if (!body.failed)
        add_hint(call, 'n', call->owner_id, &body);
    ab_buf_free(&body);
}

void ab_hint_keys(struct ab_call *call)
{
    add_hint(call, 'k', 0, &(struct ab_buf){0});
}

void ab_hint_revoked(struct ab_call *call, const char *jti, int64_t expires)
{
    struct ab_buf body = {0};
    ab_pack_map(&body, 2);
    ab_pack_str(&body, "jti");
    ab_pack_str(&body, jti);
    ab_pack_str(&body, "expires");
    ab_pack_int(&body, expires);
    if (!body.failed)
        add_hint(call, 'r', call->owner_id, &body);
    ab_buf_free(&body);
}

void worker_hints(struct ab_worker *self, const struct ab_call *call, worker_hint_f *send,
                  void *arg)
{
    if (call->events)
        send(arg, 'e', call->owner_id, NULL, 0);
    for (size_t i = 0; i < call->event_owners.n; i++)
        send(arg, 'e', call->event_owners.v[i], NULL, 0);
    for (const struct hint *hint = self->hints; hint; hint = hint->next)
        send(arg, hint->topic, hint->owner, hint->body, hint->len);
}
