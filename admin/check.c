/* check.c - `abies-admin check`: the invariants of the tables, on one snapshot */
#include "admin.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "check.sql.h"
#include <inttypes.h>

enum {
    SLOW_MS = 3600 * 1000
}; /* it reads everything */

static const struct check {
    const struct ab_sql *sql;
    const char *name;
} checks[] = {
    {&SQL_check_job_counts, "counts of jobs"},
    {&SQL_check_event_counts, "counts of events"},
    {&SQL_check_open_items, "open transfer items of each job"},
    {&SQL_check_open_parents, "open parents of each job"},
    {&SQL_check_free_but_waiting, "jobs whose parents have finished do not wait"},
    {&SQL_check_event_chains, "events of each job form a chain"},
    {&SQL_check_event_ends, "the last event is the state"},
    {&SQL_check_finished_once, "no job finished twice"},
    {&SQL_check_leases, "leases belong to sessions of the same site"},
    {&SQL_check_cancels, "only running jobs are to be cancelled"},
    {&SQL_check_waiting, "only runnable jobs wait for their next attempt"},
    {&SQL_check_halves, "both halves of each job"},
    {&SQL_check_homes, "application and site of each job"},
    {&SQL_check_batch_jobs, "batch job of each job"},
    {&SQL_check_edges, "parents and edges"},
    {&SQL_check_items, "job of each transfer item"},
    {&SQL_check_event_room, "room for events"},
};

static int run_checks(struct admin *admin, struct report *report, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    for (size_t i = 0; i < AB_COUNT(checks); i++) {
        PGresult *r = ab_db_run(admin->db, checks[i].sql, NULL, 0, arena, err);
        if (!r)
            return -1;
        int64_t n = ab_col_int(r, 0, ab_col(r, "n"));
        size_t len = 0;
        const char *example = ab_col_text(r, 0, ab_col(r, "example"), &len);
        if (n == 0)
            report_line(report, true, checks[i].name, "%s", "");
        else
            report_line(report, false, checks[i].name, "%" PRId64 " wrong, e.g. %.*s", n, (int)len,
                        example ? example : "");
    }
    return 0;
}

int cmd_check(struct admin *admin, struct ab_error *err)
{
    static const struct ab_sql *const *const lists[] = {check_sql, NULL};
    struct report report;
    if (admin_open(admin, err) < 0)
        return -1;
    ab_db_limit(admin->db, SLOW_MS);
    if (ab_db_prepare(admin->db, lists, err) < 0
        || ab_db_exec(admin->db, "SET statement_timeout = 0", err) < 0
        || ab_db_exec(admin->db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", err) < 0)
        return -1;
    report_begin(&report, admin->json);
    int rc = run_checks(admin, &report, err);
    ab_db_exec(admin->db, "ROLLBACK", NULL);
    int broken = report_end(&report);
    return rc < 0 ? -1 : broken;
}
