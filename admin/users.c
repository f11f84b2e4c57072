/* users.c - `abies-admin users ls` */
#include "admin.h"
#include "admin.sql.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include <inttypes.h>
#include <stdio.h>

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
        ab_buf_printf(&out, ",\"created\":\"%s\",\"sites\":%" PRId64 ",\"jobs\":%" PRId64 "}",
                      created, ab_col_int(r, i, ab_col(r, "sites")),
                      ab_col_int(r, i, ab_col(r, "jobs")));
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
    printf("%8s  %-24s %-27s %8s %10s\n", "id", "user", "created", "sites", "jobs");
    for (int i = 0; i < PQntuples(r); i++) {
        size_t n;
        char created[AB_TIME_TEXT];
        const char *name = ab_col_text(r, i, ab_col(r, "username"), &n);
        ab_time_format(ab_col_time(r, i, ab_col(r, "created")), false, created);
        printf("%8" PRId64 "  %-24.*s %-27s %8" PRId64 " %10" PRId64 "\n",
               ab_col_int(r, i, ab_col(r, "id")), (int)n, name, created,
               ab_col_int(r, i, ab_col(r, "sites")), ab_col_int(r, i, ab_col(r, "jobs")));
    }
    return 0;
}
