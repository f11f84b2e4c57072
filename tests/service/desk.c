/* desk.c - the three services of jobs behind one desk */
#include "desk.h"

#include "base/cleanup.h"
#include "bus/client.h"
#include "service/service.h"
#include "svc_jobs/jobs.h"
#include "svc_sessions/sessions.h"
#include "svc_transfers/transfers.h"
#include "testlib/pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct desk {
    const struct ab_service *service;
    const char *role;
    ab_db_t *db;
    ab_conf_t *conf;
} desks[] = {
    {&jobs_service, "abies_jobs", NULL, NULL},
    {&sessions_service, "abies_sessions", NULL, NULL},
    {&transfers_service, "abies_transfers", NULL, NULL},
};

static ab_db_t *owner;
static ab_arena_t *last; /* holds the last answer */
static const struct ab_value *tree;
static char *text;

static struct desk *desk_of(const char *service)
{
    for (size_t i = 0; i < AB_COUNT(desks); i++)
        if (strcmp(desks[i].service->name, service) == 0)
            return &desks[i];
    fail_msg("no service %s here", service);
    return NULL;
}

int desk_open(void **state)
{
    (void)state;
    owner = pg_open();
    for (size_t i = 0; i < AB_COUNT(desks); i++) {
        desks[i].db = pg_open_as(desks[i].role);
        desks[i].conf = ab_service_conf(desks[i].service);
    }
    last = ab_arena_new();
    return 0;
}

int desk_close(void **state)
{
    (void)state;
    for (size_t i = 0; i < AB_COUNT(desks); i++) {
        ab_db_close(&desks[i].db);
        ab_conf_destroy(&desks[i].conf);
    }
    ab_db_close(&owner);
    ab_arena_destroy(&last);
    return 0;
}

ab_db_t *desk_db(void)
{
    return owner;
}

ab_db_t *desk_db_of(const char *service)
{
    return desk_of(service)->db;
}

void desk_set(const char *service, const char *name, const char *value)
{
    struct ab_error err = {0};
    if (ab_conf_set(desk_of(service)->conf, AB_CONF_FLAG, "test", name, value, &err) < 0)
        fail_msg("%s", err.text);
}

int try_tick(const char *service, const char *timer, struct ab_error *err)
{
    struct desk *desk = desk_of(service);
    return ab_service_tick(desk->service, desk->db, desk->conf, timer, err);
}

void tick(const char *service, const char *timer)
{
    struct ab_error err = {0};
    if (try_tick(service, timer, &err) < 0)
        fail_msg("%s: %s", timer, err.text);
}

/* ---- a request, as the gateway makes it */

/* "/jobs/{id}/cancel" against "/jobs/7/cancel"; the id's text. */
static bool path_matches(const char *pattern, const char *path, size_t path_len,
                         struct ab_http_parts *parts)
{
    const char *end = path + path_len;
    while (*pattern && path < end) {
        if (*pattern == '{') {
            bool id = strncmp(pattern, "{id}", 4) == 0;
            const char *from = path;
            while (path < end && *path != '/')
                path++;
            *(id ? &parts->path_id : &parts->path_name) = from;
            *(id ? &parts->path_id_len : &parts->path_name_len) = (size_t)(path - from);
            pattern = strchr(pattern, '}') + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return !*pattern && path == end;
}

/* Fixed words win over {id}. */
static const struct ab_route *find_route(const char *method, const char *path, size_t len,
                                         struct ab_http_parts *parts)
{
    const struct ab_route *best = NULL;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        struct ab_http_parts tried = *parts;
        if (!route->method || strcmp(route->method, method) != 0
            || !path_matches(route->path, path, len, &tried))
            continue;
        if (best && strchr(route->path, '{'))
            continue;
        best = route;
        *parts = tried;
    }
    return best;
}

static void to_json(const void *bytes, size_t len, struct ab_buf *out)
{
    struct ab_walk walk;

    ab_walk_start(&walk, bytes, len);
    for (int done = 0; !done;) {
        char piece[16384], *p = piece;
        done = ab_walk_json(&walk, &p, piece + sizeof(piece));
        assert_true(done >= 0);
        ab_buf_add(out, piece, (size_t)(p - piece));
    }
}

static void keep_answer(const void *bytes, size_t len)
{
    struct ab_error err = {0};
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};

