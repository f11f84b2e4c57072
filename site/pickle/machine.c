/* machine.c - see machine.h */
#include "machine.h"

#include <inttypes.h>
#include <string.h>

void machine_open(struct machine *self, const void *bytes, size_t len)
{
    self->start = self->at = bytes;
    self->end = self->start + len;
    self->limit = len + 1;
    size_t nodes = self->limit < AB_PICKLE_VALUES ? self->limit : AB_PICKLE_VALUES;
    self->nodes = ab_alloc(self->scratch, nodes, sizeof(*self->nodes));
    self->links = ab_alloc(self->scratch, self->limit, sizeof(*self->links));
    self->stack = ab_alloc(self->scratch, self->limit, sizeof(*self->stack));
    self->marks = ab_alloc(self->scratch, self->limit, sizeof(*self->marks));
    self->memo = ab_alloc(self->scratch, self->limit, sizeof(*self->memo));
    for (size_t i = 0; i < self->limit; i++)
        self->memo[i] = NONE_YET;
}

int machine_broken(const struct machine *self, const char *what, struct ab_error *err)
{
    return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "not a pickle: %s (%s at byte %zu)", what,
                        self->op ? self->op : "the start", self->op_at);
}

/* ------------------------------------------------------------------ input */

const uint8_t *machine_take(struct machine *self, uint64_t n, struct ab_error *err)
{
    if (n > (uint64_t)(self->end - self->at)) {
        (void)machine_broken(self, "it ends too early", err);
        return NULL;
    }
    const uint8_t *bytes = self->at;
    self->at += n;
    return bytes;
}

int machine_number(struct machine *self, size_t bytes, uint64_t *out, struct ab_error *err)
{
    const uint8_t *p = machine_take(self, bytes, err);
    if (!p)
        return -1;
    *out = 0;
    for (size_t i = bytes; i > 0; i--)
        *out = *out << 8 | p[i - 1];
    return 0;
}

int machine_line(struct machine *self, const char **text, size_t *len, struct ab_error *err)
{
    const uint8_t *newline = memchr(self->at, '\n', (size_t)(self->end - self->at));
    if (!newline)
        return machine_broken(self, "a line without its end", err);
    *text = (const char *)self->at;
    *len = (size_t)(newline - self->at);
    self->at = newline + 1;
    return 0;
}

/* ------------------------------------------------------------------ values and stack */

uint32_t machine_new(struct machine *self, enum ab_value_type type, struct ab_error *err)
{
    if (self->n_nodes >= AB_PICKLE_VALUES || self->n_nodes >= self->limit) {
        (void)ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                           "more than %d values; put them into a file and transfer that",
                           AB_PICKLE_VALUES);
        return NONE_YET;
    }
    self->nodes[self->n_nodes] =
        (struct node){.value = {.type = type}, .first = NONE_YET, .last = NONE_YET};
    return (uint32_t)self->n_nodes++;
}

int machine_push(struct machine *self, uint32_t node, struct ab_error *err)
{
    if (node == NONE_YET)
        return -1; /* whoever made it has said why */
    if (self->n_stack >= self->limit)
        return machine_broken(self, "its stack overflows", err);
    self->stack[self->n_stack++] = node;
    return 0;
}

int machine_push_value(struct machine *self, const struct ab_value *value, struct ab_error *err)
{
    uint32_t node = machine_new(self, value->type, err);
    if (node == NONE_YET)
        return -1;
    self->nodes[node].value = *value;
    return machine_push(self, node, err);
}

static size_t floor_of(const struct machine *self)
{
    return self->n_marks ? self->marks[self->n_marks - 1] : 0;
}

uint32_t machine_top(struct machine *self, struct ab_error *err)
{
    if (self->n_stack <= floor_of(self)) {
        (void)machine_broken(self, "it takes a value from an empty stack", err);
        return NONE_YET;
    }
    return self->stack[self->n_stack - 1];
}

uint32_t machine_pop(struct machine *self, struct ab_error *err)
{
    uint32_t node = machine_top(self, err);
    if (node != NONE_YET)
        self->n_stack--;
    return node;
}

int machine_unmark(struct machine *self, size_t *place, struct ab_error *err)
{
    if (!self->n_marks)
        return machine_broken(self, "it looks for a mark that is not there", err);
    *place = self->marks[--self->n_marks];
    return 0;
}

/* ------------------------------------------------------------------ parts */

static int append(struct machine *self, struct node *into, uint32_t key, uint32_t node,
                  struct ab_error *err)
{
    if (self->n_links >= self->limit)
        return machine_broken(self, "it adds more values than it has", err);
    uint32_t at = (uint32_t)self->n_links++;
    self->links[at] = (struct link){key, node, NONE_YET};
    if (into->last == NONE_YET)
        into->first = at;
    else
        self->links[into->last].next = at;
    into->last = at;
    into->count++;
    return 0;
}

int machine_fill(struct machine *self, uint32_t into, size_t place, struct ab_error *err)
{
    struct node *parent = &self->nodes[into];
    const uint32_t *items = self->stack + place;
    size_t n = self->n_stack - place, step = parent->value.type == AB_V_MAP ? 2 : 1;

    if (n % step)
        return machine_broken(self, "a key without a value", err);
    for (size_t i = 0; i < n; i += step)
        if (append(self, parent, step == 2 ? items[i] : NONE_YET, items[i + step - 1], err) < 0)
            return -1;
    self->n_stack = place;
    return 0;
}

/* ------------------------------------------------------------------ memo */

/* Python numbers what it remembers from 0 on: no number is larger than the pickle is long. */
int machine_memo_set(struct machine *self, uint64_t index, struct ab_error *err)
{
    uint32_t node = machine_top(self, err);
    if (node == NONE_YET)
        return -1;
    if (index >= self->limit)
        return machine_broken(self, "the number of a remembered value is too large", err);
    self->n_memo += self->memo[index] == NONE_YET;
    self->memo[index] = node;
    return 0;
}

int machine_memo_get(struct machine *self, uint64_t index, struct ab_error *err)
{
    if (index >= self->limit || self->memo[index] == NONE_YET)
        return machine_broken(self, "it recalls a value that it never stored", err);
    return machine_push(self, self->memo[index], err);
}
