/* guard.h - nothing that a launcher started outlives it, not even after SIGKILL
 *
 * A small child process holds the read end of a pipe. The launcher tells it each process group that
 * it starts and that has ended; when the pipe closes without a goodbye, the guard kills the groups
 * that are left.
 */
#ifndef GUARD_H
#define GUARD_H

#include "base/error.h"
#include <sys/types.h>

/* Before any thread, context or connection: it forks. -1 and `err` if it cannot. */
int guard_start(struct ab_error *err);
void guard_watch(pid_t group);  /* right after the start */
void guard_forget(pid_t group); /* right after it was reaped */
void guard_stop(void);          /* at a clean end: the guard leaves without killing */

#endif
