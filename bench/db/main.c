/* main.c - dbbench: rates of the hot statements, through common/db, on a scratch database
 *
 *     dbbench MODE [--clients 1] [--seconds 3] [--n 1000] ...        database: ABIES_DATABASE_URL
 *
 * Prints rows and operations a second and percentiles. bench.sh makes ratios of them: an absolute
 * figure says more about the machine than about us.
 */
#include "base/clock.h"
#include "base/opt.h"
#include "bench.h"
#include "count.sql.h"
#include "create.sql.h"
#include "insert.sql.h"
#include "lease.sql.h"
#include "lifecycle.sql.h"
#include "request.sql.h"
#include "tx.sql.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CLIENTS = 64,
    MAX_LATENCIES = 400000
};

int pool_size = 10000;
bool shared_pool, give_back;
const char *how = "", *verb = "job.list", *query_text = "";
int64_t owner_id = 1, object_id;

static const struct mode *const all_modes[] = {create_modes, step_modes, lease_modes, house_modes};
static const struct mode *mode;
static int64_t clients = 1, n = 1000, seconds = 3, most_ops = INT64_MAX, warm;
static const char *settings =
    "SET plan_cache_mode = force_generic_plan; SET random_page_cost = 1.1; SET jit = off;"
    "SET enable_seqscan = off; SET enable_bitmapscan = off"; /* as abies_sessions has them */
static pthread_barrier_t start;

struct result {
    pthread_t thread;
    struct client client;
    long ops, rows, conflicts;
    float *ms;
    int n_ms;
};

_Noreturn void die(const struct ab_error *err)
{
    fprintf(stderr, "dbbench: %s\n", err->text);
    exit(1);
}

/* ---- values */

struct ab_db_value int_value(int64_t v)
{
    return (struct ab_db_value){.type = AB_DB_INT, .i = v};
}

struct ab_db_value text_value(const char *v)
{
    return (struct ab_db_value){.type = AB_DB_TEXT, .p = v, .n = strlen(v)};
}

struct ab_db_value ints(struct client *c, const int64_t *v, int count)
{
    struct ab_db_value *items = ab_alloc(c->arena, (size_t)count + 1, sizeof(*items));
    for (int i = 0; i < count; i++)
        items[i] = int_value(v[i]);
    return (struct ab_db_value){.type = AB_DB_ARRAY, .items = items, .n_items = (size_t)count};
}

struct ab_db_value same(struct client *c, struct ab_db_value v, int count)
{
    struct ab_db_value *items = ab_alloc(c->arena, (size_t)count + 1, sizeof(*items));
    for (int i = 0; i < count; i++)
        items[i] = v;
    return (struct ab_db_value){.type = AB_DB_ARRAY, .items = items, .n_items = (size_t)count};
}

/* ---- statements */

PGresult *run_block(struct client *c, const struct ab_sql *sql, const struct ab_db_param *params,
                    size_t count)
{
    struct ab_error err = {0};
    PGresult *r = ab_db_run(c->db, sql, params, count, c->arena, &err);
    if (!r)
        die(&err);
    return r;
}

void must(struct client *c, const char *text)
{
    struct ab_error err = {0};
    if (ab_db_exec(c->db, text, &err) < 0)
        die(&err);
}

bool run_steps(struct client *c, struct ab_db_step *steps, size_t count, bool commit)
{
    struct ab_db_step whole[16] = {{.sql = &SQL_begin}};
    struct ab_error err = {0};
    memcpy(whole + 1, steps, count * sizeof(*steps));
    whole[count + 1] = (struct ab_db_step){.sql = &SQL_commit};
    int rc = ab_db_pipeline(c->db, whole, count + (commit ? 2 : 1), c->arena, &err);
    memcpy(steps, whole + 1, count * sizeof(*steps));
    if (rc < 0 && strcmp(err.kind, "db_conflict") != 0)
        die(&err);
    if (rc < 0)
        must(c, "ROLLBACK");
    return rc == 0;
}

/* ---- one client */

static void open_client(struct client *c, int no)
{
    static const struct ab_sql *const *const lists[] = {
        tx_sql, request_sql, create_sql, count_sql, insert_sql, lifecycle_sql, lease_sql, NULL};
    struct ab_error err = {0};
    c->no = no;
    c->n = (int)n;
    c->clients = (int)clients;
    c->seed = (unsigned)no + 1;
    c->how = how;
    c->arena = ab_arena_new();
    c->db = ab_db_open(getenv("ABIES_DATABASE_URL"), "dbbench", &err);
    if (!c->db || ab_db_exec(c->db, settings, &err) < 0 || ab_db_prepare(c->db, lists, &err) < 0)
        die(&err);
    if (mode->set_up)
        mode->set_up(c);
}