    ab_arena_reset(last);
    tree = NULL;
    text = ab_strdup(last, "");
    if (len == 0)
        return;
    to_json(bytes, len, &out);
    text = ab_strndup(last, out.data, out.len);
    tree = ab_value_parse(last, text, out.len, &err);
    if (!tree)
        fail_msg("an answer that is no JSON: %s", text);
}

static int n_pieces, most_pieces;

int pieces(void)
{
    return n_pieces;
}

void give_up_behind(int n)
{
    most_pieces = n;
}

/* The request with a member more, as the gateway makes it. */
static void pack_next(const struct ab_buf *packed, const void *next, size_t len, struct ab_buf *out)
{
    struct ab_cursor at = ab_cursor(packed->data, packed->len);
    uint32_t members;

    assert_int_equal(ab_cursor_map(&at, &members), 0);
    ab_buf_clear(out);
    ab_pack_map(out, members + 1);
    ab_buf_add(out, at.at, (size_t)(at.end - at.at));
    ab_pack_str(out, "next");
    ab_buf_add(out, next, len);
}

static int call_in_pieces(struct desk *desk, const struct ab_caller *caller, const char *verb,
                          const struct ab_buf *packed, struct ab_buf *reply)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct ab_caller this = *caller;
    char key[300];
    int status;

    pack_next(packed, "\0", 1, &body);
    for (n_pieces = 1;; n_pieces++) {
        status = ab_service_call_as(desk->service, desk->db, desk->conf, &this, verb, body.data,
                                    body.len, reply);
        if (status != AB_BUS_MORE || n_pieces == most_pieces)
            return status;
        pack_next(packed, reply->data, reply->len, &body);
        if (!caller->key)
            continue;
        snprintf(key, sizeof(key), "%s %d", caller->key, n_pieces);
        this.key = key;
    }
}

static int ask_text(const struct who *who, const char *method, const char *where, const char *body)
{
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0}, reply = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    size_t path_len = strcspn(where, "?");
    struct ab_http_parts parts = {
        .query = where[path_len] ? where + path_len + 1 : "",
        .body = body,
        .body_len = strlen(body),
        .has_body = *body != '\0',
        .content_json = true,
    };
    parts.query_len = strlen(parts.query);
    const struct ab_route *route = find_route(method, where, path_len, &parts);
    if (!route)
        fail_msg("no route %s %s", method, where);
    if (ab_json_request(route, &parts, &packed, &issues) < 0) {
        ab_arena_reset(last);
        text = ab_strndup(last, issues.list.data, issues.list.len);
        tree = NULL;
        return 422;
    }
    struct desk *desk = desk_of(route->service);
    const struct ab_caller caller = {
        .owner_id = who->user,
        .key = who->key,
        .scopes = who->token_site ? AB_SCOPE_SITE : AB_SCOPE_USER,
        .token_site = who->token_site,
    };
    n_pieces = 1;
    int status = who->in_pieces && route->mutates
                     ? call_in_pieces(desk, &caller, route->verb, &packed, &reply)
                     : ab_service_call_as(desk->service, desk->db, desk->conf, &caller, route->verb,
                                          packed.data, packed.len, &reply);
    keep_answer(reply.data, reply.len);
    return status;
}

__attribute__((format(printf, 4, 0))) static int ask_v(const struct who *who, const char *method,
                                                       const char *where, const char *format,
                                                       va_list args)
{
    char *body;
    if (vasprintf(&body, format, args) < 0)
        fail_msg("no memory");
    for (char *c = body; *c; c++)
        if (*c == '\'')
            *c = '"';
    int status = ask_text(who, method, where, body);
    free(body);
    return status;
}

int ask(int64_t user, const char *method, const char *where, const char *body, ...)
{
    va_list args;
    va_start(args, body);
    int status = ask_v(&(struct who){.user = user}, method, where, body, args);
    va_end(args);
    return status;
}

