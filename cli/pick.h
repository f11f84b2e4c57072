/* pick.h - which jobs: the options that ls, rm, wait, times, cancel and modify have in common */
#ifndef CLI_PICK_H
#define CLI_PICK_H

#include "base/opt.h"
#include "remote.h"

struct pick {
    struct ab_opt_list tags, ids;
    const char *state, *not_state, *site, *workdir, *app;
    bool all; /* everything at the sites, without another filter */
};

/* AB_OPT_... rows; `t` for --tag, `i` for --id, as old clients have them. */
#define PICK_OPTIONS(p)                                                                            \
    {'t',                                                                                          \
     "tag",                                                                                        \
     "tag",                                                                                        \
     AB_OPT_KIND_LIST,                                                                             \
     &(p).tags,                                                                                    \
     "KEY=VALUE",                                                                                  \
     "jobs with this tag (repeat: with all of them)"},                                             \
        AB_OPT_LIST('i', "id", &(p).ids, "ID", "jobs with this number (repeat, or by comma)"),     \
        AB_OPT_TEXT(0, "site", &(p).site, "SITE",                                                  \
                    "all, active, this, or ids and parts of paths by comma [this, else active]")

#define PICK_STATES(p)                                                                             \
    AB_OPT_TEXT('s', "state", &(p).state, "STATE", "jobs in this state"),                          \
    {                                                                                              \
        0, "exclude-state", "ns", AB_OPT_KIND_TEXT, &(p).not_state, "STATE",                       \
            "jobs in any other state"                                                              \
    }

#define PICK_MORE(p)                                                                               \
    AB_OPT_TEXT('w', "workdir", &(p).workdir, "TEXT", "jobs whose work directory has this in it"), \
        AB_OPT_TEXT('a', "app", &(p).app, "APP", "jobs of this app (name or id)")

/* /jobs/?filters. `args` are further ids. With ids, and with tags outside of a site, --site may be
 * left out and means all. -1 also if no site was active. */
int pick_query(struct remote *r, const struct pick *p, int argc, char **argv, struct ab_buf *path,
               struct ab_error *err);

/* The same filters for /events/: job_id and tags only. */
int pick_events_query(const struct pick *p, int argc, char **argv, struct ab_buf *path,
                      struct ab_error *err);

/* Is there any filter that names jobs? */
bool pick_is_some(const struct pick *p, int argc);

#endif
