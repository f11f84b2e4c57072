/* opcodes.c - the instructions of a pickle: what each one does here, or why it is refused */
#include "machine.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_SHOWN 60

/* ------------------------------------------------------------------ frame of it all */

static int op_proto(struct machine *self, struct ab_error *err)
{
    uint64_t version;
    if (machine_number(self, 1, &version, err) < 0)
        return -1;
    if (version > 5)
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                            "pickle protocol %d is newer than 5; pickle with protocol=4",
                            (int)version);
    return 0;
}

/* A promise about the bytes to come that nobody needs who has them all. */
static int op_frame(struct machine *self, struct ab_error *err)
{
    uint64_t n;
    if (machine_number(self, 8, &n, err) < 0)
        return -1;
    return n > (uint64_t)(self->end - self->at) ? machine_broken(self, "it ends too early", err)
                                                : 0;
}

static int op_stop(struct machine *self, struct ab_error *err)
{
    (void)err;
    self->stopped = true;
    return 0;
}

static int op_mark(struct machine *self, struct ab_error *err)
{
    if (self->n_marks >= self->limit)
        return machine_broken(self, "it has too many marks", err);
    self->marks[self->n_marks++] = (uint32_t)self->n_stack;
    return 0;
}

static int op_pop_mark(struct machine *self, struct ab_error *err)
{
    return machine_unmark(self, &self->n_stack, err);
}

/* On an empty stack above a mark it takes the mark away, as in Python. */
static int op_pop(struct machine *self, struct ab_error *err)
{
    if (self->n_marks && self->marks[self->n_marks - 1] == self->n_stack)
        return op_pop_mark(self, err);
    return machine_pop(self, err) == NONE_YET ? -1 : 0;
}

static int op_dup(struct machine *self, struct ab_error *err)
{
    return machine_push(self, machine_top(self, err), err);
}

/* ------------------------------------------------------------------ scalars */

static int op_none(struct machine *self, struct ab_error *err)
{
    return machine_push_value(self, &(struct ab_value){.type = AB_V_NULL}, err);
}

static int push_bool(struct machine *self, bool b, struct ab_error *err)
{
    return machine_push_value(self, &(struct ab_value){.type = AB_V_BOOL, .b = b}, err);
}

static int op_true(struct machine *self, struct ab_error *err)
{
    return push_bool(self, true, err);
}

static int op_false(struct machine *self, struct ab_error *err)
{
    return push_bool(self, false, err);
}

