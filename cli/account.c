/* account.c - registering and logging in by password */
#include "account.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "schema/json.h"
#include <stdlib.h>
#include <string.h>

const char *account_root(ab_arena_t *arena, const char *url)
{
    const char *scheme = strstr(url, "://") ? "" : "https://";
    char *root = ab_printf(arena, "%s%s", scheme, url);
    for (size_t n = strlen(root); n > 0 && root[n - 1] == '/'; n--)
        root[n - 1] = '\0';
    return root;
}

static int call(const struct ab_client_file *file, const char *path, const struct ab_buf *body,
                bool form, struct ab_buf *reply, struct ab_error *err)
{
    AB_AUTO(ab_api_destroy) ab_api_t *api = ab_api_new(file, false, err);
    struct ab_api_options options = {.retries = 3, .form = form, .no_token = true};
    if (!api)
        return -1;
    int status = ab_api_call(api, "POST", path, body->data, body->len, &options, reply, err);
    return status < 0 || status >= 400 ? -1 : 0;
}

int account_register(const struct ab_client_file *file, const char *username, const char *password,
                     struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    ab_buf_str(&body, "{\"username\":");
    ab_buf_json_str(&body, username, strlen(username));
    ab_buf_str(&body, ",\"password\":");
    ab_buf_json_str(&body, password, strlen(password));
    ab_buf_str(&body, "}");
    int rc = call(file, "/auth/password/register", &body, false, &reply, err);
    explicit_bzero(body.data, body.len);
    return rc;
}

static char *text_of(const struct ab_value *doc, const char *name)
{
    const char *text = ab_value_text(ab_value_get(doc, name), NULL);
    return text ? strdup(text) : NULL;
}

int account_login(struct ab_client_file *file, const char *username, const char *password,
                  struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf query = {0};
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    ab_api_query(&query, "grant_type", "password");
    ab_api_query(&query, "username", username);
    ab_api_query(&query, "password", password);
    ab_api_query(&query, "refresh", "1");
    struct ab_buf body = {.data = query.data + 1, .len = query.len - 1}; /* without '?' */
    int rc = call(file, "/auth/password/login", &body, true, &reply, err);
    explicit_bzero(query.data, query.len);
    if (rc < 0)
        return -1;
    const struct ab_value *doc = ab_value_parse(arena, reply.data, reply.len, err);
    const char *expiry = ab_value_text(ab_value_get(doc, "expiration"), "");
    if (!ab_value_text(ab_value_get(doc, "access_token"), NULL))
        return ab_fail(err, AB_EUPSTREAM,
                       "%s answered the login without a token; is it an Abies centre?",
                       file->api_root);
    free(file->token);
    free(file->refresh_token);
    file->token = text_of(doc, "access_token");
    file->refresh_token = text_of(doc, "refresh_token");
    file->token_expiry_us = 0;
    (void)ab_time_parse(expiry, strlen(expiry), &file->token_expiry_us);
    explicit_bzero(reply.data, reply.len);
    return 0;
}
