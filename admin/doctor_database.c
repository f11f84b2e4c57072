/* doctor_database.c - the server and its settings, schema, roles, keys, and whether somebody sweeps */
#include "admin.sql.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "doctor.h"
#include "doctor.sql.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SKEW_US = 1000000,
    LATE_SEC = 600,       /* housekeeping runs once a minute */
    MARKS_SEC = 2 * 3600, /* events are marked once an hour */
    XID_LIMIT = 1500000000,
};

static const char *text_at(struct doctor *self, const PGresult *r, int row, const char *column)
{
    size_t n;
    const char *text = ab_col_text(r, row, ab_col(r, column), &n);
    return text ? ab_strndup(self->arena, text, n) : "";
}

static PGresult *ask(struct doctor *self, const struct ab_sql *sql,
                     const struct ab_db_param *params, size_t n)
{
    struct ab_error err = {0};
    PGresult *r = ab_db_run(self->admin->db, sql, params, n, self->arena, &err);
    if (!r)
        report_find(self->report, REPORT_BROKEN, "database",
                    "run doctor as the owner of the tables, with the version of the services",
                    "%s cannot be asked: %s", sql->name, err.text);
    return r;
}

/* ---- the server */

static const struct {
    const char *name, *wanted;
    enum report_level otherwise;
    const char *why, *remedy;
} settings[] = {
    {"fsync", "on", REPORT_BROKEN, "a crash of the machine destroys the database",
     "fsync = on in postgresql.conf, restart"},
    {"full_page_writes", "on", REPORT_BROKEN, "a crash in the middle of a page destroys the table",
     "full_page_writes = on in postgresql.conf, reload"},
    {"synchronous_commit", "on", REPORT_BROKEN,
     "jobs that were acknowledged can be gone after a crash",
     "synchronous_commit = on in postgresql.conf and for the roles, reload"},
    {"autovacuum", "on", REPORT_BROKEN, "tables grow for ever and slow down within hours",
     "autovacuum = on, reload"},
    {"track_counts", "on", REPORT_BROKEN, "autovacuum does not work without it",
     "track_counts = on, reload"},
    {"default_transaction_isolation", "read committed", REPORT_BROKEN,
     "calls that meet are all run again",
     "default_transaction_isolation = 'read committed', reload"},
    {"default_transaction_read_only", "off", REPORT_BROKEN, "nothing can be changed",
     "default_transaction_read_only = off, reload"},
    {"zero_damaged_pages", "off", REPORT_BROKEN, "damaged rows vanish without a word",
     "zero_damaged_pages = off"},
    {"ignore_checksum_failure", "off", REPORT_BROKEN, "damaged pages are served",
     "ignore_checksum_failure = off"},
    {"server_encoding", "UTF8", REPORT_BROKEN, "names in other scripts cannot be stored",
     "make the database with ENCODING 'UTF8', and restore into it"},
    {"data_checksums", "on", REPORT_NOTE, "a disk that damages pages is not noticed",
     "stop PostgreSQL, pg_checksums --enable"},
};

static const char *setting(struct doctor *self, const PGresult *r, const char *name)
{
    for (int i = 0; i < PQntuples(r); i++)
        if (strcmp(text_at(self, r, i, "name"), name) == 0)
            return text_at(self, r, i, "setting");
    return NULL;
}

static void look_at_settings(struct doctor *self, const PGresult *r)
{
    int wrong = 0;
    for (size_t i = 0; i < AB_COUNT(settings); i++) {
        const char *is = setting(self, r, settings[i].name);
        if (!is || strcmp(is, settings[i].wanted) == 0)
            continue;
        wrong++;
        report_find(self->report, settings[i].otherwise, "PostgreSQL settings", settings[i].remedy,
                    "%s is %s: %s", settings[i].name, is, settings[i].why);
    }
    if (!wrong)
        report_find(self->report, REPORT_OK, "PostgreSQL settings", NULL,
                    "nothing acknowledged is lost");
    const char *prefix = setting(self, r, "log_line_prefix");
    if (prefix && !strstr(prefix, "%a"))
        report_find(self->report, REPORT_NOTE, "PostgreSQL settings",
                    "log_line_prefix = '%m [%p] %a ', reload",
                    "log_line_prefix has no %%a: slow statements cannot be matched with requests");
}

