/* main.c - abies-launcher: the pilot job
 *
 *     abies-launcher -j serial -t 58 [--tag K=V]... [--part MODE:NODES[:K=V]*]...
 *
 * Started by the batch script, in the allocation. With partitions it starts one launcher per slice
 * of nodes and waits for them; without, it is the head of all nodes.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/rand.h"
#include "base/spawn.h"
#include "base/str.h"
#include "bus/curve.h"
#include "guard.h"
#include "head.h"
#include "parts.h"
#include "schema/json.h"
#include "worker.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct options {
    const char *mode, *site, *slice;
    int64_t minutes;
    struct ab_opt_list tags, parts;
    bool version;
};

static int parse_options(int argc, char **argv, struct options *o, struct ab_error *err)
{
    const struct ab_opt table[] = {
        AB_OPT_TEXT('j', "job-mode", &o->mode, "serial|mpi",
                    "many small jobs on each node, or one MPI starter per job"),
        AB_OPT_INT('t', "wall-time-min", &o->minutes, "MINUTES", "how long this allocation lasts"),
        {.letter = 0,
         .name = "tag",
         .old = "tag",
         .kind = AB_OPT_KIND_LIST,
         .out = &o->tags,
         .value = "KEY=VALUE",
         .text = "only jobs with this tag (repeat)"},
        AB_OPT_LIST('p', "part", &o->parts, "MODE:NODES[:KEY=VALUE]*",
                    "a slice of the nodes for jobs of its own (repeat)"),
        AB_OPT_TEXT('s', "site", &o->site, "FOLDER",
                    "the site (default: ABIES_SITE_PATH, or the nearest folder upwards)"),
        AB_OPT_TEXT(0, "slice", &o->slice, "FIRST:COUNT", "only these of the allocation's nodes"),
        AB_OPT_FLAG(0, "version", &o->version, "print the version"),
        {0},
    };
    int rc =
        ab_opt_parse("abies-launcher", "-j serial|mpi -t MINUTES [OPTION...]",
                     "Run a site's jobs on the nodes of this allocation", table, &argc, &argv, err);
    if (rc != 0)
        return rc;
    if (o->version) {
        printf("abies-launcher %s\n", AB_VERSION);
        return 1;
    }
    if (argc > 0)
        return ab_fail(err, AB_EINVAL, "unexpected argument `%s`", argv[0]);
    if (!o->mode || (strcmp(o->mode, "serial") != 0 && strcmp(o->mode, "mpi") != 0))
        return ab_fail(err, AB_EINVAL, "--job-mode must be serial or mpi");
    if (o->minutes < 1 || o->minutes > 100000)
        return ab_fail(err, AB_EINVAL, "--wall-time-min must be 1 to 100000 minutes");
    return 0;
}

/* KEY=VALUE pairs -> {"KEY":"VALUE"} */
static int tags_json(const char *const *pairs, size_t n, struct ab_buf *out, struct ab_error *err)
{
    ab_buf_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(pairs[i], '=');
        if (!eq || eq == pairs[i] || !ab_utf8_ok(pairs[i], strlen(pairs[i])))
            return ab_fail(err, AB_EINVAL, "tag `%s` is not KEY=VALUE", pairs[i]);
        if (i)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, pairs[i], (size_t)(eq - pairs[i]));
        ab_buf_char(out, ':');
        ab_buf_json_str(out, eq + 1, strlen(eq + 1));
    }
    ab_buf_char(out, '}');
    return 0;
}

/* The batch job that this allocation is: told by the job template, else looked up by the
 * scheduler's id. */
