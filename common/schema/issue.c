/* issue.c - what is wrong with a request, in the contract's form */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void ab_issues_free(struct ab_issues *self)
{
    ab_buf_free(&self->list);
    self->n = 0;
}

void ab_issue(struct ab_issues *self, const char *loc, const char *type, const char *msg,
              const char *ctx)
{
    bool shown = self->n < AB_ISSUES_SHOWN || self->of_new_item;
    self->n++;
    self->of_new_item = false;
    if (!shown)
        return;
    if (self->list.len > 0)
        ab_buf_char(&self->list, ',');
    ab_buf_str(&self->list, "{\"loc\":");
    ab_buf_str(&self->list, loc);
    ab_buf_str(&self->list, ",\"msg\":");
    ab_buf_json_str(&self->list, msg, strlen(msg));
    ab_buf_str(&self->list, ",\"type\":");
    ab_buf_json_str(&self->list, type, strlen(type));
    if (ctx) {
        ab_buf_str(&self->list, ",\"ctx\":");
        ab_buf_str(&self->list, ctx);
    }
    ab_buf_char(&self->list, '}');
}

static void render_place(struct ab_buf *out, const struct ab_place *place)
{
    if (place->up) {
        render_place(out, place->up);
        ab_buf_str(out, ",");
    }
    if (place->name)
        ab_buf_json_str(out, place->name, place->name_len < 256 ? place->name_len : 256);
    else
        ab_buf_int(out, (int64_t)place->index);
}

void ab_check_issue(struct ab_check *self, const struct ab_place *place, const char *type,
                    const char *msg, const char *ctx)
{
    struct ab_buf loc = {0};
    ab_buf_char(&loc, '[');
    render_place(&loc, place);
    ab_buf_char(&loc, ']');
    ab_issue(self->issues, loc.data, type, msg, ctx);
    ab_buf_free(&loc);
}

void ab_check_limit(struct ab_check *self, const struct ab_place *place, const char *type,
                    const char *that, int64_t limit, const char *unit)
{
    char msg[96], ctx[64];
    snprintf(msg, sizeof(msg), "ensure this value %s %" PRId64 "%s", that, limit, unit);
    snprintf(ctx, sizeof(ctx), "{\"limit_value\":%" PRId64 "}", limit);
    ab_check_issue(self, place, type, msg, ctx);
}

/* Issues of texts; false when there is one. */
bool ab_check_came(struct ab_check *self, const struct ab_place *place, enum ab_coerced rc,
                   const char *type, const char *msg)
{
    switch (rc) {
    case AB_CO_OK:
        return true;
    case AB_CO_BYTES:
        ab_check_issue(self, place, "value_error",
                       "text with NUL or half a surrogate pair cannot be stored", NULL);
        return false;
    case AB_CO_SCHEME:
        ab_check_issue(self, place, "value_error.url.scheme", "invalid or missing URL scheme",
                       NULL);
        return false;
    case AB_CO_HOST:
        ab_check_issue(self, place, "value_error.url.host", "URL host invalid", NULL);
        return false;
    case AB_CO_PORT:
        ab_check_issue(self, place, "value_error.url.port",
                       "URL port invalid, port cannot exceed 65535", NULL);
        return false;
    case AB_CO_EMPTY:
        ab_check_limit(self, place, "value_error.any_str.min_length", "has at least", 1,
                       " characters");
        return false;
    default:
        ab_check_issue(self, place, type, msg, NULL);
        return false;
    }
}
