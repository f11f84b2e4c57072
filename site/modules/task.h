/* task.h - transfer tasks on disk: run/spool/transfer/<id>/ with task.json, pid, result.json
 *
 * The folder is made before the worker starts and goes when the result is in the outbox, so a
 * module that was killed at any moment finds its running and its finished tasks again.
 */
#ifndef MODULES_TASK_H
#define MODULES_TASK_H

#include "sitedir/site.h"
#include "transfer/transfer.h"
#include <sys/types.h>

struct task {
    struct transfer_task data; /* data.arena owns the strings */
    const struct transfer_kind *kind;
    pid_t pid;  /* its worker; 0 none */
    bool child; /* ours, to be waited for */
    int fd;     /* pidfd, -1 */
    int starts;
    struct task *next;
};

/* A new one: items (copied) between one location and the site. Its folder and task.json are on
 * disk. */
struct task *task_new(const struct ab_site *site, const struct transfer_task *what,
                      struct ab_error *err);
/* One that lies in the spool folder. */
struct task *task_load(const struct ab_site *site, const char *id, struct ab_error *err);
void task_destroy(struct task **self); /* memory only; the worker runs on */

int task_start(struct task *self, struct ab_error *err);
/* Finds the worker of a loaded task, if it still runs. */
bool task_adopt(struct task *self);
/* Its worker has ended: collect it. */
void task_collect(struct task *self);
void task_kill(struct task *self);

/* 1: result.json is there and read into data.items; 0: not yet; -1: unreadable. */
int task_result(struct task *self, struct ab_error *err);
void task_remove(struct task *self); /* the folder */

/* What the worker process does: `abies-module-transfer run SITE ID`. */
int task_work(const char *site, const char *id);

/* Ids of all folders, malloc'ed strings in a malloc'ed array. */
size_t task_list(const struct ab_site *site, char ***ids);

#endif