static int64_t find_batch_job(const struct ab_site *site, const struct ab_client_file *file,
                              const char *scheduler_id)
{
    const char *told = getenv("ABIES_BATCH_JOB_ID");
    int64_t id = 0;
    if (told && ab_parse_i64(told, strlen(told), 1, INT64_MAX, &id) == 0)
        return id;
    struct ab_error err = {0};
    AB_AUTO(ab_api_destroy) ab_api_t *api = scheduler_id ? ab_api_new_late(file, &err) : NULL;
    if (api) {
        AB_AUTO(ab_buf_free) struct ab_buf path = {0}, reply = {0};
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        struct ab_api_options options = {.timeout_ms = 30000, .retries = 3};
        ab_buf_printf(&path, "/batch-jobs/?site_id=%" PRId64, site->id);
        ab_api_query(&path, "scheduler_id", scheduler_id);
        if (ab_api_call(api, "GET", path.data, NULL, 0, &options, &reply, &err) == 200) {
            const struct ab_value *list =
                ab_value_get(ab_value_parse(arena, reply.data, reply.len, &err), "results");
            if (list && list->type == AB_V_LIST && list->n > 0)
                id = ab_value_int(ab_value_get(&list->items[list->n - 1], "id"), 0);
        }
    }
    if (id == 0)
        ab_log(AB_WARN, "launcher.no_batch_job",
               AB_KV("scheduler_id", scheduler_id ? scheduler_id : ""), AB_KV("error", err.text));
    return id;
}

static int cut_slice(const char *slice, struct node_info **nodes, size_t *n, struct ab_error *err)
{
    unsigned long first = 0, count = 0;
    if (!slice)
        return 0;
    if (sscanf(slice, "%lu:%lu", &first, &count) != 2 || count == 0 || first >= *n
        || count > *n - first)
        return ab_fail(err, AB_EINVAL,
                       "--slice %s does not lie within the %zu nodes of this allocation", slice,
                       *n);
    *nodes += first;
    *n = count;
    return 0;
}

static int run_head(const struct options *o, const struct ab_site *site,
                    const struct ab_settings *settings, const char *instance, int signals,
                    struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf tags = {0};
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    const struct node_platform *platform = node_platform_find(settings->launcher.compute_node, err);
    struct node_info *nodes = NULL;
    size_t n = 0;
    if (!platform || platform->list(arena, &nodes, &n, err) < 0
        || cut_slice(o->slice, &nodes, &n, err) < 0
        || tags_json(o->tags.v, o->tags.n, &tags, err) < 0
        || ab_client_file_load(&file, site->path, err) < 0)
        return -1;
    struct head_options head = {
        .site = site,
        .instance = instance,
        .settings = settings,
        .file = &file,
        .platform = platform,
        .nodes = nodes,
        .n_nodes = n,
        .serial = strcmp(o->mode, "serial") == 0,
        .wall_time_ms = o->minutes * 60000,
        .filter_tags = tags.data,
        .batch_job_id = find_batch_job(site, &file, platform->scheduler_id(arena)),
        .signals = signals,
    };
    return head_run(&head, err);
}

/* ---------------------------------------------------------------- start */

static int complain(const struct ab_error *err)
{
    fprintf(stderr, "abies-launcher: %s\n", err->text);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return worker_main(argc - 2, argv + 2);

    struct options o = {0};
    struct ab_error err = {0};
    AB_AUTO(ab_site_free) struct ab_site site = {0};
    int rc = parse_options(argc - 1, argv + 1, &o, &err);
    if (rc != 0)
        return rc > 0 ? 0 : complain(&err);
    if (ab_site_find(&site, o.site, &err) < 0)
        return complain(&err);
    AB_AUTO(ab_free) char *settings_path = ab_site_path(&site, "settings.yml");
    AB_AUTO(ab_settings_destroy)
    struct ab_settings *settings = ab_settings_load(settings_path, &err);
    if (!settings)
        return complain(&err);

    char instance[64], random[9];
    uint32_t bits = (uint32_t)ab_random_below(UINT32_MAX);
    ab_hex(&bits, 4, random);
    snprintf(instance, sizeof(instance), "launcher-%d-%s", (int)getpid(), random);
    int level = ab_level_of(settings->logging.level);
    ab_log_open("launcher", instance, level < 0 ? AB_INFO : (enum ab_level)level);
    ab_fault_init();
    if (o.parts.n == 0 && guard_start(&err) < 0)
        return complain(&err);

    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    if (o.parts.n > 0)
        sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    AB_AUTO(ab_close) int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    ab_bus_init();
    struct parts_options parts = {.site = &site,
                                  .instance = instance,
                                  .minutes = o.minutes,
                                  .parts = o.parts.v,
                                  .n = o.parts.n,
                                  .signals = signals};
    rc = o.parts.n > 0 ? parts_run(&parts, &err)
                       : run_head(&o, &site, settings, instance, signals, &err);
    guard_stop();
    return rc < 0 ? complain(&err) : 0;
}
