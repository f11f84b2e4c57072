/* job_spec.h - a job, or the template of an array, from options
 *
 * Values are texts here: the API takes numbers as text, and the app's types say what they are.
 */
#ifndef CLI_JOB_SPEC_H
#define CLI_JOB_SPEC_H

#include "base/opt.h"
#include "remote.h"

struct retry_spec {
    int64_t max_attempts;     /* 0: no policy */
    const char *on, *backoff; /* "exit,walltime", "30s"; NULL: as the API has it */
};

struct job_spec {
    const char *app, *site;
    struct ab_opt_list tags, params, launch_params, parents, stage;
    int64_t num_nodes, ranks, threads_per_rank, threads_per_core, packing, minutes, priority;
    const char *gpus;
    struct retry_spec retry;
};

#define JOB_SPEC                                                                                   \
    {                                                                                              \
        .num_nodes = 1, .ranks = 1, .threads_per_rank = 1, .threads_per_core = 1, .packing = 1,    \
        .minutes = 1, .gpus = "0"                                                                  \
    }

/* AB_OPT_... rows. */
#define RETRY_OPTIONS(s)                                                                           \
    AB_OPT_INT(0, "max-attempts", &(s).max_attempts, "N",                                          \
               "try again after a failure, N runs in all [the app decides]"),                      \
        AB_OPT_TEXT(0, "retry-on", &(s).on, "CAUSES",                                              \
                    "after which: exit, signal, node_loss, walltime, stage_in, by comma "          \
                    "[exit,signal,node_loss]"),                                                    \
        AB_OPT_TEXT(0, "backoff", &(s).backoff, "TIME", "wait 30s, 10m, 2h before each [0s]")

#define JOB_SPEC_OPTIONS(s)                                                                          \
    AB_OPT_TEXT('a', "app", &(s).app, "APP", "name or id of the app"),                               \
        {0, "tag", "tag", AB_OPT_KIND_LIST, &(s).tags, "KEY=VALUE", "a tag to find it by (repeat)"}, \
        AB_OPT_LIST('p', "param", &(s).params, "KEY=VALUE", "a parameter of the app (repeat)"),      \
        AB_OPT_INT('n', "num-nodes", &(s).num_nodes, "N", "nodes [1]"),                              \
        {0,                                                                                          \
         "ranks-per-node",                                                                           \
         "rpn",                                                                                      \
         AB_OPT_KIND_INT,                                                                            \
         &(s).ranks,                                                                                 \
         "N",                                                                                        \
         "MPI ranks on each node [1]"},                                                              \
        {0,   "threads-per-rank",        "tpr", AB_OPT_KIND_INT, &(s).threads_per_rank,              \
         "N", "threads of each rank [1]"},                                                           \
        {0,                                                                                          \
         "threads-per-core",                                                                         \
         "tpc",                                                                                      \
         AB_OPT_KIND_INT,                                                                            \
         &(s).threads_per_core,                                                                      \
         "N",                                                                                        \
         "hardware threads used of each core [1]"},                                                  \
        AB_OPT_TEXT('g', "gpus-per-rank", &(s).gpus, "N", "GPUs of each rank [0]"),                  \
        {0,                                                                                          \
         "node-packing-count",                                                                       \
         "npc",                                                                                      \
         AB_OPT_KIND_INT,                                                                            \
         &(s).packing,                                                                               \
         "N",                                                                                        \
         "such jobs on a node at a time [1]"},                                                       \
        {0,                                                                                          \
         "launch-param",                                                                             \
         "lp",                                                                                       \
         AB_OPT_KIND_LIST,                                                                           \
         &(s).launch_params,                                                                         \
         "KEY=VALUE",                                                                                \
         "an option of the MPI starter (repeat)"},                                                   \
        AB_OPT_INT('t', "wall-time-min", &(s).minutes, "MIN",                                        \
                   "minutes it may take [1]; 0 no limit"),                                           \
        AB_OPT_INT(0, "priority", &(s).priority, "N",                                                \
                   "from -1000 to 1000: higher ones run first [0]"),                                 \
        RETRY_OPTIONS((s).retry),                                                                    \
        {0,                                                                                          \
         "parent-id",                                                                                \
         "pid",                                                                                      \
         AB_OPT_KIND_LIST,                                                                           \
         &(s).parents,                                                                               \
         "ID",                                                                                       \
         "a job that must finish before it (repeat, or by comma)"},                                  \
        AB_OPT_LIST('s', "stage-data", &(s).stage, "SLOT=LOCATION:/PATH",                            \
                    "a file of a transfer slot (repeat)"),                                           \
        AB_OPT_TEXT(0, "site", &(s).site, "SITE", "where an app given by name is [this]")

/* Appends the fields, without braces. Parameters and slots are checked against the app; a required
 * parameter may also be one of `more` (NAME=..., NULL: none). */
int job_spec_json(struct remote *r, const struct job_spec *spec, const struct ab_opt_list *more,
                  struct ab_buf *out, struct ab_error *err);

/* {"max_attempts":3,...}; nothing was asked for: 0, and nothing is written. 1: written. */
int retry_spec_json(const struct retry_spec *spec, struct ab_buf *out, struct ab_error *err);

#endif
