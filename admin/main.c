/* main.c - abies-admin: migrations, keys, users, checks
 *
 * The only program besides the services that talks to the database.
 */
#include "admin.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "crypt/crypt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    URL_MAX = 4096,
    OPTIONS_MAX = 12
};

static const struct command commands[] = {
    {"init", "Make what is missing: secrets, CURVE keys, tables, passwords of the roles", "dsc",
     cmd_init},
    {"migrate", "Bring the tables up to this program's version", "d", cmd_migrate},
    {"roles", "Set the passwords of the services' database roles from files", "dsp", cmd_roles},
    {"keys init", "Make CURVE key pairs and the key that seals secrets, where missing", "sc",
     cmd_keys_init},
    {"keys list", "List the keys that sign tokens", "dj", cmd_keys_list},
    {"keys rotate", "Sign new tokens with a new key", "ds", cmd_keys_rotate},
    {"users add", "Make a user", "dnw", cmd_users_add},
    {"users passwd", "Set a user's password, and end what logged in with the old one", "dnwe",
     cmd_users_passwd},
    {"users disable", "Lock a user out, sites included, within seconds", "dne", cmd_users_disable},
    {"users enable", "Let a user in again", "dn", cmd_users_enable},
    {"users rm", "Delete a user with all sites and jobs", "dny", cmd_users_rm},
    {"users limit", "Say how many jobs and sites a user may have", "dnu", cmd_users_limit},
    {"users ls", "List the users", "dj", cmd_users_ls},
    {"audit", "Show sign-ins, token and operators' actions", "daj", cmd_audit},
    {"check", "Compare counters, events and leases with what is stored", "dj", cmd_check},
    {"doctor", "Look at everything that a deployment needs, say what is wrong and what to do",
     "dsctjf", cmd_doctor},
    {0},
};

static void print_commands(FILE *out)
{
    fputs("Usage: abies-admin COMMAND [OPTIONS]\n\nCommands:\n", out);
    for (const struct command *c = commands; c->words; c++)
        fprintf(out, "  %-15s%s\n", c->words, c->about);
    fputs("\nabies-admin COMMAND --help shows the options of a command.\n", out);
}

/* "keys list" are two arguments, "check" is one. How many, 0: not this command. */
static int matches(const struct command *c, int argc, char **argv)
{
    const char *space = strchr(c->words, ' ');
    size_t n = space ? (size_t)(space - c->words) : strlen(c->words);
    if (argc < 2 || strlen(argv[1]) != n || memcmp(argv[1], c->words, n) != 0)
        return 0;
    if (!space)
        return 1;
    return argc >= 3 && strcmp(argv[2], space + 1) == 0 ? 2 : 0;
}

static bool takes(const struct command *c, char option)
{
    return strchr(c->options, option) != NULL;
}

/* 0 go on, 1 --help was printed, -1 error. */
static int read_options(const struct command *c, struct admin *admin, int argc, char **argv,
                        struct ab_error *err)
{
    struct ab_opt options[OPTIONS_MAX] = {0};
    char program[64];
    int n = 0, words = matches(c, argc, argv);
    options[n++] = (struct ab_opt)AB_OPT_TEXT(
        0, "home", &admin->home, "DIR",
        "of a local centre: stands for its secrets, curve, tls, url-abies");
    if (takes(c, 'd'))
        options[n++] = (struct ab_opt)AB_OPT_TEXT(
            0, "database-url", &admin->database_url, "URL",
            "of the tables' owner; or ABIES_DATABASE_URL, ABIES_DATABASE_URL_FILE");
    if (takes(c, 's'))
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "secrets", &admin->secrets_dir, "DIR",
                                                  "folder of db-<role> and seal.key");
    if (takes(c, 'p'))
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "passwords-dir", &admin->secrets_dir, "DIR",
                                                  "the same as --secrets");
    if (takes(c, 'c'))
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "curve-dir", &admin->curve_dir, "DIR",
                                                  "folder of the CURVE keys");
    if (takes(c, 't'))
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "tls-dir", &admin->tls_dir, "DIR",
                                                  "folder of the certificates");
    if (takes(c, 'n'))
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "user", &admin->user, "NAME",
                                                  "the user; or just the name");
    if (takes(c, 'w')) {
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "password-file", &admin->password_file, "FILE",
                                                  "the password; - is standard input [asked for]");
        options[n++] =
            (struct ab_opt)AB_OPT_FLAG(0, "no-password", &admin->no_password,
                                       "none: signs in through the provider, or not at all");
    }
    if (takes(c, 'e'))
        options[n++] = (struct ab_opt)AB_OPT_FLAG(0, "end-tokens", &admin->end_tokens,
                                                  "end the tokens of sites and scripts as well");
    if (takes(c, 'y'))
        options[n++] = (struct ab_opt)AB_OPT_FLAG('y', "yes", &admin->yes, "yes, for good");
    if (takes(c, 'a')) {
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "user", &admin->user, "NAME",
                                                  "only what was done by or to this user");
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "since", &admin->since, "DURATION",
                                                  "only of so long, e.g. 24h");
        options[n++] =
            (struct ab_opt)AB_OPT_TEXT(0, "limit", &admin->limit, "N", "at most the last N [1000]");
        options[n++] = (struct ab_opt)AB_OPT_FLAG(0, "failed", &admin->failed, "only what failed");
    }
    if (takes(c, 'f'))
        options[n++] = (struct ab_opt)AB_OPT_TEXT(0, "min-free", &admin->min_free, "SIZE",
                                                  "a disk with less left is full [1GiB]");
    if (takes(c, 'u')) {
        options[n++] = (struct ab_opt)AB_OPT_TEXT(
            0, "max-jobs", &admin->max_jobs, "N",
            "jobs that have not ended: a number, `none`, or `default` (the setting max_jobs)");
        options[n++] = (struct ab_opt)AB_OPT_TEXT(
            0, "max-sites", &admin->max_sites, "N",
            "sites: a number, `none`, or `default` (the setting max_sites)");
    }
    if (takes(c, 'j'))
        options[n++] = (struct ab_opt)AB_OPT_FLAG(0, "json", &admin->json, "print JSON");
    snprintf(program, sizeof(program), "abies-admin %s", c->words);
    argc -= words;
    argv += words;
    int rc = ab_opt_parse(program, takes(c, 'n') ? "[OPTIONS] NAME" : "[OPTIONS]", c->about,
                          options, &argc, &argv, err);
    if (rc == 0 && argc == 2 && takes(c, 'n') && !admin->user) {
        admin->user = argv[1];
        return 0;
    }
    if (rc == 0 && argc > 1)
        return ab_fail(err, AB_EINVAL, "%s takes no argument `%s`", program, argv[1]);
    return rc;
}

