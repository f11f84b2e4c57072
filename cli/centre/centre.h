/* centre.h - a whole centre on this machine, in one folder: what is where, and how much of it runs
 *
 *     centre.yml   this file's struct, rewritten only when `abies up` is told something new
 *     pg/          PostgreSQL cluster
 *     secrets/     passwords, seal.key
 *     curve/       keys of the bus
 *     tls/         own CA, server.pem
 *     log/         one file a process
 *     run/         lock, centre.json
 */
#ifndef CENTRE_H
#define CENTRE_H

#include "base/arena.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

#define GATEWAYS_MAX 8
#define REPLICAS_MAX 16
#define ROLES 4

/* Services, in the order they are started. */
extern const char *const centre_roles[ROLES];

struct centre_setting {
    const char *name, *value;
};

struct centre {
    ab_arena_t *arena; /* owns all texts */
    const char *home;  /* absolute */
    const char *host;  /* where HTTPS listens */
    int port;          /* 0: not chosen yet */
    int gateways;
    int bus_ports[GATEWAYS_MAX]; /* 0: not chosen yet; hints come in at the next port */
    int replicas[ROLES];
    struct centre_setting *settings; /* for all processes that know them */
    size_t n_settings;
    bool changed; /* since it was loaded */
};

/* ABIES_HOME, else ~/.abies/centre. NULL `home`: look there. A centre that is not there yet has
 * defaults. */
struct centre *centre_load(const char *home, struct ab_error *err);
void centre_destroy(struct centre **self);
bool centre_exists(const struct centre *self);

/* Folders (0700) and centre.yml. */
int centre_make_folders(struct centre *self, struct ab_error *err);
int centre_save(struct centre *self, struct ab_error *err);

/* <home>/<name>, in the arena. */
const char *centre_path(const struct centre *self, const char *name);

/* What the command line says: "jobs=2,sessions=2"; "name=value"; an empty value forgets the
 * setting. */
int centre_set_replicas(struct centre *self, const char *text, struct ab_error *err);
int centre_set(struct centre *self, const char *text, struct ab_error *err);
int centre_set_gateways(struct centre *self, int64_t n, struct ab_error *err);

/* "https://127.0.0.1:8443" */
const char *centre_url(const struct centre *self);

#endif
