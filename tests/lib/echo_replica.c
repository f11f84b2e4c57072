/* echo_replica.c - a replica of any service that answers from files: the gateway's tests need no
 * database
 *
 *   echo_replica run SERVICE INSTANCE GATEWAY FOLDER [curve=DIR] [workers=N] [capacity=N] [beat=MS]
 * [dead=MS] echo_replica keys DIR NAME...                 CURVE pairs, the public ones copied to
 * DIR/allowed echo_replica token FOLDER USER SCOPES SECONDS [site=N] [jti=TEXT] [username=TEXT]
 * [users=N: of so many, from USER on]
 *
 * FOLDER/VERB is a script: a first line "STATUS DELAY_MS", then the body (msgpack). Without one the
 * reply says what came: {verb, user, username, scopes, site, key, uuid, try, trace, peer, bytes}.
 * Further: FOLDER/rows     a number: list verbs (job.list) give so many rows, in pages of 1,000
 *   FOLDER/events   lines "xid id job_id site_id app_id state": what event.tail gives
 *   FOLDER/data     JSON: the `data` of each of these events
 *   FOLDER/seen     gets a line "verb instance try uuid key" for each request
 *   FOLDER/token.key  made when missing; key.list gives its public half
 * Lines on stdin: hint TOPIC OWNER [jti] | notice OWNER HEX | stop. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "bus/client.h"
#include "bus/curve.h"
#include "crypt/crypt.h"
#include "schema/pack.h"
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
    ab_replica_t *replica;
    const char *folder, *instance;
    bool fast;
} me;

static void die(const char *what, const struct ab_error *err)
{
    (void)fprintf(stderr, "echo_replica: %s: %s\n", what, err ? err->text : "");
    exit(1);
}

/* The file's text, empty if there is none. */
static struct ab_buf slurp(const char *name)
{
    struct ab_buf out = {0};
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/%s", me.folder, name);
    if (access(path, R_OK) == 0)
        (void)ab_file_read(path, 64 << 20, &out, NULL);
    return out;
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t n = strlen(name);

    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=')
            return argv[i] + n + 1;
    return otherwise;
}

/* ---- keys of tokens: 32 bytes public, 64 bytes secret */

static void token_keys(uint8_t public_key[32], uint8_t secret[64])
{
    AB_AUTO(ab_buf_free) struct ab_buf have = slurp("token.key");
    struct ab_error err = {0};

    if (have.len != 96) {
        char path[4096], both[96];
        (void)snprintf(path, sizeof(path), "%s/token.key", me.folder);
        ab_token_keypair(public_key, secret);
        memcpy(both, public_key, 32);
        memcpy(both + 32, secret, 64);
        if (ab_file_write(path, both, sizeof(both), 0600, &err) < 0)
            die("token.key", &err);
        return;
    }
    memcpy(public_key, have.data, 32);
    memcpy(secret, have.data + 32, 64);
}

static int make_token(int argc, char **argv)
{
    uint8_t public_key[32], secret[64];
    char out[AB_TOKEN_MAX], jti[40];
    struct ab_error err = {0};
    uint8_t random[8];

    ab_random(random, sizeof(random));
    ab_hex(random, sizeof(random), jti);
    me.folder = argv[0];
    token_keys(public_key, secret);
    struct ab_token token = {
        .user = atoll(argv[1]),
        .scopes = (unsigned)atoi(argv[2]),
        .site = atoll(option(argc, argv, "site", "0")),
        .iat = time(NULL),
        .exp = time(NULL) + atoll(argv[3]),
    };
    (void)snprintf(token.jti, sizeof(token.jti), "%s", option(argc, argv, "jti", jti));
    (void)snprintf(token.username, sizeof(token.username), "%s",
                   option(argc, argv, "username", "tester"));
    for (int64_t n = atoll(option(argc, argv, "users", "1")); n > 0; n--, token.user++) {
        if (ab_token_sign(&token, "test", secret, out, &err) < 0)
            die("token", &err);
        puts(out);
    }
    return 0;
}

