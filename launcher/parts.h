/* parts.h - an allocation in partitions: a launcher of its own for each slice of the nodes */
#ifndef PARTS_H
#define PARTS_H

#include "base/error.h"
#include "sitedir/site.h"

struct parts_options {
    const struct ab_site *site;
    const char *instance;
    int64_t minutes;
    const char *const *parts; /* "MODE:NODES[:KEY=VALUE]*" */
    size_t n;
    int signals; /* a signalfd: SIGTERM, SIGINT, SIGCHLD */
};

/* Until all have ended. -1: one could not be started, or ended with an error. */
int parts_run(const struct parts_options *options, struct ab_error *err);

#endif