/* Each replica has a connection for each worker and one for its timers. While services are replaced
 * there is one replica more. */
static void look_at_connections(struct doctor *self, const PGresult *s, const PGresult *r)
{
    const char *most = setting(self, s, "max_connections"),
               *kept = setting(self, s, "superuser_reserved_connections");
    int64_t room = (most ? atoll(most) : 0) - (kept ? atoll(kept) : 0);
    int64_t used = ab_col_int(r, 0, ab_col(r, "connections")),
            ours = ab_col_int(r, 0, ab_col(r, "ours")), pools = 0;
    for (int i = 1; i < DOCTOR_SERVICES; i++)
        pools += self->wanted[i] * (self->workers + 1);
    int64_t needed = (pools > ours ? pools : ours) + self->workers + 1 + (used - ours);
    report_find(self->report, room >= needed ? REPORT_OK : REPORT_BROKEN, "connections",
                "raise max_connections and restart PostgreSQL, or lower `workers` or the number of "
                "replicas, or put PgBouncer between",
                "%" PRId64 " of %" PRId64 " in use, %" PRId64
                " needed with a replica more for an upgrade",
                used, room, needed);
}

static void look_at_clock(struct doctor *self, const PGresult *r, int64_t sent_us, int64_t got_us)
{
    int64_t theirs = ab_col_int(r, 0, ab_col(r, "now_us"));
    int64_t skew = theirs < sent_us ? theirs - sent_us : theirs > got_us ? theirs - got_us : 0;
    report_find(self->report, llabs(skew) <= SKEW_US ? REPORT_OK : REPORT_BROKEN, "clock",
                "let NTP (chrony, systemd-timesyncd) set the clocks of all machines: tokens and "
                "certificates are refused when they differ",
                "the database's clock is %.1f s %s this machine's", fabs((double)skew / 1e6),
                skew < 0 ? "behind" : "ahead of");
}

static void look_at_state(struct doctor *self, const PGresult *r)
{
    const char *invalid = text_at(self, r, 0, "invalid");
    int64_t oldest = ab_col_int(r, 0, ab_col(r, "oldest_xid")),
            prepared = ab_col_int(r, 0, ab_col(r, "prepared"));
    if (ab_col_bool(r, 0, ab_col(r, "standby")))
        report_find(self->report, REPORT_BROKEN, "database",
                    "name the primary in the URL, or pg_promote() this one",
                    "the server is a standby: nothing can be changed");
    if (*invalid)
        report_find(self->report, REPORT_BROKEN, "indexes",
                    "REINDEX INDEX CONCURRENTLY each of them", "not valid: %s", invalid);
    if (prepared > 0)
        report_find(self->report, REPORT_BROKEN, "transactions",
                    "COMMIT PREPARED or ROLLBACK PREPARED what pg_prepared_xacts lists",
                    "%" PRId64 " prepared transactions are left behind: they hold back all events",
                    prepared);
    if (oldest > XID_LIMIT)
        report_find(self->report, REPORT_BROKEN, "vacuum",
                    "look for long transactions and old replication slots, then VACUUM FREEZE",
                    "transaction numbers are nearly used up (age %" PRId64 ")", oldest);
}

static void look_for_long_transactions(struct doctor *self)
{
    PGresult *r = ask(self, &SQL_doctor_long, NULL, 0);
    if (!r)
        return;
    if (PQntuples(r) == 0)
        report_find(self->report, REPORT_OK, "transactions", NULL, "none is open for long");
    else
        report_find(
            self->report, REPORT_BROKEN, "transactions", "end it: SELECT pg_terminate_backend(PID)",
            "process %" PRId64 " (%s) has one open for %.0f s: readers of events wait for it",
            ab_col_int(r, 0, 0), text_at(self, r, 0, "application_name"),
            ab_col_real(r, 0, ab_col(r, "seconds")));
}

static void look_at_server(struct doctor *self)
{
    PGresult *s = ask(self, &SQL_doctor_settings, NULL, 0);
    int64_t sent_us = ab_utc_us();
    PGresult *r = ask(self, &SQL_doctor_state, NULL, 0);
    int64_t got_us = ab_utc_us();
    if (s)
        look_at_settings(self, s);
    if (s && r)
        look_at_connections(self, s, r);
    if (r) {
        look_at_clock(self, r, sent_us, got_us);
        look_at_state(self, r);
        look_for_long_transactions(self);
    }
}