static int make_keys(int argc, char **argv)
{
    struct ab_error err = {0};
    char allowed[4096];

    (void)snprintf(allowed, sizeof(allowed), "%s/allowed", argv[0]);
    if (ab_mkdirs(allowed, 0700, &err) < 0)
        die("keys", &err);
    for (int i = 1; i < argc; i++) {
        char from[4300], to[4300];
        AB_AUTO(ab_buf_free) struct ab_buf text = {0};
        (void)snprintf(from, sizeof(from), "%s/%s.key", argv[0], argv[i]);
        (void)snprintf(to, sizeof(to), "%s/%s.key", allowed, argv[i]);
        if (ab_curve_make(argv[0], argv[i], &err) < 0 || ab_file_read(from, 4096, &text, &err) < 0
            || ab_file_write(to, text.data, text.len, 0644, &err) < 0)
            die("keys", &err);
    }
    return 0;
}

/* ---- replies */

static void pack_pair(struct ab_buf *out, const char *name, int64_t v)
{
    ab_pack_str(out, name);
    ab_pack_int(out, v);
}

static void reply_echo(struct ab_buf *out, const struct ab_task_info *t)
{
    char uuid[AB_UUID_TEXT];

    ab_uuid_text(t->uuid, uuid);
    ab_pack_map(out, 12);
    ab_pack_str(out, "verb");
    ab_pack_str(out, t->verb);
    ab_pack_str(out, "instance");
    ab_pack_str(out, me.instance);
    pack_pair(out, "user", t->user);
    ab_pack_str(out, "username");
    ab_pack_str(out, t->username);
    pack_pair(out, "scopes", t->scopes);
    pack_pair(out, "site", t->token_site);
    ab_pack_str(out, "key");
    ab_pack_str(out, t->key);
    ab_pack_str(out, "uuid");
    ab_pack_str(out, uuid);
    pack_pair(out, "try", t->try);
    ab_pack_str(out, "trace");
    ab_pack_str(out, t->trace);
    ab_pack_str(out, "peer");
    ab_pack_str(out, t->peer);
    ab_pack_str(out, "request");
    ab_buf_add(out, t->body, t->body_len);
}

static void reply_keys(struct ab_buf *out)
{
    uint8_t public_key[32], secret[64];

    token_keys(public_key, secret);
    ab_pack_array(out, 1);
    ab_pack_map(out, 2);
    ab_pack_str(out, "kid");
    ab_pack_str(out, "test");
    ab_pack_str(out, "key");
    ab_pack_bin(out, public_key, sizeof(public_key));
}

/* FOLDER/rows rows of about 430 bytes, AB_PAGE_ROWS at a time; `next` is the number of the next
 * one. */
static void reply_rows(struct ab_buf *out, const struct ab_task_info *t, int64_t rows)
{
    struct ab_cursor next;
    int64_t from = 0;
    static const char filler[] = "................................................................"
                                 "................................................................";

    if (ab_cursor_find(ab_cursor(t->body, t->body_len), "next", &next) == 0)
        (void)ab_cursor_int(&next, &from);
    int64_t n = rows - from < AB_PAGE_ROWS ? rows - from : AB_PAGE_ROWS;
    ab_pack_map(out, 3);
    pack_pair(out, "count", rows);
    ab_pack_str(out, "next");
    if (from + n < rows)
        ab_pack_int(out, from + n);
    else
        ab_pack_nil(out);
    ab_pack_str(out, "results");
    ab_pack_array(out, (uint32_t)n);
    for (int64_t i = 0; i < n; i++) {
        ab_pack_map(out, 3);
        pack_pair(out, "id", from + i + 1);
        ab_pack_str(out, "workdir");
        ab_pack_str(out, filler);
        ab_pack_str(out, "serialized_parameters");
        ab_pack_str(out, filler);
    }
}

