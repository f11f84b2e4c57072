/* report.h - what the centre is told of a task */
#ifndef REPORT_H
#define REPORT_H

#include "status.h"
#include "task.h"

/* data: JSON object or NULL; code: return code or NULL. */
void report(status_t *status, const struct task *task, int state, const char *data,
            const int *code);

/* RUNNING: ahead of the program (status_accepted says when the centre knows) or after its start. */
void report_running(status_t *status, const struct task *task, bool ahead);

/* With a message for people, or return code and last output; NULL: without. */
void report_text(status_t *status, const struct task *task, int state, const char *message,
                 const int *code, const char *output);

/* Killed, and not by us: the worker of its node died. A retry policy tells that from a time limit.
 */
void report_node_loss(status_t *status, const struct task *task, const char *message);

#endif