/* ---- the schema, the roles, the keys */

static int look_at_schema(struct doctor *self, struct ab_error *err)
{
    int version, latest = ab_schema_latest();
    if (ab_schema_version(self->admin->db, &version, err) < 0)
        return -1;
    if (version <= latest)
        report_find(self->report, version == latest ? REPORT_OK : REPORT_BROKEN, "schema",
                    "run `abies-admin migrate`", "version %d of %d", version, latest);
    else
        report_find(self->report, version == latest + 1 ? REPORT_NOTE : REPORT_BROKEN, "schema",
                    "install programs of the database's version",
                    "version %d is newer than this program's %d", version, latest);
    return version == latest ? 0 : 1;
}

static void look_at_roles(struct doctor *self)
{
    static const char *const names[] = {"abies_jobs", "abies_sessions", "abies_transfers",
                                        "abies_auth", "abies_report"};
    struct ab_db_value items[AB_COUNT(names)];
    int missing = 0;
    for (size_t i = 0; i < AB_COUNT(names); i++)
        items[i] = (struct ab_db_value){.type = AB_DB_TEXT, .p = names[i], .n = strlen(names[i])};
    const struct ab_db_param params[] = {
        {"names", {.type = AB_DB_ARRAY, .items = items, .n_items = AB_COUNT(names)}}};
    PGresult *r = ask(self, &SQL_admin_roles, params, 1);
    for (int i = 0; r && i < PQntuples(r); i++) {
        if (ab_col_bool(r, i, 1))
            continue;
        missing++;
        report_find(self->report, REPORT_BROKEN, "roles", "run `abies-admin migrate`, then `roles`",
                    "%s is missing or may not log in", text_at(self, r, i, "name"));
    }
    PGresult *limits = ask(self, &SQL_doctor_role_settings, NULL, 0);
    for (int i = 0; limits && !missing && i < PQntuples(limits); i++) {
        missing++;
        report_find(self->report, REPORT_BROKEN, "roles", "run `abies-admin migrate`",
                    "%s has lost its limits of time: one frozen replica can hold up all",
                    text_at(self, limits, i, "name"));
    }
    PGresult *powers = ask(self, &SQL_doctor_powers, NULL, 0);
    const char *strong = powers ? text_at(self, powers, 0, "names") : "";
    if (*strong)
        report_find(self->report, REPORT_BROKEN, "roles",
                    "ALTER ROLE each of them NOSUPERUSER NOCREATEROLE NOCREATEDB NOBYPASSRLS "
                    "NOREPLICATION",
                    "more powerful than a service may be: %s", strong);
    if (!missing && !*strong)
        report_find(self->report, REPORT_OK, "roles", NULL, "all there, none too powerful");
}

static void look_at_signing(struct doctor *self)
{
    PGresult *r = ask(self, &SQL_admin_keys, NULL, 0);
    int signing = 0;
    for (int i = 0; r && i < PQntuples(r); i++)
        signing += ab_col_bool(r, i, ab_col(r, "signs"));
    if (r && PQntuples(r) == 0)
        report_find(self->report, REPORT_OK, "signing key", NULL,
                    "none yet: the auth service makes it when it first starts");
    else if (r)
        report_find(self->report, signing == 1 ? REPORT_OK : REPORT_BROKEN, "signing key",
                    "run `abies-admin keys rotate`", "%s",
                    signing == 1 ? "" : "all are retired: nobody can log in");
}

/* ---- does somebody sweep? */

