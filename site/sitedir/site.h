/* site.h - the folder of a site: where it is, who runs it, what in it is whose
 *
 *     .abies-site   site id        settings.yml  client.yml  job-template.sh
 *     apps/         what jobs may run
 *     data/         work directories
 *     log/          one file a process
 *     qsubmit/      batch scripts, their output, one record each
 *     run/          lock  health.json  outbox/  spool/   of the running agent
 */
#ifndef AB_SITE_H
#define AB_SITE_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AB_SITE_FILE ".abies-site"

struct ab_site {
    char *path; /* absolute, links resolved */
    int64_t id;
};

/* `given` (NULL none), else ABIES_SITE_PATH, else the nearest folder upwards with .abies-site. */
int ab_site_find(struct ab_site *out, const char *given, struct ab_error *err);
void ab_site_free(struct ab_site *self);

/* <site>/<name>, malloc'ed. */
char *ab_site_path(const struct ab_site *self, const char *name);

/* Folder for sockets on this node: below XDG_RUNTIME_DIR or /tmp/abies-<uid>, 0700, ours, short. A
 * shared file system does not carry sockets, and their names may have 107 bytes. malloc'ed; NULL +
 * err. */
char *ab_site_runtime_dir(const struct ab_site *self, struct ab_error *err);

/* Does the process that was written down with this start time (ab_pid_start_time) run? A zombie
 * does not. */
bool ab_process_runs(pid_t pid, uint64_t start);

/* ---- the lock: one agent per site, on whatever machine it runs
 *
 * run/lock holds "host\npid\nstart\n" (start: clock ticks of /proc) and is made with O_EXCL. It is
 * taken over when its process is gone on this host, or when nobody has touched it for two minutes.
 */
struct ab_site_owner {
    char host[256];
    pid_t pid;
    uint64_t start;
    bool here;  /* on this machine */
    bool alive; /* the process runs; on another host: touched within two minutes */
};
/* 1 somebody holds it, 0 nobody does, -1 error. */
int ab_site_owner(const struct ab_site *self, struct ab_site_owner *out, struct ab_error *err);

typedef struct ab_site_lock ab_site_lock_t;
ab_site_lock_t *ab_site_lock(const struct ab_site *self,
                             struct ab_error *err);                 /* AB_ECONFLICT: it runs */
int ab_site_lock_touch(ab_site_lock_t *self, struct ab_error *err); /* each 30 s; -1: lost */
void ab_site_unlock(ab_site_lock_t **self);

#endif
