/* crew.h - the head's side of serial mode: one worker process per node, fed over ZeroMQ with CURVE
 *
 * Same calls as run.h, with a node in addition. A worker that dies is started again; its jobs are
 * reported as lost (RUN_KILLED, code 0, with a text). Keys are made for this launcher and live in a
 * file of mode 0600. How many jobs a worker may run at a time (its descriptors bound that) is told
 * by on_room, when it comes, when that changes, and with 0 when it has gone.
 */
#ifndef CREW_H
#define CREW_H

#include "apprun/apprun.h"
#include "base/supervise.h"
#include "node/node.h"
#include "order.h"
#include "run.h"

typedef struct crew crew_t;

struct crew_options {
    const char *run_dir; /* for the key file */
    const char *log_dir;
    const struct node_info *nodes;
    size_t n_nodes;
    const struct apprun *starter; /* starts workers on other hosts */
    int tail_lines;
    run_exit_f *on_exit;
    void (*on_room)(void *arg, size_t node, size_t jobs); /* NULL: not wanted */
    void *arg;
};

crew_t *crew_new(const struct crew_options *options, struct ab_error *err);
void crew_destroy(crew_t **self); /* tells the workers to leave, then kills */

int crew_start(crew_t *self, size_t node, const struct run_spec *spec, struct ab_error *err);
void crew_kill(crew_t *self, int64_t job, int64_t grace_ms);
void crew_kill_all(crew_t *self, int64_t grace_ms);
size_t crew_count(const crew_t *self);

/* What the worker of a node has said of itself last; false: none is there. */
bool crew_figures(const crew_t *self, size_t node, struct order_figures *out);
struct ab_histogram *crew_spawns(crew_t *self); /* of all workers */
const ab_supervise_t *crew_wards(const crew_t *self);

/* Two descriptors to poll; call crew_step when one is readable, and before every sleep. */
void crew_fds(const crew_t *self, int fds[2]);
int64_t crew_step(crew_t *self, int64_t now_ms);

#endif
