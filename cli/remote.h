/* remote.h - the centre as commands see it: one connection, JSON in an arena, sites by selector
 *
 * Whose token: ABIES_CLIENT_PATH, else the user's own file if it leads to the same centre as the
 * site that we are in, else the site's file (whose token speaks for that site only).
 */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/opt.h"
#include "client/api.h"
#include "schema/json.h"
#include "schema/schema.h"
#include "sitedir/site.h"

struct remote {
    ab_arena_t *arena; /* of all that it gives */
    ab_api_t *api;
    struct ab_client_file file;
    struct ab_site here; /* path NULL: we are in no site */
};

int remote_open(struct remote *self, struct ab_error *err);
void remote_close(struct remote *self);

/* One call; the reply as a tree (NULL for an empty one). -1 for statuses from 400 on, too. */
int remote_call(struct remote *self, const char *method, const char *path,
                const struct ab_buf *body, const struct ab_value **reply, struct ab_error *err);
int remote_get(struct remote *self, const char *path, const struct ab_value **reply,
               struct ab_error *err);

/* {"count","results"}: the list, and how many match in all. */
int remote_list(struct remote *self, const char *path, const struct ab_value **results,
                int64_t *count, struct ab_error *err);
/* How many match: a GET with limit=0. `path` has its filters and no limit. */
int remote_count(struct remote *self, const struct ab_buf *path, int64_t *count,
                 struct ab_error *err);

/* ---- --site SELECTOR: absent (this site if we are in one, else all that were active in the last
 * two minutes), all, active, this, or a list of ids and path fragments. `all` true: no filter. */
struct sites {
    bool all;
    int64_t *ids;
    size_t n;
};
int remote_sites(struct remote *self, const char *selector, struct sites *out,
                 struct ab_error *err);
/* Exactly one: this site, an id, or a path fragment (or exact name) that fits one site only. */
int remote_one_site(struct remote *self, const char *selector, int64_t *id, struct ab_error *err);
/* Adds site_id=... for each. False if the list is empty: nothing can match. */
bool sites_query(const struct sites *self, struct ab_buf *path);

/* An app by number or by name at a site. */
int remote_app(struct remote *self, const char *app, int64_t site_id, const struct ab_value **out,
               struct ab_error *err);

/* ---- small things that several commands do */

/* KEY=VALUE arguments. As JSON object: {"a":"1"}; as filters: tags=a:1&tags=... */
int pairs_check(const struct ab_opt_list *pairs, const char *option, struct ab_error *err);
void pairs_json(const struct ab_opt_list *pairs, struct ab_buf *out);
int pairs_query(const struct ab_opt_list *pairs, const char *option, const char *name,
                struct ab_buf *path, struct ab_error *err);

/* "job" or "jobs". */
#define JOBS(n) ((n) == 1 ? "job" : "jobs")

/* A number that must be an id. */
int parse_id(const char *text, int64_t *id, struct ab_error *err);

/* Shows each of these; with `json` they stand in one list. */
typedef int show_f(struct remote *r, int64_t id, bool json, bool first, struct ab_error *err);
int show_ids(struct remote *r, int argc, char **argv, bool json, show_f *show,
             struct ab_error *err);

/* An enumeration's name, any case; -1 with a near match. */
int parse_name(const struct ab_enum *names, const char *option, const char *text, const char **out,
               struct ab_error *err);

/* The value as one line of JSON on standard output. */
void print_value(const struct ab_value *v);

/* Texts of a value for a table: "" for null, {"a":"1"} as a=1,b=2. In the arena. */
const char *value_cell(ab_arena_t *arena, const struct ab_value *v);

/* Seconds since this API time; negative if it is none. */
double seconds_since(const struct ab_value *time);

#endif
