/* users.c - `abies-admin users ls`, `users limit` */
#include "admin.h"
#include "admin.sql.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- limits */

/* A number, `none` (0), `default` (null); absent: -1, as it was. */
static int read_limit(const char *option, const char *text, struct ab_db_value *out,
                      struct ab_error *err)
{
    int64_t v = 0;
    *out = (struct ab_db_value){.type = AB_DB_INT, .i = -1};
    if (!text)
        return 0;
    if (strcmp(text, "default") == 0) {
        out->type = AB_DB_NULL;
        return 0;
    }
    if (strcmp(text, "none") != 0 && ab_parse_i64(text, strlen(text), 1, INT32_MAX, &v) < 0)
        return ab_fail(err, AB_EINVAL,
                       "--%s takes a number from 1 to %d, `none` or `default`, not `%s`", option,
                       INT32_MAX, text);
    out->i = v;
    return 0;
}

static void print_limit(const char *what, const PGresult *r, int col)
{
    if (ab_col_null(r, 0, col))
        printf("%s: as the services' setting says\n", what);
    else if (ab_col_int(r, 0, col) == 0)
        printf("%s: any number\n", what);
    else
        printf("%s: at most %" PRId64 "\n", what, ab_col_int(r, 0, col));
}

int cmd_users_limit(struct admin *admin, struct ab_error *err)
{
    static const struct ab_sql *const *const lists[] = {admin_sql, NULL};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_db_param params[] = {
        {.name = "max_jobs"}, {.name = "max_sites"}, {.name = "username"}};

    if (!admin->user)
        return ab_fail(err, AB_EINVAL, "--user NAME says whose limits are meant");
    if (read_limit("max-jobs", admin->max_jobs, &params[0].value, err) < 0
        || read_limit("max-sites", admin->max_sites, &params[1].value, err) < 0)
        return -1;
    params[2].value =
        (struct ab_db_value){.type = AB_DB_TEXT, .p = admin->user, .n = strlen(admin->user)};
    if (admin_open(admin, err) < 0 || ab_db_prepare(admin->db, lists, err) < 0)
        return -1;
    PGresult *r = ab_db_run(admin->db, &SQL_admin_user_limit, params, AB_COUNT(params), arena, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail(err, AB_ENOENT, "there is no user %s; `abies-admin users ls` shows them",
                       admin->user);
    if (admin_note(admin, ab_col_int(r, 0, ab_col(r, "id")), "user.limit", "", err) < 0)
        return -1;
    print_limit("jobs that have not ended", r, ab_col(r, "max_jobs"));
    print_limit("sites", r, ab_col(r, "max_sites"));
    return 0;
}

/* ---- the list */

static void json_limit(struct ab_buf *out, const char *name, const PGresult *r, int row)
{
    int col = ab_col(r, name);
    ab_buf_printf(out, ",\"%s\":", name);
    if (ab_col_null(r, row, col))
        ab_buf_str(out, "null");
    else
        ab_buf_int(out, ab_col_int(r, row, col));
}

static void json_flag(struct ab_buf *out, const char *name, const PGresult *r, int row)
{
    ab_buf_printf(out, ",\"%s\":%s", name, ab_col_bool(r, row, ab_col(r, name)) ? "true" : "false");
}

/* No control character of a name reaches the terminal. */
static void print_name(const char *name, size_t n)
{
    int shown = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        putchar(c < 0x20 || c == 0x7f ? '?' : c);
        shown += (c & 0xC0) != 0x80;
    }
    printf("%*s", shown < 24 ? 24 - shown : 0, "");
}

static const char *signs_in(const PGresult *r, int row)
{
    bool password = ab_col_bool(r, row, ab_col(r, "password")),
         provider = ab_col_bool(r, row, ab_col(r, "provider"));
    if (ab_col_bool(r, row, ab_col(r, "disabled")))
        return "locked out";
    return password && provider ? "both" : password ? "password" : provider ? "provider" : "-";
}

static void print_json(const PGresult *r)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_buf_char(&out, '[');
    for (int i = 0; i < PQntuples(r); i++) {
        size_t n;
        char created[AB_TIME_TEXT];
        const char *name = ab_col_text(r, i, ab_col(r, "username"), &n);
        ab_time_format(ab_col_time(r, i, ab_col(r, "created")), false, created);
        ab_buf_printf(&out, "%s\n {\"id\":%" PRId64 ",\"username\":", i ? "," : "",
                      ab_col_int(r, i, ab_col(r, "id")));
        ab_buf_json_str(&out, name, n);
        ab_buf_printf(&out, ",\"created\":\"%s\",\"sites\":%" PRId64 ",\"jobs\":%" PRId64, created,
                      ab_col_int(r, i, ab_col(r, "sites")), ab_col_int(r, i, ab_col(r, "jobs")));
        json_flag(&out, "password", r, i);
        json_flag(&out, "provider", r, i);
        json_flag(&out, "disabled", r, i);
        json_limit(&out, "max_jobs", r, i);
        json_limit(&out, "max_sites", r, i);
        ab_buf_char(&out, '}');
    }
    ab_buf_str(&out, "\n]");
    puts(out.data);
}

int cmd_users_ls(struct admin *admin, struct ab_error *err)
{
    static const struct ab_sql *const *const lists[] = {admin_sql, NULL};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    if (admin_open(admin, err) < 0 || ab_db_prepare(admin->db, lists, err) < 0)
        return -1;
    PGresult *r = ab_db_run(admin->db, &SQL_admin_users, NULL, 0, arena, err);
    if (!r)
        return -1;
    if (admin->json) {
        print_json(r);
        return 0;
    }
    printf("%8s  %-24s %-10s %-27s %8s %10s\n", "id", "user", "signs in", "created", "sites",
           "jobs");
    for (int i = 0; i < PQntuples(r); i++) {
        size_t n;
        char created[AB_TIME_TEXT];
        const char *name = ab_col_text(r, i, ab_col(r, "username"), &n);
        ab_time_format(ab_col_time(r, i, ab_col(r, "created")), false, created);
        printf("%8" PRId64 "  ", ab_col_int(r, i, ab_col(r, "id")));
        print_name(name, n);
        printf(" %-10s %-27s %8" PRId64 " %10" PRId64 "\n", signs_in(r, i), created,
               ab_col_int(r, i, ab_col(r, "sites")), ab_col_int(r, i, ab_col(r, "jobs")));
    }
    return 0;
}
