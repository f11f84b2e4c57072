/* desk.h - the three services of jobs behind one desk: requests in, replies out, as JSON
 *
 * A test asks as a client does: method, path with query, JSON body (with ' for ", so that it can be
 * read). The request goes through the descriptors to the right service, each on a connection with
 * the rights of its own role, and the reply comes back as a tree:
 *
 *     assert_int_equal(ask(tenant, "POST", "/jobs/", "[{'app_id': %ld, 'workdir': 'a'}]", app), 201);
 *     assert_string_equal(txt("0.state"), "STAGED_IN");
 */
#ifndef DESK_H
#define DESK_H

#include "base/arena.h"
#include "db/db.h"
#include "schema/json.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka's setup and teardown of a group. */
int desk_open(void **state);
int desk_close(void **state);

/* A connection as the owner of the tables: to look, and to arrange what no client can. */
ab_db_t *desk_db(void);
/* The connection of one of the services. */
ab_db_t *desk_db_of(const char *service);

#define NO_BODY "%s", ""

/* Status of the answer. Whoever asks is a user's id, or who(). */
struct who {
    int64_t user;
    int64_t token_site; /* a site's token */
    const char *key;    /* Idempotency-Key */
    bool in_pieces;     /* goes on as a gateway does, until the last piece is done */
};
/* Pieces of the last request: 1 of one that was done at once. */
int pieces(void);
/* Gives up behind so many pieces (0: never); the status is then that of the piece. */
void give_up_behind(int n);
int ask(int64_t user, const char *method, const char *path, const char *body, ...)
    __attribute__((format(printf, 4, 5)));
int ask_as(const struct who *who, const char *method, const char *path, const char *body, ...)
    __attribute__((format(printf, 4, 5)));
/* A path with values in it; lives until the next call but three. */
const char *path(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Into the last answer: "results.0.id". NULL, if it is not there, is an error of the test. */
const struct ab_value *at(const char *where);
bool there(const char *where);
bool is_null(const char *where);
int64_t num(const char *where);
double real(const char *where);
const char *txt(const char *where);
int len(const char *where); /* of a list or an object; "" is the answer itself */
const char *answer(void);   /* as text */
const char *told(void);     /* what the hints would have been */
const char *noticed(void);  /* what /subscribe-user would have said last, "" nothing */

/* A setting of a service, as text. */
void desk_set(const char *service, const char *name, const char *value);
/* One tick of a timer. */
int try_tick(const char *service, const char *timer, struct ab_error *err);
void tick(const char *service, const char *timer);

/* ---- things to work with */
int64_t new_user(void);
int64_t new_site(int64_t user);
int64_t new_app(int64_t user, int64_t site); /* slots: input (in), more (in), output (out) */
/* n jobs with workdirs of their own; `fields` are further members, "" none: "'num_nodes': 2". The
 * first id; the others are in ids[] (NULL: not wanted). */
int64_t new_jobs(int64_t user, int64_t app, int n, int64_t *ids, const char *fields);
int64_t new_job(int64_t user, int64_t app, const char *fields);
int64_t new_batch_job(int64_t user, int64_t site);
int64_t new_session(int64_t user, int64_t site, int64_t batch_job); /* 0: none */

/* "STAGED_IN", with " held" behind it while a session has it. */
const char *state_of(int64_t job);
/* "CREATED>READY READY>STAGED_IN:Skipped stage in" */
const char *history_of(int64_t job);
void move(int64_t user, int64_t job, const char *state);

/* Counters, events and items agree with the tables (as `abies-admin check` does). */
void check_books(void);

#endif
