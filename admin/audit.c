/* audit.c - what operators do is written down; `abies-admin audit` shows that and the sign-ins */
#include "admin.h"
#include "admin.sql.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_DEFAULT 1000
#define LIMIT_MAX 1000000

struct ab_db_value admin_text(const char *text)
{
    return (struct ab_db_value){.type = AB_DB_TEXT, .p = text, .n = strlen(text)};
}

/* ---- writing */

static void operator_name(char out[128])
{
    const struct passwd *pw = getpwuid(geteuid());
    const char *sudo = getenv("SUDO_USER");
    snprintf(out, 128, "operator %s%s%s", pw ? pw->pw_name : "?", sudo && *sudo ? " for " : "",
             sudo && *sudo ? sudo : "");
}

int admin_note(struct admin *admin, int64_t user, const char *action, const char *detail,
               struct ab_error *err)
{
    static const struct ab_sql *const *const lists[] = {admin_sql, NULL};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    char who[128], host[128] = "";
    operator_name(who);
    (void)gethostname(host, sizeof(host) - 1);
    struct ab_db_param params[] = {
        {"audit_user", {.type = user ? AB_DB_INT : AB_DB_NULL, .i = user}},
        {"actor", admin_text(who)},
        {"action", admin_text(action)},
        {"peer", admin_text(host)},
        {"detail", admin_text(detail ? detail : "")},
    };
    if (admin_open(admin, err) < 0 || ab_db_prepare(admin->db, lists, err) < 0)
        return -1;
    return ab_db_run(admin->db, &SQL_admin_audit_add, params, AB_COUNT(params), arena, err) ? 0
                                                                                            : -1;
}

/* ---- reading */

/* Names and details are other people's: no control character reaches the terminal. */
static void print_text(const PGresult *r, int row, const char *column, int width)
{
    size_t n;
    const char *text = ab_col_text(r, row, ab_col(r, column), &n);
    int shown = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        putchar(c < 0x20 || c == 0x7f ? '?' : c);
        shown += (c & 0xC0) != 0x80;
    }
    printf("%*s", shown < width ? width - shown : 1, "");
}

static void print_json(const PGresult *r)
{
    static const char *const texts[] = {"action", "outcome", "username", "actor", "peer", "detail"};
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_buf_char(&out, '[');
    for (int i = 0; i < PQntuples(r); i++) {
        char at[AB_TIME_TEXT], request[37];
        int user = ab_col(r, "user_id");
        ab_time_format(ab_col_time(r, i, ab_col(r, "at")), true, at);
        ab_buf_printf(&out, "%s\n {\"id\":%" PRId64 ",\"at\":\"%s\",\"user_id\":", i ? "," : "",
                      ab_col_int(r, i, ab_col(r, "id")), at);
        if (ab_col_null(r, i, user))
            ab_buf_str(&out, "null");
        else
            ab_buf_int(&out, ab_col_int(r, i, user));
        for (size_t t = 0; t < AB_COUNT(texts); t++) {
            size_t n;
            const char *text = ab_col_text(r, i, ab_col(r, texts[t]), &n);
            ab_buf_printf(&out, ",\"%s\":", texts[t]);
            ab_buf_json_str(&out, text ? text : "", text ? n : 0);
        }
        if (ab_col_uuid(r, i, ab_col(r, "request"), request))
            ab_buf_printf(&out, ",\"request\":\"%s\"}", request);
        else
            ab_buf_str(&out, ",\"request\":null}");
    }
    ab_buf_str(&out, "\n]");
    puts(out.failed ? "[]" : out.data);
}

static int read_filters(struct admin *admin, ab_arena_t *arena, struct ab_db_param params[4],
                        struct ab_error *err)
{
    int64_t since_ms = 0, limit = LIMIT_DEFAULT;
    if (admin->since && ab_parse_duration(admin->since, &since_ms) < 0)
        return ab_fail(err, AB_EINVAL, "--since takes a duration like 30m, 24h or 720h, not `%s`",
                       admin->since);
    if (admin->limit && ab_parse_i64(admin->limit, strlen(admin->limit), 1, LIMIT_MAX, &limit) < 0)
        return ab_fail(err, AB_EINVAL, "--limit takes a number from 1 to %d, not `%s`", LIMIT_MAX,
                       admin->limit);
    params[0] = (struct ab_db_param){"age", {.type = AB_DB_NULL}};
    if (admin->since)
        params[0].value = admin_text(ab_printf(arena, "%" PRId64 " ms", since_ms));
    params[1] = (struct ab_db_param){"username", {.type = AB_DB_NULL}};
    if (admin->user)
        params[1].value = admin_text(admin->user);
    params[2] = (struct ab_db_param){"failed", {.type = AB_DB_BOOL, .b = admin->failed}};
    params[3] = (struct ab_db_param){"most", {.type = AB_DB_INT, .i = limit}};
    return 0;
}

int cmd_audit(struct admin *admin, struct ab_error *err)
{
    static const struct ab_sql *const *const lists[] = {admin_sql, NULL};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_db_param params[4];
    if (read_filters(admin, arena, params, err) < 0 || admin_open(admin, err) < 0
        || ab_db_prepare(admin->db, lists, err) < 0)
        return -1;
    PGresult *r = ab_db_run(admin->db, &SQL_admin_audit, params, 4, arena, err);
    if (!r)
        return -1;
    if (admin->json) {
        print_json(r);
        return 0;
    }
    printf("%-27s %-8s%-22s%-20s%-22s%-24s%s\n", "time (UTC)", "outcome", "action", "user", "by",
           "from", "detail");
    for (int i = 0; i < PQntuples(r); i++) {
        char at[AB_TIME_TEXT];
        ab_time_format(ab_col_time(r, i, ab_col(r, "at")), false, at);
        printf("%-27s ", at);
        print_text(r, i, "outcome", 8);
        print_text(r, i, "action", 22);
        print_text(r, i, "username", 20);
        print_text(r, i, "actor", 22);
        print_text(r, i, "peer", 24);
        print_text(r, i, "detail", 0);
        putchar('\n');
    }
    return 0;
}
