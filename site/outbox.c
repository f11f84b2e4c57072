/* outbox.c - see outbox.h; the records on disk are outbox_file.c's */
#include "outbox.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "outbox_file.h"
#include "outbox_lists.h"
#include "schema/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_TURN ((size_t)4 << 20)   /* a new file past this size */
#define FILE_TIDY ((size_t)256 << 10) /* or past this one when nothing waits */
#define CALL_BYTES ((size_t)4 << 20)

const char *const outbox_paths[OUTBOX_TARGETS] = {
    [OUTBOX_JOBS] = "/jobs/",
    [OUTBOX_TRANSFERS] = "/transfers/",
    [OUTBOX_BATCH_JOBS] = "/batch-jobs/",
};

int outbox_target_of(const char *path)
{
    for (int i = 0; i < OUTBOX_TARGETS; i++)
        if (strcmp(path, outbox_paths[i]) == 0)
            return i;
    return -1;
}

/* ------------------------------------------------------------------ files */

/* Delete, oldest first, the files of which no update waits; never the one we write to. */
static void drop_files(outbox_t *self)
{
    uint64_t needed = self->first ? self->first->file : self->file;

    for (; self->oldest_file < needed && self->oldest_file < self->file; self->oldest_file++) {
        AB_AUTO(ab_free) char *name = outbox_file_name(self->folder, self->oldest_file);
        (void)unlink(name);
    }
}

static int turn_file(outbox_t *self, struct ab_error *err)
{
    int fd = outbox_file_create(self->folder, self->file + 1, err);
    if (fd < 0)
        return -1;
    ab_close(&self->fd);
    self->fd = fd;
    self->file++;
    self->file_size = 0;
    self->torn = false;
    drop_files(self);
    return 0;
}

static int write_record(outbox_t *self, const struct ab_buf *payload, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf record = {0};

    outbox_frame(&record, payload);
    if (payload->failed || record.failed || payload->len > OUTBOX_RECORD_MAX)
        return ab_fail(err, AB_ETOOBIG, "an update of %zu bytes is too large for the outbox",
                       payload->len);
    if (self->torn && turn_file(self, err) < 0)
        return -1;
    if (outbox_write(self->fd, &record, err) < 0) {
        self->torn = true;
        return -1;
    }
    self->file_size += record.len;
    return 0;
}

static int flush(outbox_t *self, struct ab_error *err)
{
    if (fdatasync(self->fd) < 0)
        return ab_fail_errno(err, AB_EBUSY, "cannot flush the outbox to disk (run/outbox)");
    if (self->file_size > FILE_TURN || (self->file_size > FILE_TIDY && !self->first))
        return turn_file(self, err);
    return 0;
}

static int open_files(outbox_t *self, struct ab_error *err)
{
    AB_AUTO(ab_free) uint64_t *numbers = NULL;
    size_t n;

    if (ab_mkdirs(self->folder, 0700, err) < 0 || outbox_files(self->folder, &numbers, &n, err) < 0)
        return -1;
    self->oldest_file = n ? numbers[0] : 1;
    for (size_t i = 0; i < n; i++) {
        if (outbox_restore_file(self, numbers[i], err) < 0)
            return -1;
        self->file = numbers[i];
    }
    return turn_file(self, err);
}

outbox_t *outbox_open(const char *folder, size_t limit, struct ab_error *err)
{
    AB_AUTO(outbox_close) outbox_t *self = calloc(1, sizeof(*self));

    pthread_mutex_init(&self->mutex, NULL);
    self->folder = strdup(folder);
    self->limit = limit;
    self->fd = -1;
    self->end = &self->first;
    if (open_files(self, err) < 0)
        return NULL;
    return AB_TAKE(self);
}

void outbox_close(outbox_t **self)
{
    if (!*self)
        return;
    for (struct call *call = (*self)->calls, *next; call; call = next) {
        next = call->next;
        outbox_free_call(call);
    }
    for (struct update *u = (*self)->first, *next; u; u = next) {
        next = u->next;
        outbox_free_update(u);
    }
    ab_close(&(*self)->fd);
    pthread_mutex_destroy(&(*self)->mutex);
    free((*self)->folder);
    free(*self);
    *self = NULL;
}

/* ------------------------------------------------------------------ putting */

static int put(outbox_t *self, struct update *update, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf payload = {0};

    if (self->bytes + update->len > self->limit)
        return ab_fail_kind(
            err, AB_EBUSY, "outbox_full",
            "the outbox is full: %zu updates (%zu bytes) wait for the centre; nothing new is "
            "taken until it can be reached",
            self->waiting, self->bytes);
    update->number = self->last + 1;
    ab_buf_char(&payload, 'E');
    outbox_u64(&payload, update->number);
    outbox_u64(&payload, (uint64_t)update->time_us);
    ab_buf_char(&payload, (char)update->target);
    ab_buf_add(&payload, update->json, update->len);
    if (write_record(self, &payload, err) < 0)
        return -1;
    update->file = self->file;
    outbox_append_update(self, update);
    return 0;
}

