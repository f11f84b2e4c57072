/* service.h - the skeleton: a service is a table of handlers
 *
 * Owns options, logging, signals, sockets, connections, transactions, exactly-once, replies, and
 * the verbs `ping`, `info` and `stats`. At start it joins the table with api.def and prepares every
 * statement: a handler without a route, a route without a handler or a misspelt column stops the
 * service with one log line that says which.
 *
 * One call: claim the request id (if the route mutates), run the handler, record the reply, COMMIT,
 * reply, then publish hints. -1 from the handler rolls back and becomes the error reply.
 * Serialization failures and deadlocks run the whole transaction again, at most 5 times, with
 * jitter.
 */
#ifndef AB_SERVICE_H
#define AB_SERVICE_H

#include "base/arena.h"
#include "base/conf.h"
#include "db/db.h"
#include "schema/pack.h"
#include "schema/schema.h"

struct ab_worker; /* one thread and its connection */

struct ab_call {
    ab_arena_t *arena;
    ab_db_t *db;
    const ab_conf_t *conf;
    const struct ab_route *route;
    int64_t owner_id; /* the token's user; 0: nobody (public routes) */
    const char *username;
    unsigned scopes;
    int64_t token_site;
    const char *request_id; /* text */
    const char *trace;      /* 32 hex digits: in every log line, and in PostgreSQL's (%a) */
    const char *key;        /* the client's Idempotency-Key; NULL: it sent none */
    const char *peer;       /* client's address; may be NULL */
    const char *host;       /* the address it used (Host); only `auth` gets it; may be NULL */
    int64_t deadline_ms;
    const struct ab_request *req; /* checked; see schema.h */
    struct ab_buf reply;          /* msgpack; empty = nil */
    int status;                   /* of success; preset from the route */
    /* set by lifecycle and handlers, used after COMMIT */
    bool events;                /* this call wrote events of owner_id */
    struct ab_ids event_owners; /* further owners (the sweeper) */
    int64_t hold_ms;          /* answer this much later; no worker waits (slows down who guesses) */
    void *state;              /* what `before` found, for the handler */
    struct ab_worker *worker; /* the skeleton's */
};

/* A site token speaks for one site only; any other token for all sites of its user. */
bool ab_site_allowed(const struct ab_call *call, int64_t site_id);

/* Gateways that this replica has now; -1: there is no bus (a test's call). */
int ab_gateways(const struct ab_call *call);

typedef int ab_handler_f(struct ab_call *call, struct ab_error *err);

struct ab_verb {
    const char *name;
    ab_handler_f *handler;
    /* A reply too large to record (> 8 kB) is rebuilt from the ids that the handler gave to
     * ab_record_ids: called with them in a fresh transaction when the same request comes again.
     * NULL: replies are small. */
    int (*replay)(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);
    /* The reply has a secret in it, so it is never recorded: replay makes it again, whatever its
     * size. */
    bool secret;
    /* Of an answer that was true only for a while: 1 it still is, and what was recorded is sent;
     * 0 it is not, and replay makes another. NULL: it is true for ever. */
    int (*still_true)(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);
    /* Slow things (a remote login, a password hash): no BEGIN around the handler, each statement
     * for itself. Not recorded, and it may run twice: write it so that this is harmless. */
    bool no_transaction;
    /* Changes something, though its route is not recorded (`mutates`): twice is harmless. All others
     * of that kind run READ ONLY and are answered before COMMIT. */
    bool writes;
    /* Slow things of a verb that has a transaction: runs once, in front of it. -1 answers at once.
     */
    ab_handler_f *before;
};

struct ab_timer {
    const char *name;
    /* In its own transaction; `req` is NULL. 0 done, 1 there is more: again at once, -1 error. */
    int (*run)(struct ab_call *call, struct ab_error *err);
    const char *every; /* a duration setting */
    bool one_replica;  /* never in two replicas at a time: under an advisory lock of its transaction
                        */
};

struct ab_service {
    const char *name;
    const struct ab_verb *verbs;            /* ends with {0} */
    const struct ab_timer *timers;          /* NULL none */
    const struct ab_sql *const *const *sql; /* NULL-terminated */
    const struct ab_setting *settings;      /* more than the common ones; NULL none */
    /* Once, before the workers; the connection is prepared. NULL none. */
    int (*start)(const ab_conf_t *conf, ab_db_t *db, struct ab_error *err);
    void (*metrics)(struct ab_buf *out); /* figures of its own, from any thread; NULL none */
    int capacity; /* requests at a time from one gateway; 0: four for each worker */
};

