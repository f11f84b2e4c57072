/* transfer.h - how files get from a trusted location to a work directory, and back
 *
 * One struct transfer_kind per kind of location. `move` runs in a worker process of its own, one
 * per task: it may take hours and block on a dead file server without harm to anybody else. A kind
 * that hands its tasks to a service (Globus) will have submit and poll in its place.
 *
 * Items name their remote end by an absolute path, which is looked up below the path of the
 * location's URL, and their local end by work directory and a path in it. Neither can leave its
 * folder.
 */
#ifndef TRANSFER_TRANSFER_H
#define TRANSFER_TRANSFER_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "sitedir/site.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transfer_url {
    const char *scheme, *user, *host,
        *path; /* user NULL, path "/" if not given; strings in the arena */
    int port;  /* 0: not given */
};
int transfer_url_parse(const char *url, ab_arena_t *arena, struct transfer_url *out,
                       struct ab_error *err);

struct transfer_item {
    int64_t id, job_id;
    const char *workdir;     /* of the job, below data/ */
    const char *local_path;  /* in it; "." the directory itself */
    const char *remote_path; /* absolute */
    bool recursive;
    /* what became of it */
    bool done;
    int64_t bytes;
    const char *error; /* in the task's arena */
};

struct transfer_task {
    ab_arena_t *arena;
    const struct ab_site *site;
    const char *id;
    const char *dir;      /* its spool folder, for temporary files */
    const char *location; /* URL */
    struct transfer_url url;
    bool out;
    int64_t retries;        /* when the location cannot be reached */
    const char *ssh_config; /* NULL: the user's own */
    struct transfer_item *items;
    size_t n;
};

struct transfer_kind {
    const char *name;           /* task ids are "<name>:<id>" */
    const char *const *schemes; /* NULL-terminated */
    /* May this location be used at all? Said before a task is made. */
    int (*check)(const struct transfer_url *url, struct ab_error *err);
    void (*move)(struct transfer_task *task); /* sets done, bytes, error of each item */
};

extern const struct transfer_kind transfer_local, transfer_rsync;
const struct transfer_kind *transfer_of(const char *scheme); /* NULL */
const struct transfer_kind *transfer_named(const char *name, size_t len);

/* ---- task.json and result.json of a spool folder */
void transfer_task_json(const struct transfer_task *task, struct ab_buf *out);
int transfer_task_read(struct transfer_task *task, const char *json, size_t len,
                       struct ab_error *err);
void transfer_result_json(const struct transfer_task *task, double seconds, struct ab_buf *out);
int transfer_result_read(struct transfer_task *task, const char *json, size_t len,
                         struct ab_error *err);

/* ---- for the kinds: mark one item */
void transfer_fail(struct transfer_task *task, struct transfer_item *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The remote path below the location's: "a/b" for "/a/b"; NULL + err when it leaves it. */
const char *transfer_remote(const struct transfer_item *item, struct ab_error *err);
/* Where the local end is: the open work directory (close it) and the name in it; for local_path "."
 * of a single file that comes in, the remote one's last part. -1 + err. */
int transfer_local_end(const struct transfer_task *task, const struct transfer_item *item,
                       const char **name, struct ab_error *err);

#endif
