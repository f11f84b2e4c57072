/* head.h - the launcher's loop: lease what fits, place it, run it, report it, give the rest back */
#ifndef HEAD_H
#define HEAD_H

#include "client/api.h"
#include "node/node.h"
#include "settings/settings.h"
#include "sitedir/site.h"

#include <stdbool.h>
#include <stdint.h>

struct head_options {
    const struct ab_site *site;
    const char *instance; /* the name that it logs under */
    const struct ab_settings *settings;
    const struct ab_client_file *file;
    const struct node_platform *platform;
    const struct node_info *nodes;
    size_t n_nodes;
    bool serial;
    int64_t wall_time_ms;
    const char *filter_tags; /* JSON object */
    int64_t batch_job_id;    /* 0 none */
    int signals;             /* signalfd: SIGTERM, SIGINT end the launcher */
};

/* Until the time is over, it has been idle for idle_ttl, or it is told to end. 0, or -1 and `err`
 * when it could not begin. */
int head_run(const struct head_options *options, struct ab_error *err);

#endif
