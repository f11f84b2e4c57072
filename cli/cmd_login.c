/* cmd_login.c - login, logout, register, whoami */
#include "account.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/opt.h"
#include "base/str.h"
#include "cli.h"
#include "client/api.h"
#include "output.h"
#include "schema/json.h"
#include <assert.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 6200
#define READ_TIMEOUT_MS 120000
#define RETRY_COUNT 10

struct sign_in {
    const char *url, *ca_file, *proxy, *username, *password_file;
    bool force, json, device;
    ab_arena_t *arena;
};

/* The file that a login writes; what an earlier one says about proxy and times is kept. */
static int load_or_make(const struct sign_in *o, struct ab_client_file *file, bool *there,
                        struct ab_error *err)
{
    struct ab_error why = {0};
    *there = ab_client_file_load(file, NULL, &why) == 0;
    if (!*there && why.code != AB_ENOENT)
        return ab_fail(err, why.code, "%s", why.text);
    if (*there)
        return 0;
    const char *named = getenv("ABIES_CLIENT_PATH"), *home = getenv("HOME");
    const struct passwd *pw = getpwuid(geteuid());
    const char *path = named && *named ? named
                                       : ab_printf(o->arena, "%s/.abies/client.yml",
                                                   home && *home ? home
                                                   : pw          ? pw->pw_dir
                                                                 : "/");
    *file = (struct ab_client_file){.path = strdup(path),
                                    .connect_timeout_ms = CONNECT_TIMEOUT_MS,
                                    .read_timeout_ms = READ_TIMEOUT_MS,
                                    .retry_count = RETRY_COUNT};
    return 0;
}

static void replace(char **text, const char *with)
{
    free(*text);
    *text = with && *with ? strdup(with) : NULL;
}

static int apply(const struct sign_in *o, struct ab_client_file *file, bool there,
                 struct ab_error *err)
{
    char real[4096];
    if (!o->url && !there)
        return ab_fail(err, AB_EINVAL,
                       "which centre? Give its address: --url https://HOST:8443 (or run `abies up` "
                       "for one of your own)");
    if (o->url)
        replace(&file->api_root, account_root(o->arena, o->url));
    if (o->ca_file && !realpath(o->ca_file, real))
        return ab_fail_errno(err, AB_EINVAL, "cannot read --ca-file `%s`", o->ca_file);
    if (o->ca_file)
        replace(&file->ca_file, real);
    if (o->proxy)
        replace(&file->proxy, o->proxy);
    return 0;
}

static int get_password(const struct sign_in *o, bool twice, const char **out, struct ab_error *err)
{
    if (o->password_file) {
        AB_AUTO(ab_buf_free) struct ab_buf text = {0};
        bool is_stdin = strcmp(o->password_file, "-") == 0;
        if (ab_file_read(is_stdin ? "/dev/stdin" : o->password_file, 4096, &text, err) < 0)
            return -1;
        *out = ab_strndup(o->arena, text.data ? text.data : "",
                          text.data ? strcspn(text.data, "\r\n") : 0);
        if (text.data)
            explicit_bzero(text.data, text.len);
        return 0;
    }
    *out = ask_line(o->arena, "Password", true, err);
    const char *again = *out && twice ? ask_line(o->arena, "Password again", true, err) : *out;
    if (!again)
        return -1;
    return strcmp(*out, again) == 0 ? 0 : ab_fail(err, AB_EINVAL, "the two passwords differ");
}

static int me(const struct ab_client_file *file, ab_arena_t *arena, const struct ab_value **out,
              struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 65536};
    AB_AUTO(ab_api_destroy) ab_api_t *api = ab_api_new(file, true, err);
    struct ab_api_options options = {.retries = 2};
    if (!api)
        return -1;
    int status = ab_api_call(api, "GET", "/auth/password/me", NULL, 0, &options, &reply, err);
    if (status != 200)
        return -1;
    *out = ab_value_parse(arena, reply.data, reply.len, err);
    return *out ? 0 : -1;
}

