/* claims.c - read a flat JSON object of strings and integers */
#include "claims.h"

#include "base/str.h"
#include <string.h>

struct reader {
    const char *at, *end;
};

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static int take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return -1;
    r->at++;
    return 0;
}

static int take_hex4(struct reader *r, uint32_t *out)
{
    if (r->end - r->at < 4)
        return -1;
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v << 4 | (uint32_t)digit;
    }
    *out = v;
    return 0;
}

/* Behind "\u": one code point, pairs joined, as UTF-8. NUL and half pairs are refused. */
static int take_unicode(struct reader *r, char utf8[4], size_t *n)
{
    uint32_t c, low;
    if (take_hex4(r, &c) < 0 || c == 0 || (c >= 0xDC00 && c <= 0xDFFF))
        return -1;
    if (c >= 0xD800 && c <= 0xDBFF) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return -1;
        r->at += 2;
        if (take_hex4(r, &low) < 0 || low < 0xDC00 || low > 0xDFFF)
            return -1;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c < 0x80) {
        utf8[0] = (char)c, *n = 1;
    } else if (c < 0x800) {
        utf8[0] = (char)(0xC0 | c >> 6), utf8[1] = (char)(0x80 | (c & 63)), *n = 2;
    } else if (c < 0x10000) {
        utf8[0] = (char)(0xE0 | c >> 12), utf8[1] = (char)(0x80 | (c >> 6 & 63));
        utf8[2] = (char)(0x80 | (c & 63)), *n = 3;
    } else {
        utf8[0] = (char)(0xF0 | c >> 18), utf8[1] = (char)(0x80 | (c >> 12 & 63));
        utf8[2] = (char)(0x80 | (c >> 6 & 63)), utf8[3] = (char)(0x80 | (c & 63)), *n = 4;
    }
    return 0;
}

static int take_escape(struct reader *r, char utf8[4], size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return -1;
    char c = *r->at++;
    if (c == 'u')
        return take_unicode(r, utf8, n);
    const char *known = c ? strchr(from, c) : NULL;
    if (!known)
        return -1;
    utf8[0] = to[known - from], *n = 1;
    return 0;
}

static int take_string(struct reader *r, char *out, size_t cap)
{
    if (take(r, '"') < 0)
        return -1;
    size_t len = 0;
    for (;;) {
        if (r->at == r->end)
            return -1;
        char utf8[4] = {*r->at++};
        size_t n = 1;
        if (utf8[0] == '"')
            break;
        if ((unsigned char)utf8[0] < 0x20)
            return -1;
        if (utf8[0] == '\\' && take_escape(r, utf8, &n) < 0)
            return -1;
        if (len + n >= cap)
            return -1;
        memcpy(out + len, utf8, n);
        len += n;
    }
    out[len] = '\0';
    return ab_utf8_ok(out, len) ? 0 : -1;
}

/* JSON's grammar of an integer: no plus, no leading zero; and nothing that makes it a double. */
static int take_int(struct reader *r, int64_t *out)
{
    const char *from = r->at;
    if (r->at < r->end && *r->at == '-')
        r->at++;
    const char *digits = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    if (r->at - digits > 1 && *digits == '0')
        return -1;
    if (r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E'))
        return -1;
    return ab_parse_i64(from, (size_t)(r->at - from), INT64_MIN, INT64_MAX, out);
}

static const struct claim *find(const struct claims *self, const char *name)
{
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->v[i].name, name) == 0)
            return &self->v[i];
    return NULL;
}

static int take_member(struct reader *r, struct claims *out)
{
    if (out->n == CLAIMS_MAX)
        return -1;
    struct claim *claim = &out->v[out->n];
    if (take_string(r, claim->name, sizeof(claim->name)) < 0 || find(out, claim->name)
        || take(r, ':') < 0)
        return -1;
    skip_space(r);
    claim->is_int = r->at < r->end && *r->at != '"';
    if (claim->is_int ? take_int(r, &claim->i) : take_string(r, claim->text, sizeof(claim->text)))
        return -1;
    out->n++;
    return 0;
}

int claims_parse(const char *json, size_t len, struct claims *out)
{
    struct reader r = {json, json + len};
    out->n = 0;
    if (take(&r, '{') < 0)
        return -1;
    if (take(&r, '}') < 0) {
        do {
            if (take_member(&r, out) < 0)
                return -1;
        } while (take(&r, ',') == 0);
        if (take(&r, '}') < 0)
            return -1;
    }
    skip_space(&r);
    return r.at == r.end ? 0 : -1;
}

const char *claims_text(const struct claims *self, const char *name)
{
    const struct claim *claim = find(self, name);
    return claim && !claim->is_int ? claim->text : NULL;
}

int claims_int(const struct claims *self, const char *name, int64_t *out)
{
    const struct claim *claim = find(self, name);
    if (!claim || !claim->is_int)
        return -1;
    *out = claim->i;
    return 0;
}
