/* prepare.h - from a leased job to what is executed: words, environment, folder, output
 *
 * The app comes from the site's own apps/ folder, found by the name that the centre has for the
 * job's app_id.
 */
#ifndef PREPARE_H
#define PREPARE_H

#include "app/app.h"
#include "apprun/apprun.h"
#include "client/api.h"
#include "node/node.h"
#include "place.h"
#include "schema/schema.h"
#include "sitedir/site.h"

typedef struct prepare prepare_t;

struct prepare_options {
    const struct ab_site *site;
    const struct ab_client_file *file;
    const struct node_platform *platform;
    const struct node_info *nodes;
    size_t n_nodes;
    const struct apprun *starter; /* of the application itself: local in serial mode */
    const char *job_mode;
};

struct prepared {
    const char **argv, **env;
    const char *cwd, *output;
};

prepare_t *prepare_new(const struct prepare_options *options, struct ab_error *err);
void prepare_destroy(prepare_t **self);

/* Everything in the arena. AB_EINVAL: the job itself is wrong and FAILED with that text; other
 * codes: try again later. */
int prepare_job(prepare_t *self, const struct job *job, const struct placement *placement,
                ab_arena_t *arena, struct prepared *out, struct ab_error *err);

#endif
