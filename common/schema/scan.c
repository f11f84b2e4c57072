/* scan.c - JSON text, looked at without building a tree */
#include "scan.h"

#include "base/str.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *start, *at, *end;
    struct ab_scan_fault *fault;
};

static int fail(struct reader *self, const char *msg, const char *where)
{
    self->fault->msg = msg;
    self->fault->at = (size_t)(where - self->start);
    return -1;
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* ------------------------------------------------------------------ the check, once */

static int check_escape(struct reader *self)
{
    const char *p = self->at; /* behind the backslash */
    if (p < self->end && *p == 'u') {
        if (self->end - p < 5 || hex4(p + 1) < 0)
            return fail(self, "Invalid \\uXXXX escape", p);
        self->at = p + 5;
        return 0;
    }
    if (p == self->end || !strchr("\"\\/bfnrt", *p) || *p == '\0')
        return fail(self, "Invalid \\escape", p - 1);
    self->at = p + 1;
    return 0;
}

static int check_string(struct reader *self)
{
    const char *begin = self->at++;
    while (self->at < self->end) {
        unsigned char c = (unsigned char)*self->at;
        if (c == '"') {
            self->at++;
            return 0;
        }
        if (c < 0x20)
            return fail(self, "Invalid control character at", self->at);
        self->at++;
        if (c != '\\')
            continue;
        if (self->at == self->end)
            break;
        if (check_escape(self) < 0)
            return -1;
    }
    return fail(self, "Unterminated string starting at", begin);
}

static int check_number(struct reader *self)
{
    const char *p = self->at;
    if (p < self->end && *p == '-')
        p++;
    if (p == self->end || !is_digit(*p))
        return fail(self, "Expecting value", self->at);
    if (*p == '0')
        p++;
    else
        while (p < self->end && is_digit(*p))
            p++;
    if (self->end - p > 1 && p[0] == '.' && is_digit(p[1])) {
        p++;
        while (p < self->end && is_digit(*p))
            p++;
    }
    if (self->end - p > 1 && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        if (*q == '+' || *q == '-')
            q++;
        if (q < self->end && is_digit(*q)) {
            while (q < self->end && is_digit(*q))
                q++;
            p = q;
        }
    }
    self->at = p;
    return 0;
}

static int check_word(struct reader *self, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(self->end - self->at) < n || memcmp(self->at, word, n) != 0)
        return fail(self, "Expecting value", self->at);
    self->at += n;
    return 0;
}

static int check_value(struct reader *self, int depth);

static int check_key(struct reader *self)
{
    if (self->at == self->end || *self->at != '"')
        return fail(self, "Expecting property name enclosed in double quotes", self->at);
    if (check_string(self) < 0)
        return -1;
    self->at = skip_space(self->at, self->end);
    if (self->at == self->end || *self->at != ':')
        return fail(self, "Expecting ':' delimiter", self->at);
    self->at = skip_space(self->at + 1, self->end);
    return 0;
}

static int check_container(struct reader *self, int depth)
{
    char close = *self->at == '{' ? '}' : ']';
    if (depth == 0)
        return fail(self, NULL, self->at);
    self->at = skip_space(self->at + 1, self->end);
    if (self->at < self->end && *self->at == close) {
        self->at++;
        return 0;
    }
    for (;;) {
        if (close == '}' && check_key(self) < 0)
            return -1;
        if (check_value(self, depth - 1) < 0)
            return -1;
        self->at = skip_space(self->at, self->end);
        if (self->at < self->end && *self->at == close) {
            self->at++;
            return 0;
        }
        if (self->at == self->end || *self->at != ',')
            return fail(self, "Expecting ',' delimiter", self->at);
        self->at = skip_space(self->at + 1, self->end);
    }
}

static int check_value(struct reader *self, int depth)
{
    if (self->at == self->end)
        return fail(self, "Expecting value", self->at);
    switch (*self->at) {
    case '{':
    case '[':
        return check_container(self, depth);
    case '"':
        return check_string(self);
    case 't':
        return check_word(self, "true");
    case 'f':
        return check_word(self, "false");
    case 'n':
        return check_word(self, "null");
    default:
        return check_number(self);
    }
}

/* ------------------------------------------------------------------ pieces of checked text */

/* Behind the value at p. */
static const char *skip_value(const char *p, const char *end)
{
    int open = 0;
    while (p < end) {
        switch (*p) {
        case '"':
            for (p++; *p != '"'; p++)
                if (*p == '\\')
                    p++;
            p++;
            break;
        case '{':
        case '[':
            open++;
            p++;
            break;
        case '}':
        case ']':
            if (open == 0)
                return p;
            open--;
            p++;
            break;
        default:
            if (open == 0) {
                while (p < end && *p != ',' && *p != '}' && *p != ']' && *p != ' ' && *p != '\n'
                       && *p != '\r' && *p != '\t')
                    p++;
                return p;
            }
            p++;
            continue;
        }
        if (open == 0)
            return p;
    }
    return p;
}

static struct ab_node node_at(const char *p, const char *end)
{
    struct ab_node node = {AB_N_ABSENT, p, (size_t)(end - p)};
    switch (*p) {
    case '{':
        node.type = AB_N_MAP;
        break;
    case '[':
        node.type = AB_N_LIST;
        break;
    case '"':
        node.type = AB_N_TEXT;
        node.raw++;
        node.raw_len -= 2;
        break;
    case 't':
        node.type = AB_N_TRUE;
        break;
    case 'f':
        node.type = AB_N_FALSE;
        break;
    case 'n':
        node.type = AB_N_NULL;
        break;
    default:
        node.type = AB_N_INT;
        for (const char *c = p; c < end; c++)
            if (*c == '.' || *c == 'e' || *c == 'E')
                node.type = AB_N_REAL;
    }
    return node;
}

