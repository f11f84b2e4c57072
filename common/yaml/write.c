/* write.c - a text as one YAML scalar on one line */
#include "yaml.h"

#include "base/buf.h"
#include "base/str.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Words and numbers that some reader of YAML 1.1 or 1.2 takes for something else than a text. */
static bool looks_typed(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on",
                                        "off",  "null",  "y",   "n"};
    char *end;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    (void)strtod(text, &end);
    if (end != text && !*end)
        return true;
    /* dates, 1:30, 0x1F, 1_000: digits and what may stand between them */
    return strspn(text, "0123456789-+:._xXoabcdefABCDEF") == strlen(text)
           && (strchr("0123456789+-.", text[0]) != NULL);
}

static bool is_plain(const char *text)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.";
    static const char rest[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.@+- =~%^()";
    size_t len = strlen(text);
    return len > 0 && strchr(first, text[0]) && strspn(text, rest) == len && text[len - 1] != ' '
           && strcmp(text, "...") != 0 && !looks_typed(text);
}

/* Well-formed UTF-8 only: the code point and its length. */
static unsigned decode(const unsigned char *p, size_t *n)
{
    *n = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    unsigned c = *n == 1 ? p[0] : *n == 2 ? p[0] & 0x1Fu : *n == 3 ? p[0] & 0x0Fu : p[0] & 0x07u;
    for (size_t i = 1; i < *n; i++)
        c = c << 6 | (p[i] & 0x3Fu);
    return c;
}

/* Not printable for YAML, or a line break to it. */
static bool must_escape(unsigned c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || c == 0xFEFF
           || c == 0xFFFE || c == 0xFFFF;
}

void ab_yaml_scalar(struct ab_buf *out, const char *text)
{
    if (is_plain(text)) {
        ab_buf_str(out, text);
        return;
    }
    const unsigned char *p = (const unsigned char *)text;
    size_t left = strlen(text);
    ab_buf_char(out, '"');
    while (left > 0) {
        size_t n = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
        if (n > left || !ab_utf8_ok(p, n)) {
            ab_buf_str(out, "\xEF\xBF\xBD");
            n = 1;
        } else {
            unsigned c = decode(p, &n);
            if (c == '\n')
                ab_buf_str(out, "\\n");
            else if (c == '\t')
                ab_buf_str(out, "\\t");
            else if (must_escape(c))
                ab_buf_printf(out, "\\u%04x", c);
            else if (c == '"' || c == '\\')
                ab_buf_printf(out, "\\%c", (char)c);
            else
                ab_buf_add(out, p, n);
        }
        p += n;
        left -= n;
    }
    ab_buf_char(out, '"');
}
