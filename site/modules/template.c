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

/* A value with a line break would end the directive or the word it stands in. */
static int check_value(const struct template_value *v, int line, struct ab_error *err)
{
    for (const unsigned char *c = (const unsigned char *)v->text; *c; c++)
        if ((*c < 0x20 && *c != '\t') || *c == 0x7f)
            return ab_fail(err, AB_EINVAL,
                           "line %d: the value of {{%s}} has a line break or control character",
                           line, v->name);
    return 0;
}

/* ---------------------------------------------------------------- where in the script
 *
 * A value comes with its own quotes: within others, or in a here document, they would mean nothing
 * and the shell would expand what the centre sent. */

struct place {
    enum {
        PLAIN,
        SINGLE,
        DOUBLE,
        COMMENT,
        HERE
    } at;
    bool word_start, tabs;      /* tabs: <<- */
    bool unclear;               /* an expansion within quotes: where do they end? */
    char until[NAME_MAX_BYTES]; /* the line that ends the here document; "" none is announced */
};

static const char *const place_names[] = {"", "single quotes", "double quotes", "a comment",
                                          "a here document"};

/* The word behind `<<`: what ends the here document that begins with the next line. */
static void read_until(struct place *place, const char *at, const char *end)
{
    size_t n = 0;
    place->tabs = at < end && *at == '-';
    at += place->tabs;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    for (; at < end && !strchr(" \t\n;|&<>()", *at) && n + 1 < sizeof(place->until); at++)
        if (!strchr("'\"\\", *at))
            place->until[n++] = *at;
    place->until[n] = '\0';
}

static bool ends_here(const struct place *place, const char *line, const char *end)
{
    size_t n = strlen(place->until);
    while (place->tabs && line < end && *line == '\t')
        line++;
    return (size_t)(end - line) >= n && memcmp(line, place->until, n) == 0
           && (line + n == end || line[n] == '\n');
}

static void next_line(struct place *place, const char *line, const char *end)
{
    if (place->at == HERE && ends_here(place, line, end)) {
        place->until[0] = '\0';
        place->at = COMMENT; /* until the end of this line */
    } else if (place->at != HERE && place->at != SINGLE && place->at != DOUBLE) {
        place->at = place->until[0] ? HERE : PLAIN;
        if (place->at == HERE)
            next_line(place, line, end); /* it may be empty */
    }
    place->unclear = place->unclear && place->at == DOUBLE;
    place->word_start = true;
}

/* Over the character at `at`; how many belong together. */
static size_t pass(struct place *place, const char *at, const char *end)
{
    bool start = place->word_start;
    place->word_start = strchr(" \t;|&()", *at) != NULL;
    if (*at == '\n') {
        next_line(place, at + 1, end);
        return 1;
    }
    if (place->at == COMMENT || place->at == HERE)
        return 1;
    if (*at == '\\' && place->at != SINGLE && at + 1 < end && at[1] != '\n')
        return 2;
    if (place->at == DOUBLE && (*at == '`' || (*at == '$' && at + 1 < end && strchr("({", at[1]))))
        place->unclear = true;
    if (*at == '\'' && place->at != DOUBLE)
        place->at = place->at == SINGLE ? PLAIN : SINGLE;
    else if (*at == '"' && place->at != SINGLE)
        place->at = place->at == DOUBLE ? PLAIN : DOUBLE;
    else if (*at == '#' && start && place->at == PLAIN)
        place->at = COMMENT;
    else if (place->at == PLAIN && end - at > 2 && memcmp(at, "<<<", 3) == 0)
        return 3;
    else if (place->at == PLAIN && end - at > 2 && memcmp(at, "<<", 2) == 0)
        read_until(place, at + 2, end);
    return 1;
}

/* ---------------------------------------------------------------- all of it */

/* A line that is only a comment is copied as it is, so that the template can explain itself;
 * directives of a batch system ("#SBATCH", "#PBS") are no comments. */
static bool is_remark(const char *line, const char *end)
{
    return end - line > 1 && line[0] == '#' && (line[1] == ' ' || line[1] == '!' || line[1] == '#');
}

static int fill(const char *at, const char *end, const struct template_value *values, size_t n,
                const struct place *place, int line, struct ab_buf *out, const char **behind,
                struct ab_error *err)
{
    char name[NAME_MAX_BYTES];
    if (read_name(at + 2, end, name, behind) < 0)
        return ab_fail(err, AB_EINVAL, "line %d: `{{` without a name and `}}` behind it", line);
    const struct template_value *v = find(values, n, name);
    if (!v)
        return unknown(values, n, name, line, err);
    if (place->at != PLAIN && place->at != COMMENT)
        return ab_fail(err, AB_EINVAL,
                       "line %d: {{%s}} stands inside %s; its value is quoted already, so write it "
                       "as a word of its own",
                       line, name, place_names[place->at]);
    if (place->unclear && place->at != COMMENT)
        return ab_fail(
            err, AB_EINVAL,
            "line %d: {{%s}} stands behind an expansion within quotes; give it a line of "
            "its own: name={{%s}}",
            line, name, name);
    if (check_value(v, line, err) < 0)
        return -1;
    if (v->words)
        ab_buf_str(out, v->text);
    else
        template_quote(out, v->text);
    return 0;
}

int template_render(const char *source, size_t len, const struct template_value *values, size_t n,
                    struct ab_buf *out, struct ab_error *err)
{
    const char *end = source + len;
    struct place place = {.word_start = true};
    int line = 1;
    bool remark = is_remark(source, end);
    for (const char *at = source; at < end;) {
        if (!remark && end - at > 1 && at[0] == '{' && at[1] == '{') {
            if (fill(at, end, values, n, &place, line, out, &at, err) < 0)
                return -1;
            place.word_start = false;
            continue;
        }
        size_t step = pass(&place, at, end);
        ab_buf_add(out, at, step);
        if (*at == '\n') {
            line++;
            remark = place.at != HERE && is_remark(at + 1, end);
        }
        at += step;
    }
    return 0;
}