/* Line, column and character number of a fault, as Python counts them. */
static void locate(const char *text, struct ab_scan_fault *fault)
{
    const char *end = text + fault->at;
    fault->line = 1;
    fault->pos = 0;
    size_t line_pos = 0;
    for (const char *p = text; p < end; p++) {
        if (((unsigned char)*p & 0xC0) == 0x80)
            continue;
        fault->pos++;
        if (*p == '\n') {
            fault->line++;
            line_pos = fault->pos;
        }
    }
    fault->column = fault->pos - line_pos + 1;
}

int ab_scan_text(const char *text, size_t len, struct ab_node *root, struct ab_scan_fault *fault)
{
    *fault = (struct ab_scan_fault){0};
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        len -= 3;
    }
    struct reader reader = {text, text, text + len, fault};
    int rc;
    const char *begin = skip_space(text, reader.end);
    if (!ab_utf8_ok(text, len)) {
        rc = fail(&reader, "Invalid UTF-8", text);
    } else {
        reader.at = begin;
        rc = check_value(&reader, AB_JSON_DEPTH);
    }
    if (rc == 0) {
        const char *rest = skip_space(reader.at, reader.end);
        if (rest == reader.end) {
            *root = node_at(begin, reader.at);
            return 0;
        }
        fail(&reader, "Extra data", rest);
    }
    locate(text, fault);
    return -1;
}

struct ab_scan ab_scan(const struct ab_node *container)
{
    const char *end = container->raw + container->raw_len - 1; /* the closing bracket */
    return (struct ab_scan){skip_space(container->raw + 1, end), end};
}

bool ab_scan_item(struct ab_scan *self, struct ab_node *value)
{
    if (self->at >= self->end)
        return false;
    const char *behind = skip_value(self->at, self->end);
    *value = node_at(self->at, behind);
    const char *p = skip_space(behind, self->end);
    if (p < self->end) /* a comma */
        p = skip_space(p + 1, self->end);
    self->at = p;
    return true;
}

bool ab_scan_member(struct ab_scan *self, struct ab_node *key, struct ab_node *value)
{
    if (self->at >= self->end)
        return false;
    const char *behind = skip_value(self->at, self->end);
    *key = node_at(self->at, behind);
    self->at = skip_space(skip_space(behind, self->end) + 1, self->end); /* the colon */
    return ab_scan_item(self, value);
}

/* ------------------------------------------------------------------ strings */

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

/* The character of the \u escape at *p (behind the u), with its second half; 0: not storable. */
static uint32_t unescape(const char **p, const char *end)
{
    uint32_t c = (uint32_t)hex4(*p);
    *p += 4;
    if (c >= 0xDC00 && c <= 0xDFFF)
        return 0;
    if (c < 0xD800 || c > 0xDBFF)
        return c;
    if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
        return 0;
    uint32_t low = (uint32_t)hex4(*p + 2);
    *p += 6;
    if (low < 0xDC00 || low > 0xDFFF)
        return 0;
    return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
}

int ab_scan_string(const struct ab_node *node, ab_arena_t *arena, const char **s, size_t *n)
{
    const char *p = node->raw, *end = p + node->raw_len;
    *s = p;
    *n = node->raw_len;
    if (node->type == AB_N_PLAIN)
        return node->raw_len > 0 && (memchr(p, '\0', *n) || !ab_utf8_ok(p, *n)) ? -1 : 0;
    const char *escape = memchr(p, '\\', node->raw_len);
    if (!escape)
        return 0;
    char *out = ab_alloc(arena, node->raw_len + 1, 1), *to = out;
    while (escape) {
        memcpy(to, p, (size_t)(escape - p));
        to += escape - p;
        p = escape + 2;
        switch (escape[1]) {
        case 'u': {
            uint32_t c = unescape(&p, end);
            if (c == 0)
                return -1;
            to = put_utf8(to, c);
            break;
        }
        case 'b':
            *to++ = '\b';
            break;
        case 'f':
            *to++ = '\f';
            break;
        case 'n':
            *to++ = '\n';
            break;
        case 'r':
            *to++ = '\r';
            break;
        case 't':
            *to++ = '\t';
            break;
        default:
            *to++ = escape[1];
        }
        escape = memchr(p, '\\', (size_t)(end - p));
    }
    memcpy(to, p, (size_t)(end - p));
    to += end - p;
    *s = out;
    *n = (size_t)(to - out);
    return 0;
}

/* Escapes of a string at p (behind its quote); behind the closing quote, or NULL. */
static const char *string_storable(const char *p, const char *end)
{
    while (*p != '"') {
        if (*p++ != '\\')
            continue;
        if (*p++ == 'u' && unescape(&p, end) == 0)
            return NULL;
    }
    return p + 1;
}

/* A number PostgreSQL's numeric can hold: finite as a double, and not endlessly small. */
static bool number_storable(const char *p, size_t n)
{
    char text[400];
    if (n >= sizeof(text))
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    const char *e = strpbrk(text, "eE");
    return isfinite(strtod(text, NULL)) && (!e || strtol(e + 1, NULL, 10) > -400);
}

bool ab_scan_storable(const struct ab_node *node)
{
    const char *p = node->raw, *end = p + node->raw_len;
    while (p < end) {
        if (*p == '"') {
            p = string_storable(p + 1, end);
            if (!p)
                return false;
        } else if (*p == '-' || is_digit(*p)) {
            const char *begin = p;
            while (p < end && (is_digit(*p) || strchr("+-.eE", *p)))
                p++;
            if (!number_storable(begin, (size_t)(p - begin)))
                return false;
        } else {
            p++;
        }
    }
    return true;
}
