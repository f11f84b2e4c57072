/* order.h - what head and worker say to each other (bodies of local.h messages)
 *
 *     head -> worker   run    number = job   the program
 *                      kill   number = job   grace_ms
 *                      leave
 *     worker -> head   exit     number = job   how it ended
 *                      figures  what it may take, and what it has done
 */
#ifndef ORDER_H
#define ORDER_H

#include "base/arena.h"
#include "base/buf.h"
#include "http/metric.h"
#include "run.h"

void order_pack_run(struct ab_buf *out, const struct run_spec *spec);
int order_unpack_run(const void *body, size_t len, int64_t job, ab_arena_t *arena,
                     struct run_spec *out, struct ab_error *err);
void order_pack_exit(struct ab_buf *out, const struct run_exit *exit);
int order_unpack_exit(const void *body, size_t len, int64_t job, ab_arena_t *arena,
                      struct run_exit *out);

/* Numbers of a worker; spawns are those since the last message that went out. */
enum {
    FIGURE_ROOM, /* how many jobs it may run at a time */
    FIGURE_RUNNING,
    FIGURE_WAITING, /* ordered, and no descriptors for them now */
    FIGURE_STARTED,
    FIGURE_NOT_STARTED,
    FIGURE_SENT,
    FIGURE_UNHEARD, /* messages that the link did not take */
    FIGURE_PID,
    FIGURE_BEGAN_US,
    FIGURE_RESIDENT,
    FIGURE_CPU_US,
    FIGURE_FILES,
    FIGURE_FILES_MAX,
    FIGURE_SPAWN_US,
    FIGURE_SPAWN,
    FIGURES = FIGURE_SPAWN + AB_HISTOGRAM_BUCKETS
};
struct order_figures {
    int64_t v[FIGURES];
};
void order_pack_figures(struct ab_buf *out, const struct order_figures *figures);
int order_unpack_figures(const void *body, size_t len, struct order_figures *out);

/* The file that tells a worker where its head is: endpoint, head's public key, worker's pair; a
 * line each. */
struct order_keys {
    char endpoint[256], server[41], public_key[41], secret_key[41];
};
int order_keys_write(const char *path, const struct order_keys *keys, struct ab_error *err);
int order_keys_read(const char *path, struct order_keys *keys, struct ab_error *err);

#endif
