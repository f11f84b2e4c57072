/* task.c - the desk between I/O thread and workers */
#include "task.h"
#include "base/clock.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_REMAINING_MS (3600 * 1000)
#define MAX_HINT_BYTES ((size_t)16 * 1024 * 1024)

ab_task_t *ab_task_new(const struct ab_parcel *parcel, int64_t now)
{
    struct ab_frame_request head;
    struct ab_parcel own = *parcel;
    size_t len = parcel->header_len, body_len;

    if (len > AB_BUS_HEADER_MAX)
        return NULL;
    ab_task_t *self = calloc(1, sizeof(*self) + len + AB_FRAME_TEXTS);
    if (!self)
        return NULL;
    if (ab_frame_read_request(parcel->header, len, &head, self->text) < 0) {
        free(self);
        return NULL;
    }
    int64_t remaining = head.remaining_ms;
    if (remaining > MAX_REMAINING_MS)
        remaining = MAX_REMAINING_MS;
    if (remaining < 0)
        remaining = 0;
    self->number = head.number;
    self->version = ab_frame_common_version(ab_frame_version(parcel->header, len));
    zmq_msg_init(&self->body);
    zmq_msg_init(&self->reply);
    if (parcel->frame) { /* the header, if it is in there too, has been read */
        zmq_msg_move(&self->body, parcel->frame);
        own.frame = &self->body;
    }
    const void *body = ab_parcel_body(&own, &body_len);
    self->info = (struct ab_task_info){
        .verb = head.verb,
        .user = head.user,
        .username = head.username,
        .scopes = head.scopes,
        .token_site = head.token_site,
        .key = head.key,
        .trace = head.trace,
        .peer = head.peer,
        .host = head.host,
        .deadline_ms = now + remaining,
        .body = body,
        .body_len = body_len,
        .try = head.try,
    };
    memcpy(self->info.uuid, head.uuid, sizeof(head.uuid));
    return self;
}

void ab_task_destroy(ab_task_t **self_p)
{
    ab_task_t *self = *self_p;
    if (!self)
        return;
    zmq_msg_close(&self->body);
    zmq_msg_close(&self->reply);
    free(self);
    *self_p = NULL;
}

const struct ab_task_info *ab_task_info(const ab_task_t *task)
{
    return &task->info;
}

static void append(struct ab_task_list *list, ab_task_t *task)
{
    task->next = NULL;
    task->prev = list->last;
    if (list->last)
        list->last->next = task;
    else
        list->first = task;
    list->last = task;
    list->n++;
}

static void unlink_task(struct ab_task_list *list, ab_task_t *task)
{
    if (task->prev)
        task->prev->next = task->next;
    else
        list->first = task->next;
    if (task->next)
        task->next->prev = task->prev;
    else
        list->last = task->prev;
    list->n--;
}

/* ------------------------------------------------------------------ the desk */

int ab_desk_init(struct ab_desk *self)
{
    memset(self, 0, sizeof(*self));
    self->hints_end = &self->hints;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->more, NULL);
    self->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return self->wake_fd < 0 ? -1 : 0;
}

static void free_tasks(ab_task_t *task)
{
    while (task) {
        ab_task_t *next = task->next;
        ab_task_destroy(&task);
        task = next;
    }
}

void ab_desk_free(struct ab_desk *self)
{
    free_tasks(self->queue.first);
    free_tasks(self->running.first);
    free_tasks(self->results.first);
    while (self->hints) {
        struct ab_hint_note *next = self->hints->next;
        free(self->hints);
        self->hints = next;
    }
    if (self->wake_fd >= 0)
        close(self->wake_fd);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->more);
}

int ab_desk_put(struct ab_desk *self, ab_task_t *task, int limit)
{
    pthread_mutex_lock(&self->lock);
    bool full = self->queue.n >= limit || self->closed;
    if (!full)
        append(&self->queue, task);
    pthread_mutex_unlock(&self->lock);
    if (full)
        return -1;
    pthread_cond_signal(&self->more); /* outside: the one that wakes finds the lock free */
    return 0;
}