static void look_at_sweeping(struct doctor *self)
{
    const char *silent = ab_printf(self->arena, "%" PRId64 " milliseconds",
                                   2 * self->session_ttl_ms + LATE_SEC * INT64_C(1000) / 10);
    const struct ab_db_param params[] = {{"silent", admin_text(silent)}};
    PGresult *r = ask(self, &SQL_doctor_sweep, params, 1);
    if (!r)
        return;
    int64_t sessions = ab_col_int(r, 0, ab_col(r, "sessions"));
    double request = ab_col_real(r, 0, ab_col(r, "oldest_request")),
           keep = (double)self->request_keep_ms / 1e3;
    report_find(self->report, sessions == 0 ? REPORT_OK : REPORT_BROKEN, "sweeper",
                "start a replica of sessions, and look at its log for timer.failed",
                "%" PRId64 " sessions are silent for longer than twice session_ttl%s", sessions,
                sessions ? ": nobody gives their jobs back" : "");
    report_find(self->report, request <= keep + LATE_SEC ? REPORT_OK : REPORT_BROKEN,
                "request records",
                "start a replica of sessions, and look at its log for timer.failed",
                "the oldest is %.1f h old; they are kept for %.1f h", request / 3600, keep / 3600);
    double mark = ab_col_real(r, 0, ab_col(r, "oldest_mark")),
           event_keep = (double)self->event_keep_ms / 1e3;
    if (event_keep > 0)
        report_find(
            self->report, mark <= fmax(event_keep, 3600) + MARKS_SEC ? REPORT_OK : REPORT_BROKEN,
            "old events", "start a replica of sessions, and look at its log for timer.failed",
            "the oldest are %.1f h old; they are kept for %.1f h", mark / 3600, event_keep / 3600);
    bool no_room = ab_col_bool(r, 0, ab_col(r, "no_room"));
    report_find(self->report, no_room ? REPORT_BROKEN : REPORT_OK, "room for events",
                "start a replica of sessions: it makes the next partition within a minute",
                no_room ? "the partition in use or the next one is missing: soon no job can change"
                        : "there is a partition to spare");
}

/* ---- passwords */

/* Each service's own URL, where there is a file of it. And a wrong password must not do. */
static void look_at_logins(struct doctor *self)
{
    for (const char *const *service = admin_services; *service; service++) {
        AB_AUTO(ab_buf_free) struct ab_buf url = {0};
        struct ab_error err = {0};
        const char *path =
            ab_printf(self->arena, "%s/url-abies_%s", self->admin->secrets_dir, *service);
        if (admin_read_url(path, &url, NULL) < 0)
            continue;
        AB_AUTO(ab_db_close) ab_db_t *db = ab_db_open(url.data, "abies-admin", &err);
        report_find(self->report, db ? REPORT_OK : REPORT_BROKEN, "password",
                    "run `abies-admin roles --secrets DIR`, and restart the service",
                    "abies_%s %s%s", *service,
                    db ? "can log in" : "cannot log in: ", db ? "" : err.text);
        if (!db || strstr(url.data, "://"))
            continue;
        ab_buf_str(&url, " password=abies-admin-doctor-tries-a-wrong-one");
        AB_AUTO(ab_db_close) ab_db_t *stranger = ab_db_open(url.data, "abies-admin", NULL);
        if (stranger)
            report_find(self->report, REPORT_BROKEN, "password",
                        "replace `trust` by scram-sha-256 in pg_hba.conf, reload",
                        "PostgreSQL lets abies_%s in with any password", *service);
    }
}

void doctor_database(struct doctor *self)
{
    static const struct ab_sql *const *const lists[] = {admin_sql, doctor_sql, NULL};
    struct ab_error err = {0};
    if (admin_open(self->admin, &err) < 0) {
        report_find(self->report, REPORT_BROKEN, "database",
                    "start PostgreSQL, or correct the URL; its log says why it refuses", "%s",
                    err.text);
        return;
    }
    int version = PQserverVersion(ab_db_conn(self->admin->db)) / 10000;
    report_find(self->report, version >= 15 ? REPORT_OK : REPORT_BROKEN, "database",
                "upgrade: 15 or newer is needed", "PostgreSQL %d", version);
    int rc = look_at_schema(self, &err);
    if (rc == 0 && ab_db_prepare(self->admin->db, lists, &err) == 0) {
        look_at_server(self);
        look_at_roles(self);
        look_at_signing(self);
        look_at_sweeping(self);
    } else if (rc <= 0) {
        report_find(self->report, REPORT_BROKEN, "database",
                    "run doctor as the owner of the tables", "%s", err.text);
    }
    if (self->admin->secrets_dir)
        look_at_logins(self);
}
