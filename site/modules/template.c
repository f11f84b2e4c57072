/* template.c - see template.h */
#include "template.h"

#include "base/str.h"
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_BYTES = 128
};

void template_quote(struct ab_buf *out, const char *text)
{
    ab_buf_char(out, '\'');
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            ab_buf_str(out, "'\\''");
        else
            ab_buf_char(out, *c);
    }
    ab_buf_char(out, '\'');
}

static const struct template_value *find(const struct template_value *values, size_t n,
                                         const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(values[i].name, name) == 0)
            return &values[i];
    return NULL;
}

static int unknown(const struct template_value *values, size_t n, const char *name, int line,
                   struct ab_error *err)
{
    const char **names = calloc(n + 1, sizeof(char *));
    const char *near = NULL;
    for (size_t i = 0; names && i < n; i++)
        names[i] = values[i].name;
    if (names)
        near = ab_str_nearest(name, names, n);
    free(names);
    return ab_fail(err, AB_EINVAL, "line %d: there is no `{{%s}}`%s%s%s", line, name,
                   near ? "; did you mean `{{" : "", near ? near : "", near ? "}}`?" : "");
}

/* The name between "{{" and "}}", without blanks; -1 if it does not end on this line. */
static int read_name(const char *at, const char *end, char name[NAME_MAX_BYTES],
                     const char **behind)
{
    const char *close = at;
    while (close + 1 < end && *close != '\n' && !(close[0] == '}' && close[1] == '}'))
        close++;
    if (close + 1 >= end || *close == '\n')
        return -1;
    *behind = close + 2;
    while (at < close && *at == ' ')
        at++;
    while (close > at && close[-1] == ' ')
        close--;
    if (close == at || (size_t)(close - at) >= NAME_MAX_BYTES)
        return -1;
    memcpy(name, at, (size_t)(close - at));
    name[close - at] = '\0';
    return 0;
}

/* A line that is only a comment is copied as it is, so that the template can explain itself;
 * directives of a batch system ("#SBATCH", "#PBS") are no comments. */
static int is_remark(const char *line)
{
    return line[0] == '#' && (line[1] == ' ' || line[1] == '!' || line[1] == '#');
}

int template_render(const char *source, size_t len, const struct template_value *values, size_t n,
                    struct ab_buf *out, struct ab_error *err)
{
    const char *end = source + len;
    int line = 1;
    int remark = len > 1 && is_remark(source);
    for (const char *at = source; at < end;) {
        char name[NAME_MAX_BYTES];
        const char *behind = NULL;
        if (remark || at + 1 >= end || at[0] != '{' || at[1] != '{') {
            ab_buf_char(out, *at);
            if (*at++ == '\n') {
                line++;
                remark = at + 1 < end && is_remark(at);
            }
            continue;
        }
        if (read_name(at + 2, end, name, &behind) < 0)
            return ab_fail(err, AB_EINVAL, "line %d: `{{` without a name and `}}` behind it", line);
        const struct template_value *v = find(values, n, name);
        if (!v)
            return unknown(values, n, name, line, err);
        if (v->words)
            ab_buf_str(out, v->text);
        else
            template_quote(out, v->text);
        at = behind;
    }
    return 0;
}
