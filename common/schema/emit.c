/* emit.c - one writer for msgpack and for JSON text inside it */
#include "emit.h"

#include "number.h"
#include "pack.h"
#include <inttypes.h>

void ab_emit_before(struct ab_emit *self)
{
    if (self->json && self->comma)
        ab_buf_char(self->out, ',');
    self->comma = true;
}

void ab_emit_key(struct ab_emit *self, const char *name, size_t len)
{
    if (!self->json) {
        ab_pack_strn(self->out, name, len);
        return;
    }
    ab_emit_before(self);
    ab_buf_json_str(self->out, name, len);
    ab_buf_char(self->out, ':');
    self->comma = false;
}

void ab_emit_nil(struct ab_emit *self)
{
    ab_emit_before(self);
    if (self->json)
        ab_buf_str(self->out, "null");
    else
        ab_pack_nil(self->out);
}

void ab_emit_int(struct ab_emit *self, int64_t v)
{
    ab_emit_before(self);
    if (self->json)
        ab_buf_int(self->out, v);
    else
        ab_pack_int(self->out, v);
}

void ab_emit_bool(struct ab_emit *self, bool v)
{
    ab_emit_before(self);
    if (self->json)
        ab_buf_str(self->out, v ? "true" : "false");
    else
        ab_pack_bool(self->out, v);
}

void ab_emit_real(struct ab_emit *self, double v)
{
    char text[AB_NUMBER_TEXT];
    ab_emit_before(self);
    if (self->json)
        ab_buf_add(self->out, text, ab_number_text(v, text));
    else
        ab_pack_real(self->out, v);
}

void ab_emit_text(struct ab_emit *self, const char *s, size_t n)
{
    ab_emit_before(self);
    if (self->json)
        ab_buf_json_str(self->out, s, n);
    else
        ab_pack_strn(self->out, s, n);
}

size_t ab_emit_open(struct ab_emit *self, bool map)
{
    ab_emit_before(self);
    size_t mark = self->out->len;
    if (self->json)
        ab_buf_char(self->out, map ? '{' : '[');
    else
        ab_buf_add(self->out, map ? "\xdf\0\0\0\0" : "\xdd\0\0\0\0", 5);
    self->comma = false;
    return mark;
}

void ab_emit_close(struct ab_emit *self, bool map, size_t mark, size_t n)
{
    if (self->json) {
        ab_buf_char(self->out, map ? '}' : ']');
    } else if (!self->out->failed) {
        for (int i = 0; i < 4; i++)
            self->out->data[mark + 1 + (size_t)i] = (char)(n >> (24 - 8 * i));
    }
    self->comma = true;
}

void ab_emit_inset(struct ab_emit *self, struct ab_inset *inset)
{
    *inset = (struct ab_inset){.outer = self->json ? NULL : self->out};
    if (self->json)
        return;
    self->out = &inset->text;
    self->json = true;
    self->comma = false;
}

void ab_emit_inset_end(struct ab_emit *self, struct ab_inset *inset)
{
    if (!inset->outer)
        return;
    self->out = inset->outer;
    self->json = false;
    ab_pack_json(self->out, inset->text.data, inset->text.len);
    self->out->failed |= inset->text.failed;
    ab_buf_free(&inset->text);
}