static void *run_client(void *arg)
{
    struct result *self = arg;
    struct client *c = &self->client;
    for (int64_t i = 0; i < warm; i++) {
        mode->run(c);
        if (mode->after)
            mode->after(c);
        ab_arena_reset(c->arena);
    }
    pthread_barrier_wait(&start);
    int64_t end = ab_now_us() + seconds * 1000000;
    while (ab_now_us() < end && self->ops < most_ops) {
        int64_t began = ab_now_us();
        long rows = mode->run(c);
        float ms = (float)(ab_now_us() - began) / 1000;
        if (mode->after)
            mode->after(c);
        ab_arena_reset(c->arena);
        if (rows == 0)
            break; /* nothing is left */
        if (rows < 0) {
            self->conflicts++;
            continue;
        }
        self->ops++;
        self->rows += rows;
        if (self->n_ms < MAX_LATENCIES)
            self->ms[self->n_ms++] = ms;
    }
    return NULL;
}

/* ---- figures */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print(struct result *results, double took)
{
    long ops = 0, rows = 0, conflicts = 0;
    size_t count = 0;
    float *ms = calloc((size_t)clients * MAX_LATENCIES, sizeof(*ms));
    for (int i = 0; i < clients && ms; i++) {
        ops += results[i].ops;
        rows += results[i].rows;
        conflicts += results[i].conflicts;
        memcpy(ms + count, results[i].ms, (size_t)results[i].n_ms * sizeof(*ms));
        count += (size_t)results[i].n_ms;
    }
    if (ms)
        qsort(ms, count, sizeof(*ms), by_size);
    double p50 = count ? ms[count / 2] : 0, p99 = count ? ms[count * 99 / 100] : 0;
    printf("%s clients %" PRId64
           " rows/s %.0f ops/s %.1f p50 %.2f p99 %.2f ops %ld conflicts %ld\n",
           mode->name, clients, (double)rows / took, (double)ops / took, p50, p99, ops, conflicts);
    free(ms);
}

static void find_mode(const char *name)
{
    for (size_t k = 0; k < sizeof(all_modes) / sizeof(all_modes[0]); k++)
        for (const struct mode *m = all_modes[k]; m->name; m++)
            if (strcmp(m->name, name) == 0)
                mode = m;
    if (mode)
        return;
    fprintf(stderr, "dbbench: there is no mode `%s`:\n", name);
    for (size_t k = 0; k < sizeof(all_modes) / sizeof(all_modes[0]); k++)
        for (const struct mode *m = all_modes[k]; m->name; m++)
            fprintf(stderr, "  %-14s %s\n", m->name, m->text);
    exit(2);
}

static void read_options(int argc, char **argv)
{
    int64_t pool = pool_size;
    struct ab_error err = {0};
    const struct ab_opt options[] = {
        AB_OPT_INT('c', "clients", &clients, "N", "connections at a time"),
        AB_OPT_INT('s', "seconds", &seconds, "N", "how long"),
        AB_OPT_INT('n', "n", &n, "N", "jobs of one operation"),
        AB_OPT_INT(0, "ops", &most_ops, "N", "stop after so many operations of a client"),
        AB_OPT_INT(0, "warm", &warm, "N", "operations before the clock runs"),
        AB_OPT_INT(0, "pool", &pool, "N", "step, sweep: how many jobs take part"),
        AB_OPT_FLAG(0, "shared", &shared_pool,
                    "step: random sets of one pool, so that clients meet"),
        AB_OPT_FLAG(0, "give-back", &give_back, "lease: what was taken goes back, unmeasured"),
        AB_OPT_TEXT(0, "how", &how, "WHAT", "lease: small_first, long_first or to_process"),
        AB_OPT_TEXT(0, "verb", &verb, "VERB",
                    "list: job.list, event.list, ...; pieces, timer: of which"),
        AB_OPT_TEXT(0, "query", &query_text, "TEXT", "list: filters and order, as in a URL"),
        AB_OPT_INT(0, "owner", &owner_id, "ID", "list, pieces: of this tenant"),
        AB_OPT_INT(0, "id", &object_id, "ID", "pieces: of this app, site, ..."),
        {0},
    };
    int rc = ab_opt_parse("dbbench", "MODE [OPTIONS]", "Rates of the hot statements", options,
                          &argc, &argv, &err);
    if (rc < 0)
        die(&err);
    if (rc == 1)
        exit(0);
    find_mode(argc > 1 ? argv[1] : "");
    pool_size = (int)pool;
    if (n < 1 || n > MAX_N || clients < 1 || clients > MAX_CLIENTS || seconds < 1) {
        fprintf(stderr, "dbbench: --n is 1 to %d, --clients 1 to %d\n", MAX_N, MAX_CLIENTS);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct result results[MAX_CLIENTS];
    read_options(argc, argv);
    pthread_barrier_init(&start, NULL, (unsigned)clients + 1);
    for (int i = 0; i < clients; i++) {
        results[i].ms = calloc(MAX_LATENCIES, sizeof(float));
        open_client(&results[i].client, i);
        pthread_create(&results[i].thread, NULL, run_client, &results[i]);
    }
    pthread_barrier_wait(&start);
    int64_t began = ab_now_us();
    for (int i = 0; i < clients; i++)
        pthread_join(results[i].thread, NULL);
    print(results, (double)(ab_now_us() - began) / 1e6);
    for (int i = 0; i < clients; i++) {
        struct client *c = &results[i].client;
        ab_db_close(&c->db);
        ab_db_close(&c->served);
        ab_arena_destroy(&c->arena);
        ab_buf_free(&c->rows);
        free(c->pool);
        free(results[i].ms);
    }
    return 0;
}
