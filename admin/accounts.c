/* accounts.c - `abies-admin users add`, `passwd`, `disable`, `enable`, `rm`
 *
 * Whoever is locked out loses access everywhere within seconds: the gateways ask for it every five.
 */
#include "admin.h"
#include "admin.sql.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "crypt/crypt.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define NAME_MAX_CHARACTERS 100

static const struct ab_sql *const *const lists[] = {admin_sql, NULL};

/* ---- passwords */

static void forget(struct ab_buf *text)
{
    if (text->data)
        ab_wipe(text->data, text->cap);
    ab_buf_free(text);
}

static int read_line(struct ab_buf *out, const char *question, struct ab_error *err)
{
    struct termios before, quiet;
    char c;
    if (tcgetattr(STDIN_FILENO, &before) < 0)
        return ab_fail_errno(err, AB_EINVAL, "the terminal cannot be asked");
    quiet = before;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) < 0)
        return ab_fail_errno(err, AB_EINVAL, "the terminal cannot be silenced");
    fprintf(stderr,
            "%s: ", question); /* only now: an answer typed at once would be shown, and lost */
    ssize_t n;
    while ((n = read(STDIN_FILENO, &c, 1)) == 1 && c != '\n' && out->len < AB_PASSWORD_MAX)
        ab_buf_char(out, c);
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    fputs("\n", stderr);
    return n == 1 ? 0 : ab_fail(err, AB_EINVAL, "no password was typed");
}

static int ask_password(struct ab_buf *out, struct ab_error *err)
{
    AB_AUTO(forget) struct ab_buf again = {0};
    if (!isatty(STDIN_FILENO))
        return ab_fail(err, AB_EINVAL,
                       "no terminal to ask for a password: use --password-file FILE (- is standard "
                       "input) or --no-password");
    if (read_line(out, "Password", err) < 0 || read_line(&again, "Password again", err) < 0)
        return -1;
    if (out->len != again.len || (out->len && memcmp(out->data, again.data, out->len) != 0))
        return ab_fail(err, AB_EINVAL, "the two passwords differ");
    return 0;
}

static int read_file(const char *path, struct ab_buf *out, struct ab_error *err)
{
    if (ab_file_read(strcmp(path, "-") == 0 ? "/dev/stdin" : path, AB_PASSWORD_MAX, out, err) < 0)
        return -1;
    while (out->len > 0 && (out->data[out->len - 1] == '\n' || out->data[out->len - 1] == '\r'))
        out->len--;
    return 0;
}

/* The hash as a parameter; null with --no-password. `hash` has room for it. */
static int password_hash(struct admin *admin, char hash[AB_PASSWORD_HASH_MAX],
                         struct ab_db_value *out, struct ab_error *err)
{
    AB_AUTO(forget) struct ab_buf text = {0};
    *out = (struct ab_db_value){.type = AB_DB_NULL};
    if (admin->no_password)
        return admin->password_file
                   ? ab_fail(err, AB_EINVAL, "--no-password and --password-file exclude each other")
                   : 0;
    if ((admin->password_file ? read_file(admin->password_file, &text, err)
                              : ask_password(&text, err))
        < 0)
        return -1;
    if (text.len == 0)
        return ab_fail(err, AB_EINVAL,
                       "an empty password is none: use --no-password if you mean it");
    if (ab_password_hash(text.data, text.len, hash, err) < 0)
        return -1;
    *out = admin_text(hash);
    return 0;
}

/* ---- what all commands share */

static int need_name(const struct admin *admin, struct ab_error *err)
{
    size_t n = 0;
    for (const char *c = admin->user ? admin->user : ""; *c; c++)
        n += ((unsigned char)*c & 0xC0) != 0x80;
    if (n == 0)
        return ab_fail(err, AB_EINVAL, "which user? give the name");
    if (n > NAME_MAX_CHARACTERS)
        return ab_fail(err, AB_EINVAL, "a user name has at most %d characters",
                       NAME_MAX_CHARACTERS);
    return 0;
}

static int begin(struct admin *admin, struct ab_error *err)
{
    return admin_open(admin, err) < 0 || ab_db_prepare(admin->db, lists, err) < 0
                   || ab_db_exec(admin->db, "BEGIN", err) < 0
               ? -1
               : 0;
}

