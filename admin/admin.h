/* admin.h - what the commands of abies-admin share */
#ifndef AB_ADMIN_H
#define AB_ADMIN_H

#include "base/buf.h"
#include "base/error.h"
#include "base/opt.h"
#include "db/db.h"
#include <stdbool.h>

/* The options of all commands in one struct; each command's table names those it takes. */
struct admin {
    const char *home;
    const char *database_url, *url_file;
    const char *secrets_dir, *curve_dir, *tls_dir;
    const char *user, *max_jobs, *max_sites;
    const char *password_file, *since, *limit, *min_free;
    bool json, no_password, end_tokens, yes, failed;
    ab_db_t *db; /* opened by admin_open */
};

struct command {
    const char *words; /* "keys list" */
    const char *about;
    const char *options; /* letters: d database, s secrets, p passwords-dir, c curve, t tls, j json,
                            f min-free, u limits, n NAME of a user, w password, e end-tokens, y yes, a audit */
    int (*run)(struct admin *admin, struct ab_error *err);
};

/* 0 or -1; `run` returns 1 for "it works, but what was asked about is broken" (exit code 1, no
 * text). */
int admin_open(struct admin *admin, struct ab_error *err);

/* What a file with a URL holds. */
int admin_read_url(const char *path, struct ab_buf *out, struct ab_error *err);

/* A folder that a command cannot do without. */
int admin_need(const char *value, const char *option, struct ab_error *err);

int cmd_migrate(struct admin *admin, struct ab_error *err);
int cmd_roles(struct admin *admin, struct ab_error *err);
int cmd_init(struct admin *admin, struct ab_error *err);
int cmd_keys_init(struct admin *admin, struct ab_error *err);
int cmd_keys_list(struct admin *admin, struct ab_error *err);
int cmd_keys_rotate(struct admin *admin, struct ab_error *err);
int cmd_users_limit(struct admin *admin, struct ab_error *err);
int cmd_users_ls(struct admin *admin, struct ab_error *err);
int cmd_users_add(struct admin *admin, struct ab_error *err);
int cmd_users_passwd(struct admin *admin, struct ab_error *err);
int cmd_users_disable(struct admin *admin, struct ab_error *err);
int cmd_users_enable(struct admin *admin, struct ab_error *err);
int cmd_users_rm(struct admin *admin, struct ab_error *err);
int cmd_audit(struct admin *admin, struct ab_error *err);
int cmd_check(struct admin *admin, struct ab_error *err);
int cmd_doctor(struct admin *admin, struct ab_error *err);

struct ab_db_value admin_text(const char *text);

/* Written to table `audit`, in the transaction if there is one. user 0: nobody's account. */
int admin_note(struct admin *admin, int64_t user, const char *action, const char *detail,
               struct ab_error *err);

/* The services, each with a role abies_<name>, a secret db-<name> and a curve key; "report" has
 * only the role. */
extern const char *const admin_services[]; /* ends with NULL */

/* A line of `check` and `doctor`: "ok      name" or "BROKEN  name: detail". With --json an object
 * in a list. */
struct report {
    bool json;
    int lines, broken;
};
enum report_level {
    REPORT_OK,
    REPORT_NOTE, /* nothing is broken, but somebody should know */
    REPORT_BROKEN
};
void report_begin(struct report *self, bool json);
void report_line(struct report *self, bool ok, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* With what to do about it (NULL: nothing), on a line of its own. */
void report_find(struct report *self, enum report_level level, const char *name, const char *remedy,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
int report_end(struct report *self); /* 0 all is well, 1 not */

#endif