int ab_service_main(const struct ab_service *service, int argc, char **argv);

/* For tests: one call without sockets, on this connection. `body` is a packed request. The reply or
 * error body lands in *reply. Returns the status. Runs claim, transaction and recording as the real
 * one. The statements of the service are prepared when they are not yet. `conf` NULL: the defaults.
 */
int ab_service_call(const struct ab_service *service, ab_db_t *db, const ab_conf_t *conf,
                    const char *verb, int64_t owner_id, const char *key, const void *body,
                    size_t len, struct ab_buf *reply);
int ab_service_tick(const struct ab_service *service, ab_db_t *db, const ab_conf_t *conf,
                    const char *timer, struct ab_error *err);

/* The same with everything that a gateway says about who asks. Zero: the user scope, no limits. */
struct ab_caller {
    int64_t owner_id;
    const char *username, *key, *peer, *host;
    unsigned scopes;
    int64_t token_site;
    int64_t deadline_ms;
    const uint8_t *uuid; /* request id; NULL: a new one */
};
int ab_service_call_as(const struct ab_service *service, ab_db_t *db, const ab_conf_t *conf,
                       const struct ab_caller *caller, const char *verb, const void *body,
                       size_t len, struct ab_buf *reply);
/* What the hints of the last call of this thread would have been: "e7 n7 r0", by topic and owner.
 */
const char *ab_service_hints(void);
/* The body of its last notice; no byte: there was none. */
const void *ab_service_notice(size_t *len);
/* How long its answer would have been held back. */
int64_t ab_service_hold(void);

/* All settings of a service at their defaults. */
ab_conf_t *ab_service_conf(const struct ab_service *service);

/* ---- binding. Looked up for each :name of a block: the call (owner_id, key, verb), then the
 * values bound here, then the path ({id}, {name}), then the body (if it is one object), then the
 * query. Absent fields without a default are NULL. Nothing found: assert. */
void ab_bind_int(struct ab_call *call, const char *name, int64_t v);
void ab_bind_real(struct ab_call *call, const char *name, double v);
void ab_bind_bool(struct ab_call *call, const char *name, bool v);
void ab_bind_text(struct ab_call *call, const char *name,
                  const char *v); /* NULL -> null; borrowed */
void ab_bind_bytes(struct ab_call *call, const char *name, const void *v, size_t n);
void ab_bind_null(struct ab_call *call, const char *name);
void ab_bind_time(struct ab_call *call, const char *name, int64_t utc_us);
void ab_bind_ids(struct ab_call *call, const char *name, const int64_t *v, size_t n);
void ab_bind_value(struct ab_call *call, const char *name, struct ab_db_value v);
/* Arrays from a list of structs: parameter and field in pairs, ends with NULL; absent or null
 * fields become NULL elements:  ab_bind_each(call, job_schema, items, n, "states", "state", "ids",
 * "id", NULL). */
void ab_bind_each(struct ab_call *call, const struct ab_schema *schema, const void *items, size_t n,
                  ...);

PGresult *ab_run(struct ab_call *call, const struct ab_sql *sql, struct ab_error *err);
/* Several in one round trip; results[i] for blocks[i]. */
int ab_run_many(struct ab_call *call, const struct ab_sql *const *blocks, size_t n,
                PGresult **results, struct ab_error *err);
/* Goes ahead of the next statement, in its round trip, if it has no rows that matter. */
int ab_ahead(struct ab_call *call, const struct ab_sql *sql, struct ab_error *err);

/* ---- replies from rows: columns are matched with the schema's AB_OUT fields by name; a field
 * without a column is nil. Times by the field's flag, json and tags as ext 1, enums as text. */
void ab_reply_row(struct ab_call *call, const struct ab_schema *schema, const PGresult *r,
                  int row); /* object */
void ab_reply_rows(struct ab_call *call, const struct ab_schema *schema,
                   const PGresult *r); /* list */
/* The one row of r, whose id is recorded if the route mutates. No row: the owned-row 404. r NULL:
 * -1, err is there already, so that `return ab_reply_one(call, schema, ab_run(...), err)` is a
 * whole handler. */