int ask_as(const struct who *who, const char *method, const char *where, const char *body, ...)
{
    va_list args;
    va_start(args, body);
    int status = ask_v(who, method, where, body, args);
    va_end(args);
    return status;
}

const char *path(const char *format, ...)
{
    static char ring[4][512];
    static unsigned turn;
    char *out = ring[turn++ % 4];
    va_list args;
    va_start(args, format);
    vsnprintf(out, sizeof(ring[0]), format, args);
    va_end(args);
    return out;
}

/* ---- the answer */

static const struct ab_value *look(const char *where)
{
    const struct ab_value *v = tree;
    while (v && *where) {
        char word[64];
        size_t n = strcspn(where, ".");
        assert_true(n < sizeof(word));
        memcpy(word, where, n);
        word[n] = '\0';
        where += n + (where[n] == '.');
        if (v->type == AB_V_LIST) {
            size_t i = strtoul(word, NULL, 10);
            v = i < v->n ? &v->items[i] : NULL;
        } else {
            v = ab_value_get(v, word);
        }
    }
    return v;
}

const struct ab_value *at(const char *where)
{
    const struct ab_value *v = look(where);
    if (!v)
        fail_msg("no %s in %s", where, text);
    return v;
}

bool there(const char *where)
{
    return look(where) != NULL;
}

bool is_null(const char *where)
{
    return at(where)->type == AB_V_NULL;
}

int64_t num(const char *where)
{
    if (at(where)->type != AB_V_INT)
        fail_msg("%s is no integer in %s", where, text);
    return at(where)->i;
}

double real(const char *where)
{
    return ab_value_real(at(where), -1);
}

const char *txt(const char *where)
{
    if (at(where)->type != AB_V_TEXT)
        fail_msg("%s is no text in %s", where, text);
    return at(where)->s;
}

int len(const char *where)
{
    const struct ab_value *v = at(where);
    assert_true(v->type == AB_V_LIST || v->type == AB_V_MAP);
    return (int)v->n;
}

const char *answer(void)
{
    return text;
}

const char *told(void)
{
    return ab_service_hints();
}

const char *noticed(void)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    size_t len;
    const void *bytes = ab_service_notice(&len);
    if (len == 0)
        return "";
    to_json(bytes, len, &out);
    return ab_strndup(last, out.data, out.len);
}

/* ---- things to work with */

#define WANT(status, call)                                                                         \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ != (status))                                                                      \
            fail_msg("%d instead of %d: %s", got_, status, text);                                  \
    } while (0)

int64_t new_user(void)
{
    static int n;
    pg_exec(owner, "INSERT INTO users (username) VALUES ('user%d')", ++n);
    return pg_int(owner, "SELECT id FROM users WHERE username = 'user%d'", n);
}

int64_t new_site(int64_t user)
{
    static int n;
    WANT(201, ask(user, "POST", "/sites/",
                  "{'name': 'site%d', 'path': '/home/site', 'transfer_locations':"
                  " {'beamline': 'rsync://user@host/data', 'archive': 'local://localhost/a'}}",
                  ++n));
    return num("id");
}

int64_t new_app(int64_t user, int64_t site)
{
    static int n;
    WANT(201, ask(user, "POST", "/apps/",
                  "{'site_id': %" PRId64
                  ", 'name': 'app%d', 'serialized_class': '', 'source_code': '', 'transfers': {"
                  "'input': {'required': true, 'direction': 'in', 'local_path': 'in.dat'},"
                  "'more': {'required': false, 'direction': 'in', 'local_path': 'more', "
                  "'recursive': true},"
                  "'output': {'required': false, 'direction': 'out', 'local_path': 'out.dat'}}}",
                  site, ++n));
    return num("id");
}

int64_t new_jobs(int64_t user, int64_t app, int n, int64_t *ids, const char *fields)
{
    static int made;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    ab_buf_char(&body, '[');
    for (int i = 0; i < n; i++)
        ab_buf_printf(&body, "%s{'app_id': %" PRId64 ", 'workdir': 'w/%d'%s%s}", i ? "," : "", app,
                      ++made, *fields ? ", " : "", fields);
    ab_buf_char(&body, ']');
    WANT(201, ask(user, "POST", "/jobs/", "%s", body.data));
    for (int i = 0; ids && i < n; i++)
        ids[i] = num(path("%d.id", i));
    return num("0.id");
}

