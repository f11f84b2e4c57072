/* hook.h - one hook of one job: a child process in the job's work directory
 *
 * It gets the job as a file, writes to abies.log there, and may leave a result file that says what
 * becomes of the job. Its group is ended with it and with us.
 */
#ifndef MODULES_HOOK_H
#define MODULES_HOOK_H

#include "app/app.h"
#include "schema/schema.h"
#include "sitedir/site.h"
#include <sys/types.h>

typedef struct hook hook_t;

/* Makes the work directory as well. `folder`: where job and result files lie (run/spool/hooks). */
hook_t *hook_start(const struct ab_site *site, const char *folder, const struct ab_app *app,
                   enum ab_app_hook which, const struct job *job, struct ab_error *err);
void hook_destroy(hook_t **self); /* kills what runs, removes the files */

int hook_fd(const hook_t *self); /* pidfd: readable when it has ended */
/* Ends it when its time is over; ms until the next look. */
int64_t hook_watch(hook_t *self, int64_t now_ms);

/* When hook_fd is readable. What it asks for, in the arena. AB_EINVAL: it failed, and why. */
struct hook_result {
    const char *state; /* NULL: the default */
    struct ab_bytes data,
        tags; /* the job's objects with the hook's members in them; n == 0: unchanged */
};
int hook_result(hook_t *self, const struct job *job, ab_arena_t *arena, struct hook_result *out,
                struct ab_error *err);

/* Ends the groups of hooks that a killed module left, by their pid files. */
void hook_end_leftovers(const char *folder);

#endif