ab_task_t *ab_desk_take(struct ab_desk *self)
{
    pthread_mutex_lock(&self->lock);
    while (!self->queue.first && !self->closed)
        pthread_cond_wait(&self->more, &self->lock);
    ab_task_t *task = self->closed ? NULL : self->queue.first;
    if (task) {
        unlink_task(&self->queue, task);
        task->taken_ms = ab_now_ms();
        append(&self->running, task); /* so the first of the list is the oldest */
        self->taken++;
    }
    pthread_mutex_unlock(&self->lock);
    return task;
}

void ab_desk_wake(struct ab_desk *self)
{
    uint64_t one = 1;
    while (write(self->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static void free_body(void *data, void *hint)
{
    (void)hint;
    free(data);
}

static void make_reply(ab_task_t *task, void *body, size_t len, bool take)
{
    zmq_msg_close(&task->reply);
    if (take && zmq_msg_init_data(&task->reply, body, len, free_body, NULL) == 0)
        return;
    if (zmq_msg_init_size(&task->reply, len) < 0) {
        fputs("bus: out of memory\n", stderr);
        abort();
    }
    if (len)
        memcpy(zmq_msg_data(&task->reply), body, len);
    if (take)
        free(body);
}

void ab_desk_reply(struct ab_desk *self, ab_task_t *task, int status, void *body, size_t len,
                   bool take)
{
    make_reply(task, body, len, take);
    task->status = status;
    pthread_mutex_lock(&self->lock);
    unlink_task(&self->running, task);
    append(&self->results, task);
    self->replied++;
    bool wake = !self->woken;
    self->woken = true;
    pthread_mutex_unlock(&self->lock);
    if (wake)
        ab_desk_wake(self);
}

void ab_desk_hint(struct ab_desk *self, char topic, int64_t owner, const void *body, size_t len)
{
    bool wake = false;
    struct ab_hint_note *note = malloc(sizeof(*note) + len);
    if (note) {
        note->next = NULL;
        note->len = len;
        ab_frame_pack_hint(note->head, topic, owner);
        if (len)
            memcpy(note->body, body, len);
    }
    pthread_mutex_lock(&self->lock);
    if (!note || self->hint_bytes + sizeof(*note) + len > MAX_HINT_BYTES) {
        self->lost_hints++;
    } else {
        self->hint_bytes += sizeof(*note) + len;
        self->hint_count++;
        *self->hints_end = note;
        self->hints_end = &note->next;
        note = NULL;
        wake = !self->woken;
        self->woken = true;
    }
    pthread_mutex_unlock(&self->lock);
    free(note);
    if (wake)
        ab_desk_wake(self);
}

void ab_desk_close(struct ab_desk *self)
{
    pthread_mutex_lock(&self->lock);
    self->closed = true;
    pthread_cond_broadcast(&self->more);
    pthread_mutex_unlock(&self->lock);
}

void ab_desk_collect(struct ab_desk *self, struct ab_desk_out *out)
{
    uint64_t count;

    pthread_mutex_lock(&self->lock);
    while (read(self->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
        ;
    self->woken = false;
    out->results = self->results.first;
    out->hints = self->hints;
    self->results = (struct ab_task_list){0};
    self->hints = NULL;
    self->hints_end = &self->hints;
    self->hint_bytes = 0;
    pthread_mutex_unlock(&self->lock);
}

static void latest(const struct ab_task_list *list, int64_t *deadline)
{
    for (const ab_task_t *t = list->first; t; t = t->next) {
        if (t->info.deadline_ms > *deadline)
            *deadline = t->info.deadline_ms;
    }
}

void ab_desk_look(struct ab_desk *self, int64_t now, struct ab_desk_state *out)
{
    pthread_mutex_lock(&self->lock);
    *out = (struct ab_desk_state){
        .queued = self->queue.n,
        .running = self->running.n,
        .results = self->results.n,
    };
    if (self->running.first) {
        out->oldest_ms = now - self->running.first->taken_ms;
        if (out->oldest_ms < 1)
            out->oldest_ms = 1;
    }
    latest(&self->queue, &out->deadline_ms);
    latest(&self->running, &out->deadline_ms);
    pthread_mutex_unlock(&self->lock);
}
