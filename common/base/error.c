/* error.c - what went wrong */
#include "error.h"

#include "cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ab_code_kind(int code)
{
    switch (code) {
    case AB_EINVAL:
        return "bad_request";
    case AB_EAUTH:
        return "unauthorized";
    case AB_EDENIED:
        return "forbidden";
    case AB_ENOENT:
        return "not_found";
    case AB_EMETHOD:
        return "bad_method";
    case AB_ECONFLICT:
        return "conflict";
    case AB_EGONE:
        return "gone";
    case AB_ETOOBIG:
        return "too_big";
    case AB_ESCHEMA:
        return "invalid";
    case AB_ERATE:
        return "rate";
    case AB_EINTERNAL:
        return "internal";
    case AB_EUPSTREAM:
        return "upstream";
    case AB_EBUSY:
        return "busy";
    case AB_ETIMEOUT:
        return "timeout";
    default:
        return "error";
    }
}

/* Copy at most size - 1 bytes, and no half character at the end. */
static void copy_cut(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    if (len >= size) {
        len = size - 1;
        while (len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80)
            len--;
    }
    memcpy(out, text, len);
    out[len] = '\0';
}

/* The arguments may point into *err, so the text is complete before anything is overwritten. */
static int fail_text(struct ab_error *err, int code, const char *kind, const char *text)
{
    char own_kind[sizeof(err->kind)];
    copy_cut(own_kind, sizeof(own_kind), kind ? kind : ab_code_kind(code));
    *err = (struct ab_error){.code = code};
    memcpy(err->kind, own_kind, sizeof(own_kind));
    copy_cut(err->text, sizeof(err->text), text);
    return -1;
}

int(ab_fail)(struct ab_error *err, int code, const char *format, ...)
{
    if (!err)
        return -1;
    char text[sizeof(err->text) + 8];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return fail_text(err, code, NULL, text);
}

int(ab_fail_kind)(struct ab_error *err, int code, const char *kind, const char *format, ...)
{
    if (!err)
        return -1;
    char text[sizeof(err->text) + 8];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return fail_text(err, code, kind, text);
}

int(ab_fail_errno)(struct ab_error *err, int code, const char *format, ...)
{
    int number = errno;
    if (!err)
        return -1;
    char text[sizeof(err->text) + 8], why[128];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(text))
        snprintf(text + n, sizeof(text) - (size_t)n, ": %s", strerror_r(number, why, sizeof(why)));
    fail_text(err, code, NULL, text);
    errno = number;
    return -1;
}

int(ab_fail_within)(struct ab_error *err, const char *format, ...)
{
    if (!err)
        return -1;
    char text[sizeof(err->text) + 8];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(text))
        snprintf(text + n, sizeof(text) - (size_t)n, ": %s", err->text);
    copy_cut(err->text, sizeof(err->text), text);
    return -1;
}

int ab_errno_code(int number)
{
    static const int passing[] = {ENOSPC, EDQUOT, EIO,       ESTALE,    EMFILE,
                                  ENFILE, ENOMEM, ETIMEDOUT, EHOSTDOWN, EAGAIN};
    for (size_t i = 0; i < AB_COUNT(passing); i++)
        if (passing[i] == number)
            return AB_EBUSY;
    return AB_EINVAL;
}