/* Two spellings mean true and false: older than those. */
static int op_int(struct machine *self, struct ab_error *err)
{
    const char *text;
    size_t len;
    if (machine_line(self, &text, &len, err) < 0)
        return -1;
    if (len == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1'))
        return push_bool(self, text[1] == '1', err);
    return scalar_decimal(self, text, len, err);
}

static int op_long(struct machine *self, struct ab_error *err)
{
    const char *text;
    size_t len;
    if (machine_line(self, &text, &len, err) < 0)
        return -1;
    return scalar_decimal(self, text, len > 0 && text[len - 1] == 'L' ? len - 1 : len, err);
}

static int push_unsigned(struct machine *self, size_t bytes, struct ab_error *err)
{
    uint64_t n;
    if (machine_number(self, bytes, &n, err) < 0)
        return -1;
    return machine_push_value(self, &(struct ab_value){.type = AB_V_INT, .i = (int64_t)n}, err);
}

static int op_binint1(struct machine *self, struct ab_error *err)
{
    return push_unsigned(self, 1, err);
}

static int op_binint2(struct machine *self, struct ab_error *err)
{
    return push_unsigned(self, 2, err);
}

static int push_long(struct machine *self, uint64_t len, struct ab_error *err)
{
    const uint8_t *bytes = machine_take(self, len, err);
    return bytes ? scalar_long(self, bytes, (size_t)len, err) : -1;
}

static int op_binint(struct machine *self, struct ab_error *err)
{
    return push_long(self, 4, err);
}

static int op_long1(struct machine *self, struct ab_error *err)
{
    uint64_t len;
    return machine_number(self, 1, &len, err) < 0 ? -1 : push_long(self, len, err);
}

static int op_long4(struct machine *self, struct ab_error *err)
{
    uint64_t len;
    return machine_number(self, 4, &len, err) < 0 ? -1 : push_long(self, len, err);
}

static int op_float(struct machine *self, struct ab_error *err)
{
    const char *text;
    size_t len;
    return machine_line(self, &text, &len, err) < 0 ? -1 : scalar_real_text(self, text, len, err);
}

static int op_binfloat(struct machine *self, struct ab_error *err)
{
    const uint8_t *bytes = machine_take(self, 8, err);
    uint64_t bits = 0;
    double value;
    if (!bytes)
        return -1;
    for (size_t i = 0; i < 8; i++)
        bits = bits << 8 | bytes[i];
    memcpy(&value, &bits, sizeof(value));
    return scalar_real(self, value, err);
}

static int op_unicode(struct machine *self, struct ab_error *err)
{
    const char *text;
    size_t len;
    return machine_line(self, &text, &len, err) < 0 ? -1 : scalar_raw_text(self, text, len, err);
}

static int push_text(struct machine *self, size_t size_bytes, struct ab_error *err)
{
    uint64_t len;
    if (machine_number(self, size_bytes, &len, err) < 0)
        return -1;
    const uint8_t *bytes = machine_take(self, len, err);
    return bytes ? scalar_text(self, bytes, (size_t)len, err) : -1;
}

static int op_short_binunicode(struct machine *self, struct ab_error *err)
{
    return push_text(self, 1, err);
}

static int op_binunicode(struct machine *self, struct ab_error *err)
{
    return push_text(self, 4, err);
}

static int op_binunicode8(struct machine *self, struct ab_error *err)
{
    return push_text(self, 8, err);
}

/* ------------------------------------------------------------------ lists, tuples, dicts */

static int push_empty(struct machine *self, enum ab_value_type type, bool tuple,
                      struct ab_error *err)
{
    uint32_t node = machine_new(self, type, err);
    if (node != NONE_YET)
        self->nodes[node].tuple = tuple;
    return machine_push(self, node, err);
}

static int op_empty_list(struct machine *self, struct ab_error *err)
{
    return push_empty(self, AB_V_LIST, false, err);
}

static int op_empty_tuple(struct machine *self, struct ab_error *err)
{
    return push_empty(self, AB_V_LIST, true, err);
}

static int op_empty_dict(struct machine *self, struct ab_error *err)
{
    return push_empty(self, AB_V_MAP, false, err);
}

/* What lies above `place` becomes one value. */
static int collect(struct machine *self, enum ab_value_type type, bool tuple, size_t place,
                   struct ab_error *err)
{
    uint32_t node = machine_new(self, type, err);
    if (node == NONE_YET || machine_fill(self, node, place, err) < 0)
        return -1;
    self->nodes[node].tuple = tuple;
    return machine_push(self, node, err);
}

static int collect_marked(struct machine *self, enum ab_value_type type, bool tuple,
                          struct ab_error *err)
{
    size_t place;
    return machine_unmark(self, &place, err) < 0 ? -1 : collect(self, type, tuple, place, err);
}

static int op_list(struct machine *self, struct ab_error *err)
{
    return collect_marked(self, AB_V_LIST, false, err);
}

static int op_tuple(struct machine *self, struct ab_error *err)
{
    return collect_marked(self, AB_V_LIST, true, err);
}

static int op_dict(struct machine *self, struct ab_error *err)
{
    return collect_marked(self, AB_V_MAP, false, err);
}

/* The place below the top n values, all of which must be there. */
static int below(struct machine *self, size_t n, size_t *place, struct ab_error *err)
{
    size_t height = self->n_stack;
    for (size_t i = 0; i < n; i++)
        if (machine_pop(self, err) == NONE_YET)
            return -1;
    *place = self->n_stack;
    self->n_stack = height;
    return 0;
}

static int tuple_of(struct machine *self, size_t n, struct ab_error *err)
{
    size_t place;
    return below(self, n, &place, err) < 0 ? -1 : collect(self, AB_V_LIST, true, place, err);
}

static int op_tuple1(struct machine *self, struct ab_error *err)
{
    return tuple_of(self, 1, err);
}

static int op_tuple2(struct machine *self, struct ab_error *err)
{
    return tuple_of(self, 2, err);
}

static int op_tuple3(struct machine *self, struct ab_error *err)
{
    return tuple_of(self, 3, err);
}

/* Into the list or dict that lies right below `place`. */
static int add(struct machine *self, enum ab_value_type type, size_t place, struct ab_error *err)
{
    size_t height = self->n_stack;

    self->n_stack = place;
    uint32_t into = machine_top(self, err);
    self->n_stack = height;
    if (into == NONE_YET)
        return -1;
    if (self->nodes[into].value.type != type || self->nodes[into].tuple)
        return machine_broken(self, "it adds to something that is no list or dict", err);
    return machine_fill(self, into, place, err);
}

static int add_marked(struct machine *self, enum ab_value_type type, struct ab_error *err)
{
    size_t place;
    return machine_unmark(self, &place, err) < 0 ? -1 : add(self, type, place, err);
}

static int add_top(struct machine *self, enum ab_value_type type, size_t n, struct ab_error *err)
{
    size_t place;
    return below(self, n, &place, err) < 0 ? -1 : add(self, type, place, err);
}

static int op_append(struct machine *self, struct ab_error *err)
{
    return add_top(self, AB_V_LIST, 1, err);
}

static int op_appends(struct machine *self, struct ab_error *err)
{
    return add_marked(self, AB_V_LIST, err);
}

static int op_setitem(struct machine *self, struct ab_error *err)
{
    return add_top(self, AB_V_MAP, 2, err);
}

static int op_setitems(struct machine *self, struct ab_error *err)
{
    return add_marked(self, AB_V_MAP, err);
}

/* ------------------------------------------------------------------ memo */

static int line_index(struct machine *self, uint64_t *index, struct ab_error *err)
{
    const char *text;
    size_t len;

    if (machine_line(self, &text, &len, err) < 0)
        return -1;
    if (len == 0 || len > 9)
        return machine_broken(self, "the number of a remembered value is none", err);
    *index = 0;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)text[i]))
            return machine_broken(self, "the number of a remembered value is none", err);
        *index = *index * 10 + (uint64_t)(text[i] - '0');
    }
    return 0;
}

