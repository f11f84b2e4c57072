/* types.h - inside schema/ only: what kinds and shapes are made of */
#ifndef AB_TYPES_H
#define AB_TYPES_H

#include "json.h"
#include "pack.h"
#include "schema.h"

/* What a JSON field must look like inside, and what a text must be beyond its length. */
enum ab_form {
    AB_FORM_ANY,        /* JSON: an object; STR: any text */
    AB_FORM_TEXT,       /* a string */
    AB_FORM_URL,        /* a string with scheme and host */
    AB_FORM_ITEM,       /* an object of a schema */
    AB_FORM_LIST,       /* a list of `of` */
    AB_FORM_MAP,        /* an object whose values are `of` */
    AB_FORM_INT_MAP,    /* the same, and its keys are whole numbers */
    AB_FORM_IDENTIFIER, /* STR: a Python identifier */
    AB_FORM_PREFIX,     /* STR: must begin with `text` */
    AB_FORM_ASSERTED,   /* STR: its length is checked by an assertion (contract 3.2) */
};

struct ab_shape {
    enum ab_form form;
    const struct ab_shape *of;
    const struct ab_schema *schema;
    const char *text;
};

#define AB_SHAPE(name, ...) extern const struct ab_shape ab_shape_##name;
#include "shapes.def"
#undef AB_SHAPE

#endif
