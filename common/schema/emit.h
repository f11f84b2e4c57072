/* emit.h - inside schema/ only: one writer for msgpack and for JSON text inside it */
#ifndef AB_EMIT_H
#define AB_EMIT_H

#include "base/buf.h"

struct ab_emit {
    struct ab_buf *out;
    bool json;  /* JSON text, not msgpack */
    bool comma; /* in JSON: a comma is due before the next value */
};

void ab_emit_before(struct ab_emit *self); /* before a value that is written by hand */
void ab_emit_key(struct ab_emit *self, const char *name, size_t len);
void ab_emit_nil(struct ab_emit *self);
void ab_emit_int(struct ab_emit *self, int64_t v);
void ab_emit_bool(struct ab_emit *self, bool v);
void ab_emit_real(struct ab_emit *self, double v);
void ab_emit_text(struct ab_emit *self, const char *s, size_t n);

/* A list or map whose number of members is not known yet: in msgpack it gets a wide header, filled
 * in at the end. Returns the mark that the end wants. */
size_t ab_emit_open(struct ab_emit *self, bool map);
void ab_emit_close(struct ab_emit *self, bool map, size_t mark, size_t n);

/* JSON text inside a msgpack message; the end wraps it up as ext 1. In JSON both do nothing. */
struct ab_inset {
    struct ab_buf *outer, text;
};
void ab_emit_inset(struct ab_emit *self, struct ab_inset *inset);
void ab_emit_inset_end(struct ab_emit *self, struct ab_inset *inset);

#endif
