/* pickle.c - see pickle.h */
#include "pickle.h"
#include "base/cleanup.h"
#include "machine.h"

static int run(struct machine *self, struct ab_error *err)
{
    while (!self->stopped) {
        self->op_at = (size_t)(self->at - self->start);
        const uint8_t *code = machine_take(self, 1, err);
        if (!code || opcode_run(self, *code, err) < 0)
            return -1;
    }
    if (self->at != self->end)
        return machine_broken(self, "something follows its end", err);
    return 0;
}

const struct ab_value *ab_pickle_parse(ab_arena_t *arena, const void *bytes, size_t len,
                                       struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *scratch = ab_arena_new();
    struct machine machine = {.arena = arena, .scratch = scratch};

    if (len > AB_PICKLE_BYTES) {
        ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                     "larger than %zu kB; put the data into a file and transfer that",
                     AB_PICKLE_BYTES / 1024);
        return NULL;
    }
    machine_open(&machine, bytes, len);
    if (run(&machine, err) < 0)
        return NULL;
    uint32_t root = machine_pop(&machine, err);
    struct ab_value *value = ab_alloc(arena, 1, sizeof(*value));
    if (root == NONE_YET || tree_build(&machine, root, value, err) < 0)
        return NULL;
    return value;
}