/* What --home stands for, unless it was said otherwise. */
static int use_home(struct admin *admin, struct ab_error *err)
{
    static char secrets[URL_MAX], curve[URL_MAX], tls[URL_MAX], url[URL_MAX];
    if (!admin->home)
        return 0;
    if (strlen(admin->home) > URL_MAX - 40)
        return ab_fail(err, AB_EINVAL, "the name of the home folder is too long");
    snprintf(secrets, sizeof(secrets), "%s/secrets", admin->home);
    snprintf(curve, sizeof(curve), "%s/curve", admin->home);
    snprintf(tls, sizeof(tls), "%s/tls", admin->home);
    snprintf(url, sizeof(url), "%s/secrets/url-abies", admin->home);
    admin->secrets_dir = admin->secrets_dir ? admin->secrets_dir : secrets;
    admin->curve_dir = admin->curve_dir ? admin->curve_dir : curve;
    admin->tls_dir = admin->tls_dir ? admin->tls_dir : tls;
    admin->url_file = url;
    return 0;
}

int admin_read_url(const char *path, struct ab_buf *out, struct ab_error *err)
{
    if (ab_file_read(path, URL_MAX - 1, out, err) < 0)
        return -1;
    while (out->len > 0 && (out->data[out->len - 1] == '\n' || out->data[out->len - 1] == ' '))
        out->len--;
    ab_buf_char(out, '\0');
    if (out->failed)
        return ab_fail(err, AB_EINTERNAL, "no memory");
    out->len--;
    return 0;
}

/* A file, because a URL may hold a password: the home's, else that of ABIES_DATABASE_URL_FILE. */
static int find_url(struct admin *admin, struct ab_error *err)
{
    static char from_file[URL_MAX];
    const char *path = admin->url_file ? admin->url_file : getenv("ABIES_DATABASE_URL_FILE");
    if (admin->database_url) {
        const char *at = strchr(admin->database_url, '@'),
                   *user = strstr(admin->database_url, "://");
        if (strstr(admin->database_url, "password=")
            || (at && user && memchr(user + 3, ':', (size_t)(at - user - 3))))
            return ab_fail(
                err, AB_EINVAL,
                "--database-url holds a password, which every user of this machine could read: "
                "put the URL into a file and name it with ABIES_DATABASE_URL_FILE");
        return 0;
    }
    admin->database_url = admin->url_file ? NULL : getenv("ABIES_DATABASE_URL");
    if (admin->database_url && *admin->database_url)
        return 0;
    if (!path || !*path)
        return ab_fail(err, AB_EINVAL,
                       "which database? use --home, --database-url, ABIES_DATABASE_URL or "
                       "ABIES_DATABASE_URL_FILE");
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    if (admin_read_url(path, &text, err) < 0)
        return -1;
    snprintf(from_file, sizeof(from_file), "%.*s", (int)text.len, text.data ? text.data : "");
    admin->database_url = from_file;
    return 0;
}

int admin_open(struct admin *admin, struct ab_error *err)
{
    if (admin->db)
        return 0;
    if (find_url(admin, err) < 0)
        return -1;
    admin->db = ab_db_open(admin->database_url, "abies-admin", err);
    return admin->db ? 0 : -1;
}

int admin_need(const char *value, const char *option, struct ab_error *err)
{
    if (value && *value)
        return 0;
    return ab_fail(err, AB_EINVAL, "%s DIR is missing", option);
}

static int run(const struct command *c, int argc, char **argv)
{
    struct admin admin = {0};
    struct ab_error err = {0};
    int rc = read_options(c, &admin, argc, argv, &err);
    if (rc == 1)
        return 0;
    int failed = rc < 0 ? 2 : 1;
    if (rc == 0)
        rc = use_home(&admin, &err);
    if (rc == 0)
        rc = c->run(&admin, &err);
    ab_db_close(&admin.db);
    if (rc < 0)
        fprintf(stderr, "abies-admin: %s\n", err.text);
    return rc == 0 ? 0 : rc > 0 ? 1 : failed;
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_commands(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("abies-admin " AB_VERSION);
        return 0;
    }
    ab_crypt_init();
    for (const struct command *c = commands; c->words; c++)
        if (matches(c, argc, argv) > 0)
            return run(c, argc, argv);
    fprintf(stderr, "abies-admin: there is no command `%s%s%s`: abies-admin --help lists them\n",
            argv[1], argc > 2 ? " " : "", argc > 2 ? argv[2] : "");
    return 2;
}