int outbox_put(outbox_t *self, enum outbox_target target, const char *json, size_t len,
               struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *v = ab_value_parse(arena, json, len, err);
    int64_t id = ab_value_int(ab_value_get(v, "id"), 0);

    if (!v)
        return -1;
    if (id <= 0)
        return ab_fail(err, AB_EINVAL, "an update for %s has no id", outbox_paths[target]);
    struct update *update = calloc(1, sizeof(*update));
    *update = (struct update){.target = target, .id = id, .time_us = ab_utc_us(), .len = len};
    update->json = malloc(len + 1);
    memcpy(update->json, json, len);
    pthread_mutex_lock(&self->mutex);
    int rc = put(self, update, err);
    pthread_mutex_unlock(&self->mutex);
    if (rc < 0)
        outbox_free_update(update);
    return rc;
}

int outbox_sync(outbox_t *self, struct ab_error *err)
{
    pthread_mutex_lock(&self->mutex);
    int rc = flush(self, err);
    pthread_mutex_unlock(&self->mutex);
    return rc;
}

/* ------------------------------------------------------------------ steps */

/* One record for all that changes together. */
static int write_step(outbox_t *self, struct update *const *over, size_t n,
                      struct call *const *calls, size_t n_calls, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf payload = {0};

    ab_buf_char(&payload, 'T');
    outbox_u32(&payload, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        outbox_u64(&payload, over[i]->number);
    outbox_u32(&payload, (uint32_t)n_calls);
    for (size_t i = 0; i < n_calls; i++) {
        ab_buf_add(&payload, calls[i]->key, OUTBOX_KEY);
        outbox_u32(&payload, (uint32_t)calls[i]->n);
        for (size_t k = 0; k < calls[i]->n; k++)
            outbox_u64(&payload, calls[i]->updates[k]->number);
    }
    return write_record(self, &payload, err);
}

/* ids of one target, in a table with open addressing */
struct id_set {
    int64_t *slots;
    size_t mask;
};

static bool add_id(struct id_set *set, int64_t id)
{
    for (size_t at = (size_t)((uint64_t)id * UINT64_C(0x9e3779b97f4a7c15) >> 17);; at++) {
        int64_t *slot = &set->slots[at & set->mask];
        if (*slot == id)
            return false;
        if (!*slot) {
            *slot = id;
            return true;
        }
    }
}

/* Room for n ids, half of it empty. */
static struct id_set new_set(size_t n)
{
    size_t room = 64;
    while (room < 2 * n)
        room *= 2;
    struct id_set set = {calloc(room, sizeof(int64_t)), room - 1};
    if (!set.slots)
        abort();
    return set;
}

/* The first updates of each id of one target, without those whose id is in a call already. Looks
 * past whatever is parked, so at all that waits: `limit` bounds that. */
static struct call *gather(outbox_t *self, enum outbox_target target)
{
    struct call *call = outbox_new_call(target, OUTBOX_CALL_MAX);
    struct id_set set = new_set(self->waiting);
    size_t bytes = 0;

    for (const struct call *c = self->calls; c; c = c->next)
        for (size_t i = 0; c->target == target && i < c->n; i++)
            (void)add_id(&set, c->updates[i]->id);
    for (struct update *u = self->first; u; u = u->next) {
        if (u->call || u->target != target || !add_id(&set, u->id))
            continue;
        if (call->n == OUTBOX_CALL_MAX || (call->n && bytes + u->len > CALL_BYTES))
            break;
        call->updates[call->n++] = u;
        bytes += u->len;
    }
    free(set.slots);
    return call;
}

/* For the target whose update is the oldest of those that may go; NULL: none may. */
static struct call *gather_oldest(outbox_t *self)
{
    bool tried[OUTBOX_TARGETS] = {0};

    for (const struct update *u = self->first; u; u = u->next) {
        if (u->call || tried[u->target])
            continue;
        tried[u->target] = true;
        struct call *call = gather(self, u->target);
        if (call->n)
            return call;
        outbox_free_call(call); /* all wait for earlier updates of the same ids */
    }
    return NULL;
}

static int form_call(outbox_t *self, struct ab_error *err)
{
    struct call *call = gather_oldest(self);
    if (!call)
        return 0;
    if (write_step(self, NULL, 0, &call, 1, err) < 0 || flush(self, err) < 0) {
        outbox_free_call(call);
        return -1;
    }
    outbox_append_call(self, call);
    return 1;
}

static void fill(const struct call *call, struct outbox_call *out)
{
    out->number = call->number;
    memcpy(out->key, call->key, sizeof(call->key));
    out->target = call->target;
    out->n = call->n;
    ab_buf_clear(&out->body);
    for (size_t i = 0; i < call->n; i++) {
        ab_buf_char(&out->body, i ? ',' : '[');
        ab_buf_add(&out->body, call->updates[i]->json, call->updates[i]->len);
    }
    ab_buf_char(&out->body, ']');
}

int outbox_next(outbox_t *self, struct outbox_call *out, struct ab_error *err)
{
    int64_t now = ab_now_ms();
    int rc = 1;

    pthread_mutex_lock(&self->mutex);
    struct call *call = self->calls;
    while (call && call->not_before_ms > now)
        call = call->next;
    if (!call && (rc = form_call(self, err)) > 0)
        for (call = self->calls; call->next;)
            call = call->next;
    if (rc > 0)
        fill(call, out);
    pthread_mutex_unlock(&self->mutex);
    return rc;
}

void outbox_park(outbox_t *self, uint64_t number, int64_t delay_ms)
{
    pthread_mutex_lock(&self->mutex);
    struct call *call = outbox_find_call(self, number);
    if (call)
        call->not_before_ms = ab_now_ms() + delay_ms;
    pthread_mutex_unlock(&self->mutex);
}

/* What is over leaves; `calls` (taken over on success) stand in place of the old one. */
static int replace(outbox_t *self, struct call *old, struct update **over, size_t n,
                   struct call **calls, size_t n_calls, struct ab_error *err)
{
    if (write_step(self, over, n, calls, n_calls, err) < 0)
        return -1;
    outbox_unlink_call(self, old);
    for (size_t i = 0; i < n; i++)
        over[i]->call = OUTBOX_GONE;
    for (size_t i = 0; i < n_calls; i++)
        outbox_append_call(self, calls[i]);
    outbox_remove_updates(self, OUTBOX_GONE);
    outbox_free_call(old);
    /* a repeat of what is done is harmless; new calls must be known before they are sent */
    return n_calls || self->file_size > FILE_TIDY ? flush(self, err) : 0;
}

int outbox_done(outbox_t *self, uint64_t number, struct ab_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&self->mutex);
    struct call *call = outbox_find_call(self, number);
    if (call)
        rc = replace(self, call, call->updates, call->n, NULL, 0, err);
    drop_files(self);
    pthread_mutex_unlock(&self->mutex);
    return rc;
}

