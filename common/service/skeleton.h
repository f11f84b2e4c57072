/* skeleton.h - what the files of common/service share; nobody else includes it */
#ifndef AB_SERVICE_SKELETON_H
#define AB_SERVICE_SKELETON_H

#include "bus/client.h"
#include "service.h"
#include "stats.h"

#define MAX_BINDS 64

/* What goes to the gateways after COMMIT. */
struct hint {
    char topic;
    int64_t owner;
    const void *body;
    size_t len;
    struct hint *next;
};

struct ab_worker {
    const struct ab_service *service;
    const ab_conf_t *conf;
    ab_replica_t *replica; /* NULL in tests */
    ab_db_t *db;
    ab_arena_t *arena;
    struct stats *stats;          /* NULL in tests */
    struct hold *hold;            /* NULL in tests */
    const struct ab_timer *timer; /* the one that runs */

    /* of the call that runs */
    struct ab_db_param binds[MAX_BINDS];
    size_t n_binds;
    uint8_t key[16], body_hash[16];
    struct ab_ids recorded;
    struct hint *hints, **last_hint;
    bool replayed;
    int64_t db_us; /* waiting for the database */
};

/* ---- bind.c */
size_t bind_params(struct ab_call *call, const struct ab_sql *sql, struct ab_db_param **out);
void bind_reset(struct ab_worker *worker);
struct ab_db_value bind_text(const char *text); /* NULL -> null */
/* The value of a field, NULL if it is absent and has no default, or was sent as null. */
struct ab_db_value bind_field(ab_arena_t *arena, const struct ab_field *field,
                              const struct ab_schema *schema, const void *item, bool with_defaults);

/* ---- reply.c */
#define REPLY_COLUMNS 64
/* Columns by field, looked up once for all rows of a statement. */
void reply_columns(const struct ab_schema *schema, const PGresult *r, int cols[REPLY_COLUMNS]);
void reply_row(struct ab_call *call, const struct ab_schema *schema, const PGresult *r, int row,
               const int cols[REPLY_COLUMNS]);
/* Rows up to a size (at least one, if there is one); how many. */
int reply_rows_until(struct ab_call *call, const struct ab_schema *schema, const PGresult *r,
                     size_t limit_bytes);

/* ---- worker.c: one call from begin to commit; the reply or the error's body in call->reply.
 * Returns the status. */
struct ask {
    const char *verb;
    int64_t owner_id;
    const char *username;
    unsigned scopes;
    int64_t token_site;
    const char *key, *peer, *host; /* may be NULL */
    const char *trace;             /* traceparent; may be NULL */
    const uint8_t *uuid;
    int64_t deadline_ms;
    const void *body;
    size_t body_len;
};
int worker_call(struct ab_worker *self, const struct ask *ask, struct ab_call *call);
int worker_tick(struct ab_worker *self, const struct ab_timer *timer, struct ab_call *call,
                struct ab_error *err);
/* What goes to the gateways once the call is answered. */
typedef void worker_hint_f(void *arg, char topic, int64_t owner, const void *body, size_t len);
void worker_hints(struct ab_worker *self, const struct ab_call *call, worker_hint_f *send,
                  void *arg);
/* Behind the answer of worker_call: a transaction that only read ends, the hints go. */
void worker_answered(struct ab_worker *self, struct ab_call *call, worker_hint_f *send, void *arg);
const struct ab_verb *worker_verb(const struct ab_service *service, const char *name);
/* A thread: takes tasks until the replica stops. */
void *worker_main(void *worker);

/* ---- service.c */
int service_prepare(const struct ab_service *service, ab_db_t *db, struct ab_error *err);
/* Every verb has a route, every route of the service a verb. */
int service_join(const struct ab_service *service, struct ab_error *err);

#endif