int ab_reply_one(struct ab_call *call, const struct ab_schema *schema, const PGresult *r,
                 struct ab_error *err);
int ab_not_found(const struct ab_call *call, struct ab_error *err); /* the owned-row 404 */

void ab_record_ids(struct ab_call *call, const int64_t *ids, size_t n); /* for replay */

/* A notice for /subscribe-user, sent after COMMIT: data is msgpack. */
void ab_notice(struct ab_call *call, const char *action, const char *type,
               const struct ab_buf *data);
void ab_hint_keys(struct ab_call *call); /* topic k */
void ab_hint_revoked(struct ab_call *call, const char *jti,
                     int64_t expires); /* topic r; unix seconds */

/* ---- pieces: a call that may change a million rows works about half a second at a time, each piece
 * in a transaction of its own, recorded under a key of its own. The gateway sends the request again
 * with what ab_piece_more left as `next`, until another status ends it. A caller that cannot go on
 * (its requests have no `next`) gets all of it at once, or a timeout. */
#define AB_PIECE_VALUES 4
struct ab_piece {
    bool may;   /* the caller can go on */
    bool first; /* v is zero */
    int64_t until_ms;
    int64_t v[AB_PIECE_VALUES]; /* what the piece before left; what this one leaves */
};
int ab_piece_open(struct ab_piece *self, const struct ab_call *call, struct ab_error *err);
bool ab_piece_full(const struct ab_piece *self); /* time to commit, if the caller can go on */
/* The reply "there is more": for `return`. */
int ab_piece_more(const struct ab_piece *self, struct ab_call *call);

/* ---- lists: page, count and paging of one resource, from the query descriptor
 * The filters' `column` is a predicate with `?` for the value, e.g. "j.id = ANY (?::bigint[])" or
 * "s.tags @> ?::jsonb". Orders by `ordering` (an ENUM whose names are columns, '-' in front), then
 * id. Stops at a page (pack.h) and continues from `next`. */
/* One table of several that have a row each for every row of the list, by the same id: when filters
 * and order look at it alone, it is searched alone. */
struct ab_list_part {
    const char *alias;             /* "s." as the columns are written; NULL ends the parts */
    const char *from, *owner, *id; /* from NULL: it is never searched alone */
    const char *where;             /* one more condition, or NULL */
    bool by_id;                    /* an index has an owner's rows in the order of their ids */
    /* Or several do, each those of one condition: of these, which are NULL-terminated, each row that
     * is wanted meets exactly one. Each is searched up to the page's end; `alike` is the column in
     * front of the id in their index, the same in all rows of a branch. NULL none. */
    const char *const *branches;
    const char *alike;
    /* A filter has an index that finds few: all matches are read and sorted by id. A walk by id until a
     * page is full reads nearly everything where the matches are the last ones. */
    bool gathers;
    bool all; /* it is all tables, for branches or gathering with filters of several: stands last */
};
struct ab_list_spec {
    const struct ab_schema *out; /* its AB_OUT fields' columns are selected */
    const struct ab_schema *query;
    const char *from;                 /* "job_specs s JOIN jobs j ON j.id = s.id" */
    const char *owner;                /* "s.owner_id": = owner_id is always added */
    const char *id;                   /* "s.id": last key of every order */
    const char *default_order;        /* "timestamp DESC" or NULL (= id) */
    const char *where;                /* one more condition, or NULL */
    const struct ab_list_part *parts; /* NULL none */
    /* May know the total without counting (job_counts): the statement that says it, its parameters
     * bound; NULL: it cannot. */
    const struct ab_sql *(*total)(struct ab_call *call, const void *query);
    /* The total first, where it is known: nothing is searched beyond the last match, which may be
     * where a long walk begins. */
    bool total_first;
    bool gathers;   /* as for a part */
    bool no_paging; /* sessions: limit and offset are ignored */
};
int ab_list_handler(struct ab_call *call, const struct ab_list_spec *spec, struct ab_error *err);

/* The ids (spec->id) that match the filters of the call's query and its owner, ascending, at most
 * `limit`; ordering, limit and offset of the query do not count. For updates and deletes by filter.
 */
int ab_list_ids(struct ab_call *call, const struct ab_list_spec *spec, size_t limit,
                struct ab_ids *out, struct ab_error *err);

#endif
