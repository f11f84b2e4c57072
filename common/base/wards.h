/* wards.h - what supervise.c keeps about a process it starts again and again, and its log file */
#ifndef AB_WARDS_H
#define AB_WARDS_H

#include "error.h"
#include "supervise.h"
#include <sys/types.h>

/* An owned copy of struct ab_ward; the environment is complete (ours and the ward's). */
struct ward_plan {
    char *name, *cwd, *log_path;
    char **argv, **env;
    int64_t stop_ms;
    int stop_signal;
    bool die_with_parent;
};

int ward_plan_copy(struct ward_plan *self, const struct ab_ward *ward, struct ab_error *err);
void ward_plan_free(struct ward_plan *self);
int ward_plan_spawn(const struct ward_plan *self, pid_t *pid, int *pidfd, struct ab_error *err);

/* If it is larger than 16 MiB: path.3 -> path.4, ..., path -> path.1 by copy, and cut to nothing.
 */
void ward_log_rotate(const char *path);

#endif
