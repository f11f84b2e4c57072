/* record.c - see record.h */
#include "record.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "schema/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RECORD_MAX = 64 * 1024,
    PATH_BYTES = 4300,
    RECORDS_MAX = 100000
};

static void path_of(char out[PATH_BYTES], const char *folder, int64_t id, const char *suffix)
{
    snprintf(out, PATH_BYTES, "%s/job-%05" PRId64 ".%s", folder, id, suffix);
}

static void text(struct ab_buf *out, const char *key, const char *value)
{
    ab_buf_printf(out, ",\"%s\":", key);
    ab_buf_json_str(out, value, strlen(value));
}

static void render(const struct record *r, struct ab_buf *out)
{
    ab_buf_printf(out,
                  "{\"id\":%" PRId64 ",\"num_nodes\":%d,\"wall_time_min\":%" PRId64 ",\"pid\":%d",
                  r->id, r->num_nodes, r->wall_time_min, (int)r->pid);
    text(out, "script", r->script);
    text(out, "project", r->project);
    text(out, "queue", r->queue);
    ab_buf_printf(out,
                  ",\"submitted_us\":%" PRId64 ",\"started_us\":%" PRId64 ",\"ended_us\":%" PRId64,
                  r->submitted_us, r->started_us, r->ended_us);
    if (r->has_exit)
        ab_buf_printf(out, ",\"exit_code\":%d", r->exit_code);
    ab_buf_str(out, "}\n");
}

int record_read(const char *folder, int64_t id, ab_arena_t *arena, struct record *out,
                struct ab_error *err)
{
    char path[PATH_BYTES];
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    path_of(path, folder, id, "json");
    if (ab_file_read(path, RECORD_MAX, &bytes, err) < 0)
        return -1;
    const struct ab_value *v = ab_value_parse(arena, bytes.data, bytes.len, err);
    if (!v)
        return ab_fail_within(err, "%s", path);
    *out = (struct record){
        .id = id,
        .script = ab_value_text(ab_value_get(v, "script"), ""),
        .project = ab_value_text(ab_value_get(v, "project"), ""),
        .queue = ab_value_text(ab_value_get(v, "queue"), ""),
        .num_nodes = (int)ab_value_int(ab_value_get(v, "num_nodes"), 1),
        .wall_time_min = ab_value_int(ab_value_get(v, "wall_time_min"), 0),
        .pid = (pid_t)ab_value_int(ab_value_get(v, "pid"), 0),
        .submitted_us = ab_value_int(ab_value_get(v, "submitted_us"), 0),
        .started_us = ab_value_int(ab_value_get(v, "started_us"), 0),
        .ended_us = ab_value_int(ab_value_get(v, "ended_us"), 0),
        .has_exit = ab_value_get(v, "exit_code") != NULL,
        .exit_code = (int)ab_value_int(ab_value_get(v, "exit_code"), 0),
    };
    return 0;
}

int record_write(const char *folder, const struct record *record, struct ab_error *err)
{
    char path[PATH_BYTES];
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    render(record, &bytes);
    path_of(path, folder, record->id, "json");
    return ab_file_write(path, bytes.data, bytes.len, 0600, err);
}

/* Written under another name and linked: it is there whole or not at all, and once. */
int record_make(const char *folder, ab_arena_t *arena, struct record *record, struct ab_error *err)
{
    char path[PATH_BYTES], draft[PATH_BYTES];
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    render(record, &bytes);
    path_of(path, folder, record->id, "json");
    path_of(draft, folder, record->id, "draft");
    if (ab_file_write(draft, bytes.data, bytes.len, 0600, err) < 0)
        return -1;
    int rc = link(draft, path), why = errno;
    (void)unlink(draft);
    if (rc == 0)
        return 0;
    if (why == EEXIST)
        return record_read(folder, record->id, arena, record, err) < 0 ? -1 : 1;
    errno = why;
    return ab_fail_errno(err, AB_EINTERNAL, "cannot make %s", path);
}

int record_lock(const char *folder, int64_t id)
{
    char path[PATH_BYTES];
    path_of(path, folder, id, "lock");
    AB_AUTO(ab_close) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    return AB_TAKE_FD(fd);
}

int record_lock_given(const char *folder, int64_t id)
{
    char path[PATH_BYTES];
    struct stat given, named;
    path_of(path, folder, id, "lock");
    if (fstat(0, &given) < 0 || stat(path, &named) < 0 || given.st_ino != named.st_ino
        || given.st_dev != named.st_dev)
        return record_lock(folder, id);
    if (flock(0, LOCK_EX | LOCK_NB) < 0) /* ours already, or a file system without inheritance */
        return -1;
    return fcntl(0, F_DUPFD_CLOEXEC, 3);
}

bool record_alive(const char *folder, int64_t id)
{
    char path[PATH_BYTES];
    path_of(path, folder, id, "lock");
    AB_AUTO(ab_close) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int record_ids(const char *folder, ab_arena_t *arena, int64_t **ids, size_t *n,
               struct ab_error *err)
{
    DIR *dir = opendir(folder);
    size_t room = 64;
    *n = 0;
    *ids = ab_alloc(arena, room, sizeof(int64_t));
    if (!dir)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot read %s", folder);
    for (const struct dirent *e; (e = readdir(dir)) != NULL && *n < RECORDS_MAX;) {
        int64_t id = 0;
        int end = 0;
        if (sscanf(e->d_name, "job-%" SCNd64 ".json%n", &id, &end) != 1 || end == 0
            || e->d_name[end])
            continue;
        if (*n == room) {
            int64_t *more = ab_alloc(arena, room * 2, sizeof(int64_t));
            memcpy(more, *ids, room * sizeof(int64_t));
            *ids = more;
            room *= 2;
        }
        (*ids)[(*n)++] = id;
    }
    closedir(dir);
    qsort(*ids, *n, sizeof(int64_t), ascending);
    return 0;
}