static int save(const struct sign_in *o, const struct ab_client_file *file, struct ab_error *err)
{
    const char *slash = strrchr(file->path, '/');
    if (slash && slash != file->path
        && ab_mkdirs(ab_strndup(o->arena, file->path, (size_t)(slash - file->path)), 0700, err) < 0)
        return -1;
    return ab_client_file_save(file, err);
}

static void say_done(const struct sign_in *o, const struct ab_client_file *file, const char *what,
                     const char *user)
{
    assert(file->api_root); /* apply() has seen to it */
    if (!o->json) {
        printf("%s as ", what);
        print_clean(stdout, user);
        printf(" at %s\n", file->api_root);
        return;
    }
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_buf_str(&out, "{\"username\":");
    ab_buf_json_str(&out, user, strlen(user));
    ab_buf_str(&out, ",\"api_root\":");
    ab_buf_json_str(&out, file->api_root, strlen(file->api_root));
    printf("%s}\n", out.data);
}

#define LOGIN_OPTIONS(o)                                                                           \
    AB_OPT_TEXT('u', "url", &(o).url, "URL",                                                       \
                "address of the centre, e.g. https://abies.example.org:8443"),                     \
        AB_OPT_TEXT(0, "username", &(o).username, "NAME", "user name [asked for]"),                \
        AB_OPT_TEXT(0, "password-file", &(o).password_file, "FILE",                                \
                    "read the password from there; - is standard input"),                          \
        AB_OPT_TEXT(0, "ca-file", &(o).ca_file, "FILE",                                            \
                    "certificates to trust instead of the system's"),                              \
        AB_OPT_TEXT(0, "proxy", &(o).proxy, "URL", "HTTPS proxy; empty for none"),                 \
        AB_OPT_FLAG('j', "json", &(o).json, "print JSON")

/* Who names a user or a file means a password; else what the centre offers first. */
static int choose_way(const struct sign_in *o, const struct ab_client_file *file, bool *on_device,
                      struct ab_error *err)
{
    struct account_ways ways;
    *on_device = false;
    if (account_how(file, &ways, err) < 0)
        return -1;
    bool by_password = o->username || o->password_file;
    if (o->device ? !ways.device : by_password ? !ways.password : !ways.device && !ways.password)
        return ab_fail(err, AB_EINVAL, "%s takes no log-in %s", file->api_root,
                       o->device     ? "on another device: leave out --device"
                       : by_password ? "by password: leave out --username and --password-file"
                                     : "from a terminal");
    *on_device = o->device || (!by_password && ways.device);
    return 0;
}

static void show_device(void *arg, const struct account_device *device)
{
    (void)arg;
    fputs("To log in, open this address in a browser, on any machine:\n\n  ", stderr);
    print_clean(stderr, device->complete ? device->complete : device->where);
    fputs("\n\nOr open  ", stderr);
    print_clean(stderr, device->where);
    fputs("  and type the code\n\n  ", stderr);
    print_clean(stderr, device->code);
    fprintf(stderr, "\n\nWaiting for that, for at most %.0f min (Ctrl-C gives up).\n",
            device->minutes < 1 ? 1 : device->minutes);
}

static int sign_in_device(const struct sign_in *o, struct ab_client_file *file,
                          struct ab_error *err)
{
    const struct ab_value *user;
    if (account_login_device(file, show_device, NULL, err) < 0 || save(o, file, err) < 0
        || me(file, o->arena, &user, err) < 0)
        return -1;
    say_done(o, file, "logged in", ab_value_text(ab_value_get(user, "username"), "?"));
    return 0;
}

