/* template.h - job-template.sh with {{name}} replaced: values shell-quoted, nothing else is syntax
 */
#ifndef TEMPLATE_H
#define TEMPLATE_H

#include "base/buf.h"
#include "base/error.h"
#include <stddef.h>

struct template_value {
    const char *name;
    const char *text; /* quoted as one word by template_render; `words`: already quoted words */
    int words;
};

/* 'a'\''b': one word for any shell. */
void template_quote(struct ab_buf *out, const char *text);

/* AB_EINVAL names the line: an unknown placeholder, one within quotes or a here document, a value
 * with a line break. */
int template_render(const char *source, size_t len, const struct template_value *values, size_t n,
                    struct ab_buf *out, struct ab_error *err);

#endif
