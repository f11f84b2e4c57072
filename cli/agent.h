/* agent.h - starting and stopping the agent of a site on this machine */
#ifndef CLI_AGENT_H
#define CLI_AGENT_H

#include "base/arena.h"
#include "base/error.h"
#include "sitedir/site.h"

struct agent_state {
    pid_t pid;
    bool reached;  /* it has spoken with the centre */
    bool known;    /* the centre has what settings.yml says of the site */
    char why[256]; /* not; "" not yet */
};

/* Starts abies-site in the background and waits until it holds the site's lock and the centre knows
 * its settings. 1: it ran already. */
int agent_start(const struct ab_site *site, struct agent_state *out, struct ab_error *err);

/* SIGTERM, and SIGKILL to its group when it does not end in time. 1: none ran. */
int agent_stop(const struct ab_site *site, struct ab_error *err);

#endif