struct logged {
    uint64_t xid;
    int64_t id, job, site, app;
    char state[40];
};

static void pack_event(struct ab_buf *out, const struct logged *e, const struct ab_buf *data)
{
    char cursor[64];

    (void)snprintf(cursor, sizeof(cursor), "%" PRIu64 "-%" PRId64, e->xid, e->id);
    ab_pack_map(out, 10);
    ab_pack_str(out, "cursor");
    ab_pack_str(out, cursor);
    pack_pair(out, "id", e->id);
    pack_pair(out, "job_id", e->job);
    ab_pack_str(out, "timestamp");
    ab_pack_time(out, INT64_C(1767225600000000) + e->id, false);
    ab_pack_str(out, "from_state");
    ab_pack_str(out, "READY");
    ab_pack_str(out, "to_state");
    ab_pack_str(out, e->state);
    ab_pack_str(out, "data");
    if (data->len)
        ab_pack_json(out, data->data, data->len);
    else
        ab_pack_json(out, "{\"a\":[1]}", 9);
    pack_pair(out, "site_id", e->site);
    pack_pair(out, "app_id", e->app);
    ab_pack_str(out, "tags");
    ab_pack_json(out, "{\"kind\":\"md\"}", 13);
}

/* Behind the cursor `since`, at most `limit`; an empty `since` gives the head. */
static void reply_events(struct ab_buf *out, const struct ab_task_info *t)
{
    struct ab_cursor q, at;
    const char *since = "";
    size_t n_since = 0;
    int64_t limit = 1000;
    AB_AUTO(ab_buf_free) struct ab_buf text = slurp("events");
    AB_AUTO(ab_buf_free) struct ab_buf data = slurp("data");
    AB_AUTO(ab_buf_free) struct ab_buf rows = {0};
    uint64_t xid = 0;
    int64_t id = 0;
    uint32_t n = 0;
    struct logged e, last = {0};
    char given[64] = "", next[64];

    if (ab_cursor_find(ab_cursor(t->body, t->body_len), "q", &q) == 0) {
        if (ab_cursor_find(q, "since", &at) == 0)
            (void)ab_cursor_str(&at, &since, &n_since);
        if (ab_cursor_find(q, "limit", &at) == 0)
            (void)ab_cursor_int(&at, &limit);
    }
    (void)snprintf(given, sizeof(given), "%.*s", (int)n_since, since);
    (void)sscanf(given, "%" SCNu64 "-%" SCNd64, &xid, &id);
    last.xid = xid;
    last.id = id;
    for (const char *p = text.data ? text.data : ""; *p; p = strchr(p, '\n') + 1) {
        if (sscanf(p, "%" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %39s", &e.xid,
                   &e.id, &e.job, &e.site, &e.app, e.state)
            != 6)
            break;
        if (given[0] && (e.xid < xid || (e.xid == xid && e.id <= id)))
            continue;
        if (given[0] && n == limit)
            break;
        last = e;
        if (given[0]) {
            pack_event(&rows, &e, &data);
            n++;
        }
    }
    (void)snprintf(next, sizeof(next), "%" PRIu64 "-%" PRId64, last.xid, last.id);
    ab_pack_map(out, 2);
    ab_pack_str(out, "next");
    ab_pack_str(out, next);
    ab_pack_str(out, "results");
    ab_pack_array(out, n);
    ab_buf_add(out, rows.data, rows.len);
}

/* "STATUS DELAY_MS", a line end, the body. Returns false if there is no script for the verb. */
static bool reply_script(struct ab_buf *out, const struct ab_task_info *t, int *status)
{
    AB_AUTO(ab_buf_free) struct ab_buf script = slurp(t->verb);
    int delay_ms = 0;

    if (script.len == 0)
        return false;
    const char *end = memchr(script.data, '\n', script.len);
    if (!end || sscanf(script.data, "%d %d", status, &delay_ms) != 2)
        return false;
    if (delay_ms > 0)
        (void)usleep((useconds_t)delay_ms * 1000); /* the script says how slow the service is */
    end++;
    if (end < script.data + script.len)
        ab_buf_add(out, end, (size_t)(script.data + script.len - end));
    else if (*status < 300)
        reply_echo(out, t);
    return true;
}

