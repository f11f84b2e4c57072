/* audit.c - rows of table `audit`, which only ever grows from here */
#include "audit.h"

#include "audit.sql.h"
#include "base/str.h"
#include <inttypes.h>
#include <string.h>

/* At most max bytes, cut at a character. */
static const char *cut(struct ab_call *call, const char *text, size_t max)
{
    size_t n = text ? strlen(text) : 0;
    if (n <= max)
        return text ? text : "";
    while (max > 0 && ((unsigned char)text[max] & 0xC0) == 0x80)
        max--;
    return ab_strndup(call->arena, text, max);
}

int audit_add(struct ab_call *call, const struct audit *what, struct ab_error *err)
{
    if (what->user)
        ab_bind_int(call, "audit_user", what->user);
    else
        ab_bind_null(call, "audit_user");
    ab_bind_text(call, "actor", cut(call, what->actor, 200));
    ab_bind_text(call, "action", what->action);
    ab_bind_text(call, "outcome", what->ok ? "ok" : "failed");
    ab_bind_text(call, "peer", cut(call, call->peer, 200));
    ab_bind_text(call, "request", call->request_id);
    ab_bind_text(call, "detail", cut(call, what->detail, 1000));
    return ab_run(call, &SQL_audit_add, err) ? 0 : -1;
}

int audit_forget(struct ab_call *call, struct ab_error *err)
{
    int64_t keep_ms = ab_conf_ms(call->conf, "audit_keep");
    if (keep_ms == 0)
        return 0;
    ab_bind_text(call, "age", ab_printf(call->arena, "%" PRId64 " ms", keep_ms));
    PGresult *r = ab_run(call, &SQL_audit_old, err);
    return !r ? -1 : ab_col_int(r, 0, 0) >= 10000;
}