static int drop(outbox_t *self, struct call *call, const bool *bad, struct ab_error *err)
{
    struct call *rest = outbox_new_call(call->target, call->n);
    AB_AUTO(ab_free) struct update **over = calloc(call->n, sizeof(struct update *));
    size_t n = 0;

    for (size_t i = 0; i < call->n; i++) {
        if (bad[i])
            over[n++] = call->updates[i];
        else
            rest->updates[rest->n++] = call->updates[i];
    }
    size_t n_calls = rest->n ? 1 : 0;
    int rc = replace(self, call, over, n, &rest, n_calls, err);
    if (rc < 0 || !n_calls)
        outbox_free_call(rest);
    return rc;
}

int outbox_drop(outbox_t *self, uint64_t number, const bool *bad, struct ab_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&self->mutex);
    struct call *call = outbox_find_call(self, number);
    if (call)
        rc = drop(self, call, bad, err);
    drop_files(self);
    pthread_mutex_unlock(&self->mutex);
    return rc;
}

static int split(outbox_t *self, struct call *call, struct ab_error *err)
{
    size_t half = call->n / 2;

    if (!half)
        return 0;
    struct call *two[2] = {outbox_new_call(call->target, half),
                           outbox_new_call(call->target, call->n - half)};
    two[0]->n = half;
    two[1]->n = call->n - half;
    memcpy(two[0]->updates, call->updates, half * sizeof(*call->updates));
    memcpy(two[1]->updates, call->updates + half, (call->n - half) * sizeof(*call->updates));
    int rc = replace(self, call, NULL, 0, two, 2, err);
    if (rc < 0) {
        outbox_free_call(two[0]);
        outbox_free_call(two[1]);
    }
    return rc;
}

int outbox_split(outbox_t *self, uint64_t number, struct ab_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&self->mutex);
    struct call *call = outbox_find_call(self, number);
    if (call)
        rc = split(self, call, err);
    pthread_mutex_unlock(&self->mutex);
    return rc;
}

/* ------------------------------------------------------------------ questions */

int64_t outbox_id(outbox_t *self, uint64_t number, size_t i)
{
    pthread_mutex_lock(&self->mutex);
    const struct call *call = outbox_find_call(self, number);
    int64_t id = call && i < call->n ? call->updates[i]->id : 0;
    pthread_mutex_unlock(&self->mutex);
    return id;
}

uint64_t outbox_last(outbox_t *self)
{
    pthread_mutex_lock(&self->mutex);
    uint64_t last = self->last;
    pthread_mutex_unlock(&self->mutex);
    return last;
}

bool outbox_waits(outbox_t *self, enum outbox_target target, uint64_t up_to)
{
    pthread_mutex_lock(&self->mutex);
    const struct update *u = self->first;
    while (u && u->number <= up_to && u->target != target)
        u = u->next;
    bool waits = u && u->number <= up_to;
    pthread_mutex_unlock(&self->mutex);
    return waits;
}

void outbox_figures(outbox_t *self, struct outbox_figures *out)
{
    pthread_mutex_lock(&self->mutex);
    *out =
        (struct outbox_figures){self->waiting, self->bytes, self->first ? self->first->time_us : 0};
    pthread_mutex_unlock(&self->mutex);
}
