/* settings.h - a site's settings.yml: strict, with every default in one table
 *
 * Names and meanings are the contract's; times are numbers of seconds or "5s", "2m". A module whose
 * key is null is off. A module whose key is absent is on with its defaults, but for elastic_queue,
 * queue_maintainer and file_cleaner, which must be there to be on.
 */
#ifndef AB_SETTINGS_H
#define AB_SETTINGS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ab_pair {
    const char *key, *value;
};
struct ab_pairs {
    struct ab_pair *v;
    size_t n;
};
struct ab_words {
    const char **v;
    size_t n;
};
struct ab_queue {
    const char *name;
    int64_t max_nodes, max_walltime, max_queued_jobs; /* walltime in minutes */
};

struct ab_settings {
    ab_arena_t *arena; /* owns all below */
    const char *path;

    struct {
        const char *level;
    } logging;

    struct {
        const char *listen; /* NULL: no port */
    } metrics;

    struct {
        bool live; /* the centre's live events wake modules */
    } events;

    struct ab_pairs filter_tags;

    struct {
        int64_t idle_ttl_ms, delay_ms;
        int64_t heartbeat_ms; /* 0: a third of what the centre says is left */
        int64_t error_tail_num_lines, max_concurrent_mpiruns;
        const char *compute_node;       /* "local" */
        const char *mpi_app_launcher;   /* "mpich" */
        const char *local_app_launcher; /* "local" */
        bool mpirun_allows_node_packing;
        int64_t serial_mode_prefetch_per_rank;
        const char *sort_by; /* NULL, "long_large_first" */
        struct ab_pairs serial_mode_startup_params;
    } launcher;

    struct {
        bool on;
        const char *type; /* "local" */
        int64_t sync_period_ms;
        struct ab_queue *queues;
        size_t n_queues;
        struct ab_words allowed_projects;
        struct ab_pairs optional_batch_job_params;
        const char *job_template_path;
    } scheduler;

    struct {
        bool on;
        int64_t num_workers, prefetch_depth;
        int64_t poll_period_ms; /* how often an idle module asks for jobs */
    } processing;

    struct {
        bool on;
        struct ab_pairs locations; /* alias -> URL, the trusted ones */
        const char *globus_endpoint_id, *globus_endpoint_site_path;
        int64_t max_concurrent, batch_size, query_limit;
        int64_t service_period_ms;
        int64_t retries;        /* of a task that could not reach its location */
        const char *ssh_config; /* NULL: the user's own */
    } transfers;

    struct {
        bool on;
        int64_t service_period_ms;
        const char *submit_project, *submit_queue, *job_mode;
        int64_t min_wall_time_min, max_wall_time_min, wall_time_pad_min;
        int64_t min_num_nodes, max_num_nodes;
        int64_t max_queue_wait_time_min, max_queued_jobs;
        bool use_backfill;
    } elastic_queue;

    struct {
        bool on;
        int64_t submit_period_ms;
        const char *submit_project, *submit_queue, *job_mode;
        int64_t num_queued_jobs, num_nodes, wall_time_min;
    } queue_maintainer;

    struct {
        bool on;
        int64_t cleanup_batch_size, service_period_ms;
    } file_cleaner;
};

/* Errors: "settings.yml:12:5: unknown key `prefetch_dept`; did you mean `prefetch_depth`?" */
struct ab_settings *ab_settings_load(const char *path, struct ab_error *err);
void ab_settings_destroy(struct ab_settings **self);

const struct ab_queue *ab_settings_queue(const struct ab_settings *self,
                                         const char *name);                          /* NULL */
const char *ab_settings_location(const struct ab_settings *self, const char *alias); /* NULL */

/* {"a":"1"} */
void ab_pairs_json(const struct ab_pairs *pairs, struct ab_buf *out);

/* The site's fields that follow settings.yml, as a SiteUpdate body: queues, projects, optional
 * parameters (if the scheduler is on), transfer locations, endpoint (if transfers are). */
void ab_settings_site_json(const struct ab_settings *self, struct ab_buf *out);

#endif