static int op_put(struct machine *self, struct ab_error *err)
{
    uint64_t index = 0;
    return line_index(self, &index, err) < 0 ? -1 : machine_memo_set(self, index, err);
}

static int op_binput(struct machine *self, struct ab_error *err)
{
    uint64_t index = 0;
    return machine_number(self, 1, &index, err) < 0 ? -1 : machine_memo_set(self, index, err);
}

static int op_long_binput(struct machine *self, struct ab_error *err)
{
    uint64_t index = 0;
    return machine_number(self, 4, &index, err) < 0 ? -1 : machine_memo_set(self, index, err);
}

static int op_memoize(struct machine *self, struct ab_error *err)
{
    return machine_memo_set(self, self->n_memo, err);
}

static int op_get(struct machine *self, struct ab_error *err)
{
    uint64_t index = 0;
    return line_index(self, &index, err) < 0 ? -1 : machine_memo_get(self, index, err);
}

static int op_binget(struct machine *self, struct ab_error *err)
{
    uint64_t index = 0;
    return machine_number(self, 1, &index, err) < 0 ? -1 : machine_memo_get(self, index, err);
}

static int op_long_binget(struct machine *self, struct ab_error *err)
{
    uint64_t index = 0;
    return machine_number(self, 4, &index, err) < 0 ? -1 : machine_memo_get(self, index, err);
}

/* ------------------------------------------------------------------ refused */

#define REMEDY                                                                                     \
    "only dict, list, tuple, str, int, float, bool and None are read and nothing is executed: "    \
    "convert the value before (float(x), x.tolist(), str(x)) or send `parameters` as JSON"

static int refuse(const struct machine *self, const char *what, struct ab_error *err)
{
    return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "%s (%s at byte %zu); " REMEDY, what,
                        self->op, self->op_at);
}

static int refuse_object(const struct machine *self, const char *module, size_t module_len,
                         const char *name, size_t name_len, struct ab_error *err)
{
    char what[2 * NAME_MAX_SHOWN + 40];
    int a = (int)(module_len < NAME_MAX_SHOWN ? module_len : NAME_MAX_SHOWN);
    int b = (int)(name_len < NAME_MAX_SHOWN ? name_len : NAME_MAX_SHOWN);

    snprintf(what, sizeof(what), "names the Python object %.*s.%.*s", a, module, b, name);
    for (char *c = what; *c; c++) /* somebody else's text in our error */
        if (!isprint((unsigned char)*c))
            *c = '?';
    return refuse(self, what, err);
}

/* GLOBAL, INST: module and name in two lines. */
static int op_global(struct machine *self, struct ab_error *err)
{
    const char *module, *name;
    size_t module_len, name_len;
    if (machine_line(self, &module, &module_len, err) < 0
        || machine_line(self, &name, &name_len, err) < 0)
        return -1;
    return refuse_object(self, module, module_len, name, name_len, err);
}

static int op_stack_global(struct machine *self, struct ab_error *err)
{
    size_t place;
    if (below(self, 2, &place, err) < 0)
        return -1;
    const struct ab_value *module = &self->nodes[self->stack[place]].value;
    const struct ab_value *name = &self->nodes[self->stack[place + 1]].value;
    if (module->type != AB_V_TEXT || name->type != AB_V_TEXT)
        return refuse(self, "names a Python object", err);
    return refuse_object(self, module->s, module->len, name->s, name->len, err);
}

static int op_call(struct machine *self, struct ab_error *err)
{
    return refuse(self, "calls Python code", err);
}

static int op_extension(struct machine *self, struct ab_error *err)
{
    return refuse(self, "names a Python object of a registry", err);
}

static int op_persistent(struct machine *self, struct ab_error *err)
{
    return refuse(self, "names an object outside of the pickle", err);
}