static void note(const struct ab_task_info *t)
{
    char path[4096], line[600], uuid[AB_UUID_TEXT];

    (void)snprintf(path, sizeof(path), "%s/seen", me.folder);
    ab_uuid_text(t->uuid, uuid);
    int n = snprintf(line, sizeof(line), "%s %s %d %s %s\n", t->verb, me.instance, t->try, uuid,
                     t->key ? t->key : "-");
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, line, (size_t)n) < 0)
        die("seen", NULL);
    ab_close(&fd);
}

/* All owners have the same log: its last line against the place of each. */
static void reply_moved(struct ab_buf *out, const struct ab_task_info *t)
{
    AB_AUTO(ab_buf_free) struct ab_buf log = slurp("events"), ids = {0};
    static const char *const names[] = {"owner", "xid", "id"};
    struct ab_cursor q, list[3];
    int64_t xid = 0, id = 0, v[3];
    uint32_t n = 0, moved = 0;

    for (const char *p = log.data, *end = p + log.len; p && p < end;) {
        (void)sscanf(p, "%" SCNd64 " %" SCNd64, &xid, &id);
        p = memchr(p, '\n', (size_t)(end - p));
        p = p ? p + 1 : end;
    }
    if (ab_cursor_find(ab_cursor(t->body, t->body_len), "q", &q) < 0)
        return;
    for (int i = 0; i < 3; i++)
        if (ab_cursor_find(q, names[i], &list[i]) < 0 || ab_cursor_array(&list[i], &n) < 0)
            return;
    for (; n > 0; n--) {
        for (int i = 0; i < 3; i++)
            if (ab_cursor_int(&list[i], &v[i]) < 0)
                return;
        if (v[1] > xid || (v[1] == xid && v[2] >= id))
            continue;
        ab_pack_int(&ids, v[0]);
        moved++;
    }
    ab_pack_array(out, moved);
    ab_buf_add(out, ids.data, ids.len);
}

static int status_of(const char *verb)
{
    const struct ab_route *route = ab_route_of_verb(verb);
    return route ? route->status : 200;
}

static void serve(ab_task_t *task)
{
    const struct ab_task_info *t = ab_task_info(task);
    struct ab_buf out = {0};
    if (me.fast && strncmp(t->verb, "job.", 4) == 0) {
        ab_pack_map(&out, 2);
        pack_pair(&out, "id", 5);
        pack_pair(&out, "num_nodes", 1);
        size_t n = out.len;
        ab_replica_reply(me.replica, &task, 200, ab_buf_take(&out), n, true);
        return;
    }
    int status = status_of(t->verb);
    AB_AUTO(ab_buf_free) struct ab_buf rows = slurp("rows");
    const struct ab_route *route = ab_route_of_verb(t->verb);

    note(t);
    if (reply_script(&out, t, &status))
        ;
    else if (strcmp(t->verb, "key.list") == 0)
        reply_keys(&out);
    else if (strcmp(t->verb, "token.revoked") == 0 || strcmp(t->verb, "user.ended") == 0)
        ab_pack_array(&out, 0);
    else if (strcmp(t->verb, "event.moved") == 0)
        reply_moved(&out, t);
    else if (strcmp(t->verb, "event.tail") == 0)
        reply_events(&out, t);
    else if (route && route->reply_form == AB_REPLY_PAGE)
        reply_rows(&out, t, rows.len ? atoll(rows.data) : 3);
    else
        reply_echo(&out, t);
    size_t len = out.len;
    ab_replica_reply(me.replica, &task, status, ab_buf_take(&out), len, true);
}

