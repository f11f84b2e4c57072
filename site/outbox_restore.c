/* outbox_restore.c - what a file of the outbox says, into the lists of a new process */
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "outbox_file.h"
#include "outbox_lists.h"
#include "schema/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int read_update(outbox_t *self, struct outbox_reader *r, uint64_t file)
{
    uint64_t number = outbox_get_u64(r);
    int64_t time_us = (int64_t)outbox_get_u64(r);
    const unsigned char *target = outbox_get(r, 1);
    size_t len = r->broken ? 0 : (size_t)(r->end - r->at);
    const char *json = outbox_get(r, len);
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();

    if (r->broken || *target >= OUTBOX_TARGETS || number <= self->last)
        return -1;
    const struct ab_value *v = ab_value_parse(arena, json, len, NULL);
    struct update *u = calloc(1, sizeof(*u));
    *u = (struct update){.number = number,
                         .time_us = time_us,
                         .target = (enum outbox_target) * target,
                         .file = file,
                         .len = len};
    u->id = ab_value_int(ab_value_get(v, "id"), 0);
    u->json = malloc(len + 1);
    memcpy(u->json, json, len);
    outbox_append_update(self, u);
    return 0;
}

static int read_call(outbox_t *self, struct outbox_reader *r)
{
    const char *key = outbox_get(r, OUTBOX_KEY);
    uint32_t n = outbox_get_u32(r);

    if (r->broken || n > OUTBOX_CALL_MAX)
        return -1;
    struct call *call = outbox_new_call(OUTBOX_JOBS, n);
    memcpy(call->key, key, OUTBOX_KEY);
    for (uint32_t i = 0; i < n; i++) {
        struct update *u = outbox_find_update(self, outbox_get_u64(r));
        if (u && u->call != OUTBOX_GONE)
            call->updates[call->n++] = u;
    }
    if (r->broken || !call->n) {
        outbox_free_call(call);
        return r->broken ? -1 : 0;
    }
    call->target = call->updates[0]->target;
    outbox_append_call(self, call);
    outbox_take_over(self, call);
    return 0;
}

static int read_step(outbox_t *self, struct outbox_reader *r)
{
    uint32_t over = outbox_get_u32(r);

    for (uint32_t i = 0; i < over && !r->broken; i++) {
        uint64_t number = outbox_get_u64(r);
        struct update *u = outbox_find_update(self, number);
        if (u)
            u->call = OUTBOX_GONE;
        if (number > self->last)
            self->last = number;
    }
    uint32_t calls = outbox_get_u32(r);
    for (uint32_t i = 0; i < calls && !r->broken; i++)
        if (read_call(self, r) < 0)
            return -1;
    outbox_take_over(self, NULL);
    outbox_remove_updates(self, OUTBOX_GONE);
    return r->broken ? -1 : 0;
}

int outbox_restore_file(outbox_t *self, uint64_t number, struct ab_error *err)
{
    AB_AUTO(ab_free) char *name = outbox_file_name(self->folder, number);
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    struct outbox_reader payload;

    if (ab_file_read(name, AB_BUF_MAX, &bytes, err) < 0)
        return -1;
    struct outbox_reader file = {(const unsigned char *)bytes.data,
                                 (const unsigned char *)bytes.data + bytes.len, 0};
    while (bytes.len && outbox_record(&file, &payload)) {
        const char *type = outbox_get(&payload, 1);
        int rc = *type == 'E'   ? read_update(self, &payload, number)
                 : *type == 'T' ? read_step(self, &payload)
                                : 0;
        if (rc < 0)
            return ab_fail(
                err, AB_EINTERNAL,
                "%s holds a record that makes no sense; move it away to go on without it", name);
    }
    return 0;
}