static int sign_in(struct sign_in *o, struct ab_error *err)
{
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    bool there;
    const struct ab_value *user;
    const char *password;
    if (load_or_make(o, &file, &there, err) < 0 || apply(o, &file, there, err) < 0)
        return -1;
    if (there && !o->force && !o->username && file.token && me(&file, o->arena, &user, NULL) == 0) {
        say_done(o, &file, "already logged in", ab_value_text(ab_value_get(user, "username"), "?"));
        return 0;
    }
    bool on_device;
    if (choose_way(o, &file, &on_device, err) < 0)
        return -1;
    if (on_device)
        return sign_in_device(o, &file, err);
    const char *name = o->username ? o->username : ask_line(o->arena, "User name", false, err);
    if (!name || get_password(o, false, &password, err) < 0
        || account_login(&file, name, password, err) < 0 || save(o, &file, err) < 0)
        return -1;
    say_done(o, &file, "logged in", name);
    return 0;
}

int cmd_login(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct sign_in o = {.arena = arena};
    const struct ab_opt options[] = {
        LOGIN_OPTIONS(o),
        AB_OPT_FLAG('f', "force", &o.force, "log in again though there is a valid login"),
        AB_OPT_FLAG('d', "device", &o.device,
                    "agree in a browser on any machine [if the centre offers it]"),
        {0},
    };
    int rc = ab_opt_parse(
        "abies login", "[URL] [OPTIONS]",
        "Log in to a centre.\n\nWhere the centre works with the sign-in of your facility, this "
        "shows an "
        "address and a code for a browser on\nany machine; with --username it asks for a password "
        "instead.\n\nThe login is kept in ~/.abies/client.yml (ABIES_CLIENT_PATH), "
        "readable by you alone, and renewed by "
        "itself.\nA centre of your own on this machine needs no login: see `abies up`.",
        options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc > 0 && !o.url) {
        o.url = *argv++;
        argc--;
    }
    return no_arguments(argc, argv, err) < 0 ? -1 : sign_in(&o, err);
}

int cmd_register(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    struct sign_in o = {.arena = arena};
    bool there;
    const struct ab_opt options[] = {
        LOGIN_OPTIONS(o),
        {.letter = 'a',
         .name = "address",
         .kind = AB_OPT_KIND_TEXT,
         .out = &o.url,
         .value = "URL",
         .text = "the same as --url"},
        {0},
    };
    int rc = ab_opt_parse("abies register", "[OPTIONS]", "Create a user at a centre, and log in.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (load_or_make(&o, &file, &there, err) < 0 || apply(&o, &file, there, err) < 0)
        return -1;
    const char *name = o.username ? o.username : ask_line(arena, "User name", false, err),
               *password;
    if (!name || get_password(&o, true, &password, err) < 0
        || account_register(&file, name, password, err) < 0
        || account_login(&file, name, password, err) < 0 || save(&o, &file, err) < 0)
        return -1;
    say_done(&o, &file, "registered and logged in", name);
    return 0;
}

int cmd_whoami(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    struct sign_in o = {.arena = arena};
    const struct ab_value *user;
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &o.json, "print JSON"), {0}};
    int rc =
        ab_opt_parse("abies whoami", "[OPTIONS]", "Show who is logged in, and at which centre.",
                     options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (ab_client_file_load(&file, NULL, err) < 0 || me(&file, arena, &user, err) < 0)
        return -1;
    say_done(&o, &file, "logged in", ab_value_text(ab_value_get(user, "username"), "?"));
    return 0;
}

int cmd_logout(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    bool json = false;
    struct ab_error why = {0};
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &json, "print JSON"), {0}};
    int rc = ab_opt_parse("abies logout", "[OPTIONS]",
                          "Forget the login: takes the tokens out of the client file.", options,
                          &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (ab_client_file_load(&file, NULL, err) < 0)
        return -1;
    if (file.refresh_token && account_logout(&file, &why) < 0)
        fprintf(stderr, "the centre was not told, so the login ends there by itself: %s\n",
                why.text);
    replace(&file.token, NULL);
    replace(&file.refresh_token, NULL);
    file.token_expiry_us = 0;
    if (ab_client_file_save(&file, err) < 0)
        return -1;
    printf(json ? "{\"logged_out\":true}\n" : "logged out\n");
    return 0;
}