static void *work(void *arg)
{
    (void)arg;
    for (ab_task_t *task; (task = ab_replica_take(me.replica)) != NULL;)
        serve(task);
    return NULL;
}

/* ---- what the test says on stdin */

static void send_hint(const char *line)
{
    char topic = 0, jti[40] = "";
    long long owner = 0;
    struct ab_buf body = {0};

    if (sscanf(line, "hint %c %lld %39s", &topic, &owner, jti) < 2)
        return;
    if (jti[0]) {
        ab_pack_map(&body, 2);
        ab_pack_str(&body, "jti");
        ab_pack_str(&body, jti);
        pack_pair(&body, "expires", time(NULL) + 3600);
    } else {
        ab_pack_nil(&body);
    }
    ab_replica_hint(me.replica, topic, owner, body.data, body.len);
    ab_buf_free(&body);
}

static void send_notice(char *line)
{
    long long owner = 0;
    int at = 0;
    struct ab_buf body = {0};

    if (sscanf(line, "notice %lld %n", &owner, &at) < 1)
        return;
    for (unsigned byte; sscanf(line + at, "%2x", &byte) == 1; at += 2)
        ab_buf_char(&body, (char)byte);
    ab_replica_hint(me.replica, 'n', owner, body.data, body.len);
    ab_buf_free(&body);
}

static void *listen_to_test(void *arg)
{
    static char line[1 << 20];

    (void)arg;
    while (fgets(line, sizeof(line), stdin)) {
        if (strncmp(line, "hint ", 5) == 0)
            send_hint(line);
        else if (strncmp(line, "notice ", 7) == 0)
            send_notice(line);
        else if (strncmp(line, "stop", 4) == 0)
            break;
    }
    ab_replica_stop(me.replica); /* also when the test is gone */
    return NULL;
}

static int run(int argc, char **argv)
{
    const char *gateways[] = {argv[2], NULL};
    struct ab_error err = {0};
    int workers = atoi(option(argc, argv, "workers", "2"));
    struct ab_replica_options options = {
        .service = argv[0],
        .instance = argv[1],
        .gateways = gateways,
        .capacity = atoi(option(argc, argv, "capacity", "8")),
        .curve_dir = option(argc, argv, "curve", NULL),
        .beat_ms = atoi(option(argc, argv, "beat", "100")),
        .dead_ms = atoi(option(argc, argv, "dead", "1000")),
    };
    pthread_t threads[64], control;

    me.folder = argv[3];
    me.instance = argv[1];
    me.fast = option(argc, argv, "fast", NULL) != NULL;
    if (workers < 1 || workers > 64)
        die("workers must be 1 to 64", NULL);
    me.replica = ab_replica_new(&options, &err);
    if (!me.replica)
        die("replica", &err);
    for (int i = 0; i < workers; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            die("thread", NULL);
    if (pthread_create(&control, NULL, listen_to_test, NULL) != 0)
        die("thread", NULL);
    if (ab_replica_run(me.replica, -1, &err) < 0)
        die("run", &err);
    for (int i = 0; i < workers; i++)
        pthread_join(threads[i], NULL);
    pthread_join(control, NULL);
    ab_replica_destroy(&me.replica);
    return 0;
}

int main(int argc, char **argv)
{
    ab_log_open("echo", "echo", AB_WARN);
    ab_bus_init();
    ab_crypt_init();
    if (argc >= 6 && strcmp(argv[1], "run") == 0)
        return run(argc - 2, argv + 2);
    if (argc >= 4 && strcmp(argv[1], "keys") == 0)
        return make_keys(argc - 2, argv + 2);
    if (argc >= 6 && strcmp(argv[1], "token") == 0)
        return make_token(argc - 2, argv + 2);
    (void)fprintf(stderr, "usage: see the head of tests/lib/echo_replica.c\n");
    return 2;
}
