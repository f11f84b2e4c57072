/* pg.c - a database of its own for a test program */
#include "pg.h"
#include "base/cleanup.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    URL_MAX = 512,
    MAX_DATABASES = 32
};

static char cluster[URL_MAX]; /* without dbname */
static char url[URL_MAX];
static char databases[MAX_DATABASES][64];
static int n_databases;
static pid_t server, starter;
static int hold = -1; /* the cluster lives as long as this end of its standard input is open */

static _Noreturn void __attribute__((format(printf, 1, 2))) stop(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("pg: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ---- the cluster */

static void end_cluster(void)
{
    if (starter != getpid() || server <= 0)
        return; /* a child of a test that came to its exit */
    close(hold);
    waitpid(server, NULL, 0);
}

static void start_cluster(void)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        stop("pipe: %m");
    starter = getpid();
    server = fork();
    if (server < 0)
        stop("fork: %m");
    if (server == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(AB_TEST_LIB "/cluster", "cluster", "serve", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    hold = in[1];
    atexit(end_cluster);
    size_t n = 0;
    while (n < sizeof(cluster) - 1 && read(out[0], cluster + n, 1) == 1 && cluster[n] != '\n')
        n++;
    cluster[n] = '\0';
    close(out[0]);
    if (n == 0)
        stop("no PostgreSQL for this test, see above");
}

static void find_cluster(void)
{
    const char *given = getenv("ABIES_TEST_PG");
    if (*cluster)
        return;
    if (given && *given)
        snprintf(cluster, sizeof(cluster), "%s", given);
    else
        start_cluster();
}

void pg_alone(void)
{
    if (*cluster)
        stop("pg_alone comes too late: there is a cluster already");
    unsetenv("ABIES_TEST_PG");
}

bool pg_own_cluster(void)
{
    find_cluster();
    return server > 0;
}

/* ---- databases */

static ab_db_t *connect_to(const char *database)
{
    char to[URL_MAX + 80];
    struct ab_error err = {0};
    snprintf(to, sizeof(to), "%s dbname=%s", cluster, database);
    ab_db_t *db = ab_db_open(to, "test", &err);
    if (!db)
        stop("%s", err.text);
    return db;
}

static void drop_databases(void)
{
    if (starter != getpid() || server > 0)
        return; /* they go with the cluster */
    AB_AUTO(ab_db_close) ab_db_t *db = connect_to("postgres");
    for (int i = 0; i < n_databases; i++) {
        char text[128];
        snprintf(text, sizeof(text), "DROP DATABASE IF EXISTS %s WITH (FORCE)", databases[i]);
        ab_db_exec(db, text, NULL);
    }
}

static const char *create_database(ab_db_t *db, const char *template_name)
{
    if (n_databases == 0) {
        starter = getpid();
        atexit(drop_databases);
    }
    if (n_databases == MAX_DATABASES)
        stop("more than %d databases", MAX_DATABASES);
    char *name = databases[n_databases];
    snprintf(name, sizeof(databases[0]), "test_%d_%d", (int)getpid(), n_databases);
    n_databases++;
    pg_exec(db, "DROP DATABASE IF EXISTS %s WITH (FORCE)", name);
    pg_exec(db, "CREATE DATABASE %s TEMPLATE %s", name, template_name);
    return name;
}

/* One program makes the template, the others wait for it. */
static void make_template(ab_db_t *db, const char *name)
{
    pg_exec(db, "SELECT pg_advisory_lock(7435)");
    if (pg_int(db, "SELECT count(*) FROM pg_database WHERE datname = '%s'", name) == 0) {
        pg_exec(db, "CREATE DATABASE %s_new", name);
        char made[80];
        snprintf(made, sizeof(made), "%s_new", name);
        ab_db_t *inside = connect_to(made);
        struct ab_error err = {0};
        if (ab_migrate(inside, NULL, NULL, &err) < 0)
            stop("migrate: %s", err.text);
        ab_db_close(&inside);
        pg_exec(db, "ALTER DATABASE %s_new RENAME TO %s", name, name);
    }
    pg_exec(db, "SELECT pg_advisory_unlock(7435)");
}

const char *pg_url(void)
{
    if (*url)
        return url;
    find_cluster();
    AB_AUTO(ab_db_close) ab_db_t *db = connect_to("postgres");
    char template_name[40];
    snprintf(template_name, sizeof(template_name), "abies_template_%d", ab_schema_latest());
    make_template(db, template_name);
    snprintf(url, sizeof(url), "%.400s dbname=%s", cluster, create_database(db, template_name));
    return url;
}

const char *pg_url_as(const char *role)
{
    static _Thread_local char as[URL_MAX + 80];
    snprintf(as, sizeof(as), "%s user=%s", pg_url(), role); /* the later word counts */
    return as;
}

const char *pg_url_empty(void)
{
    static char empty[URL_MAX];
    find_cluster();
    AB_AUTO(ab_db_close) ab_db_t *db = connect_to("postgres");
    snprintf(empty, sizeof(empty), "%.400s dbname=%s", cluster, create_database(db, "template0"));
    return empty;
}

static ab_db_t *open_url(const char *to)
{
    struct ab_error err = {0};
    ab_db_t *db = ab_db_open(to, "test", &err);
    if (!db)
        stop("%s", err.text);
    return db;
}

ab_db_t *pg_open(void)
{
    return open_url(pg_url());
}

ab_db_t *pg_open_as(const char *role)
{
    return open_url(pg_url_as(role));
}

/* ---- statements */

static char *__attribute__((format(printf, 1, 0))) format_text(const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0)
        stop("out of memory");
    return text;
}

void pg_exec(ab_db_t *db, const char *format, ...)
{
    struct ab_error err = {0};
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    if (ab_db_exec(db, text, &err) < 0)
        stop("%s\n    in: %s", err.text, text);
    free(text);
}

const char *pg_text(ab_db_t *db, const char *format, ...)
{
    static _Thread_local char kept[65536];
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    PGresult *r = PQexec(ab_db_conn(db), text); /* as text, whatever its type */
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        stop("%s\n    in: %s", PQerrorMessage(ab_db_conn(db)), text);
    bool there = PQntuples(r) > 0 && !PQgetisnull(r, 0, 0);
    snprintf(kept, sizeof(kept), "%s", there ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    free(text);
    return there ? kept : NULL;
}

int64_t pg_int(ab_db_t *db, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    const char *value = pg_text(db, "%s", text);
    int64_t number = value ? strtoll(value, NULL, 10) : 0;
    if (!value)
        stop("no value from: %s", text);
    free(text);
    return number;
}
