/* bench.h - what the modes of dbbench share */
#ifndef BENCH_H
#define BENCH_H

#include "base/arena.h"
#include "db/db.h"

enum {
    MAX_N = 8192
};

struct client {
    ab_db_t *db;
    ab_arena_t *arena; /* reset after each operation */
    int no, n, clients;
    int64_t ids[MAX_N], event_ids[MAX_N];
    struct ab_buf rows;
    /* step */
    int64_t *pool;
    int pool_n;
    long turn;
    unsigned seed;
    /* lease */
    int64_t session;
    const char *how;
    /* house */
    ab_db_t *served;
    bool ended;
};

struct mode {
    const char *name, *text;
    void (*set_up)(struct client *c);
    long (*run)(struct client *c);   /* rows done; -1: failed and rolled back */
    void (*after)(struct client *c); /* outside of the measured time */
};

extern const struct mode create_modes[], step_modes[], lease_modes[], house_modes[];

/* ---- values */
struct ab_db_value int_value(int64_t v);
struct ab_db_value text_value(const char *v);
struct ab_db_value ints(struct client *c, const int64_t *v, int n);     /* an array */
struct ab_db_value same(struct client *c, struct ab_db_value v, int n); /* n times the same */
#define EMPTY_ARRAY ((struct ab_db_value){.type = AB_DB_ARRAY})

/* ---- statements; whatever fails otherwise than by a conflict ends the program */
PGresult *run_block(struct client *c, const struct ab_sql *sql, const struct ab_db_param *params,
                    size_t n);
/* BEGIN, the steps, (COMMIT): one round trip. False: a conflict, rolled back. */
bool run_steps(struct client *c, struct ab_db_step *steps, size_t n, bool commit);
void must(struct client *c, const char *text);
_Noreturn void die(const struct ab_error *err);

#define RUN(c, sql, params) run_block((c), &(sql), (params), sizeof(params) / sizeof((params)[0]))
#define STEP(block, bound)                                                                         \
    {                                                                                              \
        .sql = &(block), .params = (bound), .n = sizeof(bound) / sizeof((bound)[0])                \
    }

extern int pool_size;                 /* --pool */
extern bool shared_pool;              /* --shared */
extern bool give_back;                /* --give-back */
extern const char *how;               /* --how */
extern const char *verb, *query_text; /* --verb, --query */
extern int64_t owner_id, object_id;   /* --owner, --id */

#endif
