/* pg.h - a database of its own for a test program
 *
 * The cluster is the one of ABIES_TEST_PG (tests/lib/cluster run ...), else one that this process
 * starts and that ends with it. Each program gets a fresh database, copied from a template with all
 * migrations applied; it is dropped at exit. Whatever goes wrong here ends the program.
 */
#ifndef AB_TEST_PG_H
#define AB_TEST_PG_H

#include "db/db.h"

/* First of all: a cluster of our own, whatever ABIES_TEST_PG says. For tests that change what all
 * databases of a cluster share (roles), or cannot bear transactions of others (the event tail waits
 * for the oldest one of the cluster). */
void pg_alone(void);

/* Conninfo of this program's database, as its owner; of the same database as one of the roles. */
const char *pg_url(void);
const char *pg_url_as(const char *role);

/* A further database without anything in it. */
const char *pg_url_empty(void);

ab_db_t *pg_open(void);
ab_db_t *pg_open_as(const char *role);

/* Run statements; one value as number or text (borrowed until the next call). printf-like. */
void pg_exec(ab_db_t *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t pg_int(ab_db_t *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *pg_text(ab_db_t *db, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* False when the cluster was given by ABIES_TEST_PG and others use it too. */
bool pg_own_cluster(void);

#endif
