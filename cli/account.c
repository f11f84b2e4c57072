/* account.c - registering and logging in: by password, or on another device's browser */
#include "account.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/str.h"
#include "schema/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* The answer of a login that went well. */
static int take_tokens(struct ab_client_file *file, struct ab_buf *reply, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *doc = ab_value_parse(arena, reply->data, reply->len, err);
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
    explicit_bzero(reply->data, reply->len);
    return 0;
}

int account_login(struct ab_client_file *file, const char *username, const char *password,
                  struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf query = {0};
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    ab_api_query(&query, "grant_type", "password");
    ab_api_query(&query, "username", username);
    ab_api_query(&query, "password", password);
    ab_api_query(&query, "refresh", "1");
    struct ab_buf body = {.data = query.data + 1, .len = query.len - 1}; /* without '?' */
    int rc = call(file, "/auth/password/login", &body, true, &reply, err);
    explicit_bzero(query.data, query.len);
    if (rc < 0 && err && err->code == AB_EAUTH)
        return ab_fail_kind(err, AB_EAUTH, "bad_login",
                            "wrong user name or password, or the account is disabled");
    return rc < 0 ? -1 : take_tokens(file, &reply, err);
}

int account_logout(const struct ab_client_file *file, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    ab_buf_str(&body, "{\"refresh_token\":");
    ab_buf_json_str(&body, file->refresh_token, strlen(file->refresh_token));
    ab_buf_str(&body, "}");
    int rc = call(file, "/auth/token/revoke", &body, false, &reply, err);
    explicit_bzero(body.data, body.len);
    return rc;
}

int account_how(const struct ab_client_file *file, struct account_ways *out, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    AB_AUTO(ab_api_destroy) ab_api_t *api = ab_api_new(file, false, err);
    struct ab_api_options options = {.retries = 3, .no_token = true};
    *out = (struct account_ways){0};
    if (!api || ab_api_call(api, "GET", "/auth/how", NULL, 0, &options, &reply, err) != 200)
        return -1;
    const struct ab_value *list = ab_value_parse(arena, reply.data, reply.len, err);
    if (!list || list->type != AB_V_LIST)
        return ab_fail(err, AB_EUPSTREAM, "%s does not say how to log in; is it an Abies centre?",
                       file->api_root);
    for (size_t i = 0; i < list->n; i++) {
        const char *way = ab_value_text(&list->items[i], "");
        out->password |= strcmp(way, "LoginMethod.password") == 0;
        out->device |= strcmp(way, "LoginMethod.oauth_device") == 0;
    }
    return 0;
}

/* ---- on another device's browser (RFC 8628) */

struct wait {
    ab_api_t *api;
    ab_arena_t *arena;
    char client_id[AB_UUID_TEXT];
    const char *device_code;
    int64_t interval_ms, until_ms;
};

static int post_form(const struct wait *self, const char *path, struct ab_buf *query,
                     struct ab_buf *reply, struct ab_error *err)
{
    struct ab_api_options options = {.retries = 0, .form = true, .no_token = true};
    int status =
        ab_api_call(self->api, "POST", path, query->data + 1, query->len - 1, &options, reply, err);
    explicit_bzero(query->data, query->len);
    return status;
}

static int begin(struct wait *self, const struct ab_client_file *file, account_show_f *show,
                 void *arg, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf query = {0};
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    uint8_t id[16];
    ab_random(id, sizeof(id));
    id[6] = (uint8_t)(id[6] & 0x0f) | 0x40;
    id[8] = (uint8_t)(id[8] & 0x3f) | 0x80;
    ab_uuid_text(id, self->client_id);
    ab_api_query(&query, "client_id", self->client_id);
    int status = post_form(self, "/auth/device/login", &query, &reply, err);
    if (status < 0 || status >= 400)
        return -1;
    const struct ab_value *doc = ab_value_parse(self->arena, reply.data, reply.len, err);
    struct account_device device = {
        .code = ab_value_text(ab_value_get(doc, "user_code"), NULL),
        .where = ab_value_text(ab_value_get(doc, "verification_uri"), NULL),
        .complete = ab_value_text(ab_value_get(doc, "verification_uri_complete"), NULL),
    };
    double seconds = ab_value_real(ab_value_get(doc, "expires_in"), 300),
           pause = ab_value_real(ab_value_get(doc, "interval"), 5);
    self->device_code = ab_value_text(ab_value_get(doc, "device_code"), NULL);
    if (!self->device_code || !device.code || !device.where)
        return ab_fail(err, AB_EUPSTREAM, "%s began a log-in that cannot be used", file->api_root);
    self->interval_ms = (int64_t)(pause >= 0.1 && pause <= 60 ? pause * 1000 : 5000);
    self->until_ms =
        ab_now_ms() + (int64_t)(seconds >= 1 && seconds <= 86400 ? seconds * 1000 : 300000);
    device.minutes = (double)(self->until_ms - ab_now_ms()) / 60000;
    show(arg, &device);
    return 0;
}

static void pause_until(int64_t ms)
{
    struct timespec until = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* May another poll help? The centre is away for a moment, or the person has not answered yet. */
static bool again(struct wait *self, int status, const struct ab_error *err)
{
    if (status == 400 && strcmp(err->text, "slow_down") == 0)
        self->interval_ms += 5000;
    else if (status > 0 && status < 500 && status != 429
             && strcmp(err->text, "authorization_pending") != 0)
        return false;
    return err->code != AB_EINVAL || status > 0; /* a certificate does not get better by waiting */
}

static int explain(int status, struct ab_error *err)
{
    if (status == 403)
        return ab_fail(err, AB_EDENIED, "the log-in was declined in the browser");
    if (status == 400 && strcmp(err->text, "expired_token") == 0)
        return ab_fail(err, AB_ETIMEOUT, "nobody agreed to the log-in in time: try again");
    if (status == 400 && strcmp(err->text, "invalid_client") == 0)
        return ab_fail(err, AB_EINVAL, "the centre has forgotten this log-in: try again");
    return -1;
}

/* A poll each interval, counted from begin to begin: the centre may hold one back. */
static int wait_for_person(struct wait *self, struct ab_buf *reply, struct ab_error *err)
{
    for (int64_t next = ab_now_ms() + self->interval_ms;
         next<self->until_ms + self->interval_ms; next = ab_now_ms()> next + self->interval_ms
             ? ab_now_ms()
             : next + self->interval_ms) {
        AB_AUTO(ab_buf_free) struct ab_buf query = {0};
        pause_until(next);
        ab_api_query(&query, "grant_type", "urn:ietf:params:oauth:grant-type:device_code");
        ab_api_query(&query, "client_id", self->client_id);
        ab_api_query(&query, "device_code", self->device_code);
        ab_api_query(&query, "refresh", "1");
        *err = (struct ab_error){0};
        int status = post_form(self, "/auth/device/token", &query, reply, err);
        if (status == 200)
            return 0;
        if (!again(self, status, err))
            return explain(status, err);
    }
    (void)ab_fail(err, AB_EINVAL, "expired_token");
    return explain(400, err);
}

int account_login_device(struct ab_client_file *file, account_show_f *show, void *arg,
                         struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    AB_AUTO(ab_api_destroy) ab_api_t *api = ab_api_new(file, false, err);
    struct wait wait = {.api = api, .arena = arena};
    if (!api || begin(&wait, file, show, arg, err) < 0 || wait_for_person(&wait, &reply, err) < 0)
        return -1;
    return take_tokens(file, &reply, err);
}