/* One statement about one user, who is written down in the same transaction. */
static int change_user(struct admin *admin, const struct ab_sql *sql, struct ab_db_param *params,
                       size_t n, const char *action, const char *detail, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    if (begin(admin, err) < 0)
        return -1;
    PGresult *r = ab_db_run(admin->db, sql, params, n, arena, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail(err, AB_ENOENT, "there is no user %s; `abies-admin users ls` shows them",
                       admin->user);
    int64_t id = ab_col_int(r, 0, 0);
    struct ab_db_param ends[] = {{"user_id", {.type = AB_DB_INT, .i = id}},
                                 {"all", {.type = AB_DB_BOOL, .b = admin->end_tokens}}};
    bool ending = sql == &SQL_admin_user_password || admin->end_tokens;
    if ((ending && !ab_db_run(admin->db, &SQL_admin_tokens_end, ends, 2, arena, err))
        || admin_note(admin, id, action, detail, err) < 0)
        return -1;
    return ab_db_exec(admin->db, "COMMIT", err);
}

/* ---- commands */

int cmd_users_add(struct admin *admin, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    char hash[AB_PASSWORD_HASH_MAX];
    struct ab_db_param params[] = {{.name = "username"}, {.name = "password_hash"}};
    if (need_name(admin, err) < 0 || password_hash(admin, hash, &params[1].value, err) < 0)
        return -1;
    params[0].value = admin_text(admin->user);
    if (begin(admin, err) < 0)
        return -1;
    PGresult *r = ab_db_run(admin->db, &SQL_admin_user_add, params, 2, arena, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail(err, AB_ECONFLICT, "there is a user %s already", admin->user);
    int64_t id = ab_col_int(r, 0, 0);
    if (admin_note(admin, id, "user.add", admin->no_password ? "without a password" : "", err) < 0
        || ab_db_exec(admin->db, "COMMIT", err) < 0)
        return -1;
    printf("user %" PRId64 " is made\n", id);
    return 0;
}

int cmd_users_passwd(struct admin *admin, struct ab_error *err)
{
    char hash[AB_PASSWORD_HASH_MAX];
    struct ab_db_param params[] = {{.name = "username"}, {.name = "password_hash"}};
    if (need_name(admin, err) < 0 || password_hash(admin, hash, &params[1].value, err) < 0)
        return -1;
    params[0].value = admin_text(admin->user);
    if (change_user(admin, &SQL_admin_user_password, params, 2, "user.password",
                    admin->no_password ? "removed" : "", err)
        < 0)
        return -1;
    printf("the password is %s; log-ins from before end within seconds, %s\n",
           admin->no_password ? "removed" : "changed",
           admin->end_tokens ? "and so do sites and other tokens" : "sites and other tokens go on");
    return 0;
}

int cmd_users_disable(struct admin *admin, struct ab_error *err)
{
    struct ab_db_param params[] = {{.name = "username"}};
    if (need_name(admin, err) < 0)
        return -1;
    params[0].value = admin_text(admin->user);
    if (change_user(admin, &SQL_admin_user_disable, params, 1, "user.disable",
                    admin->end_tokens ? "all tokens ended" : "", err)
        < 0)
        return -1;
    puts("locked out within seconds, sites included; `abies-admin users enable` undoes it");
    return 0;
}

int cmd_users_enable(struct admin *admin, struct ab_error *err)
{
    struct ab_db_param params[] = {{.name = "username"}};
    if (need_name(admin, err) < 0)
        return -1;
    params[0].value = admin_text(admin->user);
    if (change_user(admin, &SQL_admin_user_enable, params, 1, "user.enable", "", err) < 0)
        return -1;
    puts("may log in again; sites go on with their tokens");
    return 0;
}

/* ---- rm */

/* Until there is none left: how many. */
static int64_t delete_jobs(struct admin *admin, int64_t user, struct ab_error *err)
{
    struct ab_db_param params[] = {{"user_id", {.type = AB_DB_INT, .i = user}}};
    for (int64_t total = 0;;) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        PGresult *r = ab_db_run(admin->db, &SQL_admin_user_jobs_delete, params, 1, arena, err);
        if (!r)
            return -1;
        int64_t n = ab_col_int(r, 0, 0);
        total += n;
        if (n == 0)
            return total;
    }
}

/* In one transaction: nothing can be added to the sites from their locks on. */
static int delete_rest(struct admin *admin, int64_t user, int64_t *jobs, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_db_param params[] = {{"user_id", {.type = AB_DB_INT, .i = user}}};
    static const struct ab_sql *const first[] = {&SQL_admin_user_lock, &SQL_admin_sites_lock,
                                                 &SQL_admin_sessions_delete, &SQL_admin_apps_lock};
    if (ab_db_exec(admin->db, "BEGIN", err) < 0)
        return -1;
    for (size_t i = 0; i < AB_COUNT(first); i++)
        if (!ab_db_run(admin->db, first[i], params, 1, arena, err))
            return -1;
    int64_t more = delete_jobs(admin, user, err);
    if (more < 0 || !ab_db_run(admin->db, &SQL_admin_user_delete, params, 1, arena, err)
        || admin_note(admin, user, "user.delete", admin->user, err) < 0)
        return -1;
    *jobs += more;
    return ab_db_exec(admin->db, "COMMIT", err);
}

/* Locked out first, so that nothing new comes; then the jobs, in pieces; then the rest. */
int cmd_users_rm(struct admin *admin, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_db_param params[] = {{.name = "username"}};
    if (need_name(admin, err) < 0)
        return -1;
    if (!admin->yes)
        return ab_fail(err, AB_EINVAL,
                       "this deletes the user, all sites and all jobs, for good: say --yes "
                       "(`users disable` only locks out)");
    params[0].value = admin_text(admin->user);
    if (change_user(admin, &SQL_admin_user_disable, params, 1, "user.disable", "to be deleted", err)
        < 0)
        return -1;
    PGresult *r = ab_db_run(admin->db, &SQL_admin_user_id, params, 1, arena, err);
    if (!r || PQntuples(r) == 0)
        return r ? ab_fail(err, AB_ENOENT, "somebody else has deleted the user just now") : -1;
    int64_t user = ab_col_int(r, 0, 0), jobs = delete_jobs(admin, user, err);
    if (jobs < 0 || delete_rest(admin, user, &jobs, err) < 0)
        return -1;
    printf("user %" PRId64 " is deleted, with %" PRId64 " jobs\n", user, jobs);
    return 0;
}