static int op_bytes(struct machine *self, struct ab_error *err)
{
    return refuse(self, "is a bytes value", err);
}

static int op_set(struct machine *self, struct ab_error *err)
{
    return refuse(self, "is a set", err);
}

static int op_old_string(struct machine *self, struct ab_error *err)
{
    return refuse(self, "is a str of Python 2", err);
}

static int op_buffer(struct machine *self, struct ab_error *err)
{
    return refuse(self, "is a buffer outside of the pickle", err);
}

/* ------------------------------------------------------------------ the table */

static const struct {
    const char *name;
    int (*run)(struct machine *, struct ab_error *);
} ops[256] = {
    ['('] = {"MARK", op_mark},
    ['.'] = {"STOP", op_stop},
    ['0'] = {"POP", op_pop},
    ['1'] = {"POP_MARK", op_pop_mark},
    ['2'] = {"DUP", op_dup},
    [0x80] = {"PROTO", op_proto},
    [0x95] = {"FRAME", op_frame},

    ['N'] = {"NONE", op_none},
    [0x88] = {"NEWTRUE", op_true},
    [0x89] = {"NEWFALSE", op_false},
    ['I'] = {"INT", op_int},
    ['L'] = {"LONG", op_long},
    ['J'] = {"BININT", op_binint},
    ['K'] = {"BININT1", op_binint1},
    ['M'] = {"BININT2", op_binint2},
    [0x8a] = {"LONG1", op_long1},
    [0x8b] = {"LONG4", op_long4},
    ['F'] = {"FLOAT", op_float},
    ['G'] = {"BINFLOAT", op_binfloat},
    ['V'] = {"UNICODE", op_unicode},
    ['X'] = {"BINUNICODE", op_binunicode},
    [0x8c] = {"SHORT_BINUNICODE", op_short_binunicode},
    [0x8d] = {"BINUNICODE8", op_binunicode8},

    [']'] = {"EMPTY_LIST", op_empty_list},
    ['l'] = {"LIST", op_list},
    ['a'] = {"APPEND", op_append},
    ['e'] = {"APPENDS", op_appends},
    [')'] = {"EMPTY_TUPLE", op_empty_tuple},
    ['t'] = {"TUPLE", op_tuple},
    [0x85] = {"TUPLE1", op_tuple1},
    [0x86] = {"TUPLE2", op_tuple2},
    [0x87] = {"TUPLE3", op_tuple3},
    ['}'] = {"EMPTY_DICT", op_empty_dict},
    ['d'] = {"DICT", op_dict},
    ['s'] = {"SETITEM", op_setitem},
    ['u'] = {"SETITEMS", op_setitems},

    ['p'] = {"PUT", op_put},
    ['q'] = {"BINPUT", op_binput},
    ['r'] = {"LONG_BINPUT", op_long_binput},
    [0x94] = {"MEMOIZE", op_memoize},
    ['g'] = {"GET", op_get},
    ['h'] = {"BINGET", op_binget},
    ['j'] = {"LONG_BINGET", op_long_binget},

    ['c'] = {"GLOBAL", op_global},
    ['i'] = {"INST", op_global},
    [0x93] = {"STACK_GLOBAL", op_stack_global},
    ['R'] = {"REDUCE", op_call},
    ['b'] = {"BUILD", op_call},
    ['o'] = {"OBJ", op_call},
    [0x81] = {"NEWOBJ", op_call},
    [0x92] = {"NEWOBJ_EX", op_call},
    [0x82] = {"EXT1", op_extension},
    [0x83] = {"EXT2", op_extension},
    [0x84] = {"EXT4", op_extension},
    ['P'] = {"PERSID", op_persistent},
    ['Q'] = {"BINPERSID", op_persistent},
    ['S'] = {"STRING", op_old_string},
    ['T'] = {"BINSTRING", op_old_string},
    ['U'] = {"SHORT_BINSTRING", op_old_string},
    ['B'] = {"BINBYTES", op_bytes},
    ['C'] = {"SHORT_BINBYTES", op_bytes},
    [0x8e] = {"BINBYTES8", op_bytes},
    [0x96] = {"BYTEARRAY8", op_bytes},
    [0x8f] = {"EMPTY_SET", op_set},
    [0x90] = {"ADDITEMS", op_set},
    [0x91] = {"FROZENSET", op_set},
    [0x97] = {"NEXT_BUFFER", op_buffer},
    [0x98] = {"READONLY_BUFFER", op_buffer},
};

int opcode_run(struct machine *self, uint8_t code, struct ab_error *err)
{
    if (!ops[code].run)
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                            "not a pickle: no instruction has the number 0x%02x (at byte %zu)",
                            code, self->op_at);
    self->op = ops[code].name;
    return ops[code].run(self, err);
}
