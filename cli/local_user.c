/* local_user.c - the account of whoever ran `abies up` */
#include "local_user.h"

#include "account.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"
#include "centre/secrets.h"
#include "client/api.h"
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 6200
#define READ_TIMEOUT_MS 120000
#define RETRY_COUNT 10
#define ADMIN_LIMIT_MS 60000
#define SOON_US (INT64_C(300) * 1000000)

static const char *user_name(void)
{
    const struct passwd *pw = getpwuid(geteuid());
    return pw && *pw->pw_name ? pw->pw_name : "local";
}

static char *default_path(const struct centre *centre)
{
    const char *named = getenv("ABIES_CLIENT_PATH"), *home = getenv("HOME");
    if (named && *named)
        return strdup(named);
    if (!home || !*home) {
        const struct passwd *pw = getpwuid(geteuid());
        home = pw ? pw->pw_dir : "/";
    }
    return strdup(ab_printf(centre->arena, "%s/.abies/client.yml", home));
}

/* Does the token still serve? Asked of the centre: it may have a new database. */
static bool token_works(const struct ab_client_file *file)
{
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    struct ab_error err = {0};
    AB_AUTO(ab_api_destroy) ab_api_t *api = ab_api_new(file, true, &err);
    struct ab_api_options options = {.retries = 2};
    return api && file->token
           && (file->refresh_token || file->token_expiry_us > ab_utc_us() + SOON_US)
           && ab_api_call(api, "GET", "/auth/password/me", NULL, 0, &options, &reply, &err) == 200;
}

static int add_as_operator(const struct centre *centre, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf output = {.limit = 65536};
    const char *argv[] = {ab_find_program("abies-admin"),
                          "users",
                          "add",
                          user_name(),
                          "--home",
                          centre->home,
                          "--password-file",
                          centre_path(centre, "secrets/local-user"),
                          NULL};
    struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1};
    int status = 0;
    if (!argv[0])
        return ab_fail(err, AB_ENOENT, "program abies-admin is not installed beside this one");
    if (ab_run_command(&what, ADMIN_LIMIT_MS, &output, &status, err) < 0)
        return -1;
    ab_buf_str(&output, "");
    return ab_exit_code(status) == 0 ? 0 : ab_fail(err, AB_EDENIED, "%s", output.data);
}

static int register_and_login(const struct centre *centre, struct ab_client_file *file,
                              struct ab_error *err)
{
    const char *password = secret_read(centre, "local-user", err);
    struct ab_error why = {0};
    if (!password)
        return -1;
    if (account_login(file, user_name(), password, &why) == 0)
        return 0;
    int made = account_register(file, user_name(), password, &why);
    if (made < 0 && why.code == AB_EDENIED) /* open_registration is off: we are the operator */
        made = add_as_operator(centre, &why);
    if (made < 0)
        return ab_fail(err, why.code, "cannot register user %s at %s: %s", user_name(),
                       file->api_root, why.text);
    return account_login(file, user_name(), password, err) < 0
               ? ab_fail_within(err, "login of %s", user_name())
               : 0;
}

static int make_parent(const struct centre *centre, const char *path, struct ab_error *err)
{
    const char *slash = strrchr(path, '/');
    return slash && slash != path
               ? ab_mkdirs(ab_strndup(centre->arena, path, (size_t)(slash - path)), 0700, err)
               : 0;
}

int local_user_make(const struct centre *centre, struct ab_error *err)
{
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    AB_AUTO(ab_free) char *path = default_path(centre);
    const char *ca = centre_path(centre, "tls/ca.pem");
    bool there = access(path, F_OK) == 0;
    if (there && ab_client_file_load_path(&file, path, err) < 0)
        return -1;
    if (there && (!file.ca_file || strcmp(file.ca_file, ca) != 0))
        return 0;
    if (there && strcmp(file.api_root, centre_url(centre)) == 0 && token_works(&file))
        return 1;
    if (!there)
        file = (struct ab_client_file){.path = strdup(path),
                                       .ca_file = strdup(ca),
                                       .connect_timeout_ms = CONNECT_TIMEOUT_MS,
                                       .read_timeout_ms = READ_TIMEOUT_MS,
                                       .retry_count = RETRY_COUNT};
    free(file.api_root);
    file.api_root = strdup(centre_url(centre));
    struct account_ways ways;
    if (account_how(&file, &ways, err) < 0
        || (ways.password && register_and_login(centre, &file, err) < 0)
        || make_parent(centre, path, err) < 0 || ab_client_file_save(&file, err) < 0)
        return -1;
    return ways.password ? 1 : 2;
}