int64_t new_job(int64_t user, int64_t app, const char *fields)
{
    return new_jobs(user, app, 1, NULL, fields);
}

int64_t new_batch_job(int64_t user, int64_t site)
{
    WANT(201, ask(user, "POST", "/batch-jobs/",
                  "{'site_id': %" PRId64
                  ", 'project': 'p', 'queue': 'q', 'num_nodes': 4, 'wall_time_min': 30,"
                  " 'job_mode': 'mpi'}",
                  site));
    return num("id");
}

int64_t new_session(int64_t user, int64_t site, int64_t batch_job)
{
    if (batch_job)
        WANT(201, ask(user, "POST", "/sessions/",
                      "{'site_id': %" PRId64 ", 'batch_job_id': %" PRId64 "}", site, batch_job));
    else
        WANT(201, ask(user, "POST", "/sessions/", "{'site_id': %" PRId64 "}", site));
    return num("id");
}

const char *state_of(int64_t job)
{
    return pg_text(owner,
                   "SELECT state || CASE WHEN session_id IS NULL THEN '' ELSE ' held' END FROM "
                   "jobs WHERE id = %" PRId64,
                   job);
}

const char *history_of(int64_t job)
{
    return pg_text(owner,
                   "SELECT string_agg(from_state || '>' || to_state || coalesce(':' || "
                   "(data->>'message'), ''),"
                   " ' ' ORDER BY id) FROM events WHERE job_id = %" PRId64,
                   job);
}

void move(int64_t user, int64_t job, const char *state)
{
    WANT(200, ask(user, "PUT", path("/jobs/%" PRId64, job), "{'state': '%s'}", state));
}

void check_books(void)
{
    assert_int_equal(
        pg_int(
            owner,
            "SELECT count(*) FROM (SELECT owner_id, site_id, app_id, state, sum(j), sum(n) FROM ("
            " SELECT owner_id, site_id, app_id, state, 1 AS j,"
            "  num_nodes * 1000000::bigint / node_packing_count AS n, 0 AS e FROM jobs"
            " UNION ALL SELECT j.owner_id, j.site_id, j.app_id, e.to_state, 0, 0, 1"
            "  FROM events e JOIN jobs j ON j.id = e.job_id"
            " UNION ALL SELECT owner_id, site_id, app_id, state, -jobs, -nodes, -events FROM "
            "job_counts) AS u"
            " GROUP BY 1, 2, 3, 4 HAVING sum(j) <> 0 OR sum(n) <> 0 OR sum(e) <> 0) AS d"),
        0);
    assert_int_equal(
        pg_int(
            owner,
            "SELECT count(*) FROM jobs j WHERE open_parents <> (SELECT count(*) FROM job_parents p"
            " JOIN jobs q ON q.id = p.parent_id"
            " WHERE p.child_id = j.id AND q.state <> 'JOB_FINISHED')"
            " AND NOT EXISTS (SELECT FROM job_parents p WHERE p.child_id = j.id AND"
            "  NOT EXISTS (SELECT FROM jobs q WHERE q.id = p.parent_id))"),
        0);
    assert_int_equal(
        pg_int(owner,
               "SELECT count(*) FROM jobs j WHERE"
               " open_in <> (SELECT count(*) FROM transfer_items t WHERE t.job_id = j.id AND"
               "  t.direction = 'in' AND t.state <> 'done') OR"
               " open_out <> (SELECT count(*) FROM transfer_items t WHERE t.job_id = j.id AND"
               "  t.direction = 'out' AND t.state <> 'done')"),
        0);
    assert_int_equal(pg_int(owner,
                            "SELECT count(*) FROM job_specs s FULL JOIN jobs j ON j.id = s.id"
                            " WHERE s.id IS NULL OR j.id IS NULL"),
                     0);
    assert_int_equal(
        pg_int(owner,
               "SELECT count(*) FROM jobs WHERE state = 'AWAITING_PARENTS' AND open_parents = 0"),
        0);
}
