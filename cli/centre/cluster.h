/* cluster.h - the private PostgreSQL of a centre: a folder, a unix socket, nothing system-wide
 *
 * PostgreSQL refuses to run as root. There it runs in a user namespace, in which root has another
 * number: the files stay root's and no parent folder must be opened. Where namespaces are refused
 * it runs as the system user `postgres`, with its data below /var/tmp.
 */
#ifndef CENTRE_CLUSTER_H
#define CENTRE_CLUSTER_H

#include "centre.h"
#include <sys/types.h>

struct cluster {
    const char *bin;        /* folder of postgres and initdb */
    const char *data;       /* the folder that holds PG_VERSION */
    const char *socket_dir; /* short enough for a socket's name */
    const char *prefix[8];  /* argument vector to put in front of its programs; NULL-terminated */
    bool elsewhere;         /* data lies below /var/tmp: to be said on the terminal */
    uid_t uid;              /* then: whose it is */
    gid_t gid;
};

/* Where everything is; makes the folder of the socket. */
int cluster_find(const struct centre *self, struct cluster *out, struct ab_error *err);

/* initdb and an empty database `abies`, if there is no cluster yet. All or nothing: a half-made one
 * is made again. */
int cluster_make(const struct centre *self, const struct cluster *cluster, struct ab_error *err);

/* abies.conf: what of its configuration is ours; written at each start. */
int cluster_configure(const struct centre *self, const struct cluster *cluster,
                      struct ab_error *err);

/* Argument vector of the server in the foreground, in the arena. */
const char **cluster_argv(const struct centre *self, const struct cluster *cluster);

/* From its lock file: the pid, and whether it takes connections. 0: there is none. */
pid_t cluster_pid(const struct centre *self, bool *ready);

#endif
