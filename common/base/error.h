/* error.h - what went wrong, said once and for the person who made the request
 *
 * Fallible functions return 0 or -1 (constructors NULL) and take `struct ab_error *err` last.
 * The code is the HTTP status that the failure becomes. The text names the thing, the cause and
 * what to do differently. Library code fills errors and never logs them.
 */
#ifndef AB_ERROR_H
#define AB_ERROR_H

#include <stddef.h>
#include <stdint.h>

enum ab_code {
    AB_EINVAL = 400,  /* asks for something impossible */
    AB_EAUTH = 401,   /* who are you? */
    AB_EDENIED = 403, /* not with this token */
    AB_ENOENT = 404,  /* not there, or not yours */
    AB_EMETHOD = 405,
    AB_ECONFLICT = 409, /* lost lease */
    AB_EGONE = 410,     /* was there, and is kept no longer */
    AB_ETOOBIG = 413,
    AB_ESCHEMA = 422, /* does not match its description */
    AB_ERATE = 429,
    AB_EINTERNAL = 500,
    AB_EUPSTREAM = 502,
    AB_EBUSY = 503, /* try again: `retry_sec` */
    AB_ETIMEOUT = 504,
};

/* One entry of a bulk call that is to blame. */
struct ab_error_item {
    int64_t index;      /* place in the request's list, from 0; -1 unknown */
    int64_t id;         /* its id, 0 if it has none */
    const char *reason; /* borrowed: lives as long as the call's arena */
};

struct ab_error {
    int code;      /* enum ab_code; 0 no error */
    char kind[32]; /* machine-readable, e.g. "not_found" (an owned row), "bad_reference" */
    char text[480];
    int retry_sec;               /* for AB_EBUSY and AB_ERATE; 0 = 1 s */
    struct ab_error_item *items; /* borrowed from the call's arena; NULL if none */
    size_t n_items;
};

/* Fill `err` (NULL is allowed) and return -1. The kind is the code's default ("not_found" for
 * AB_ENOENT, ...). A text that is too long is cut at a character boundary. */
int ab_fail(struct ab_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with a kind of its own. */
int ab_fail_kind(struct ab_error *err, int code, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ab_fail with ": <strerror(errno)>" behind the text. */
int ab_fail_errno(struct ab_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "<text>: " in front of the text that is there; returns -1. */
int ab_fail_within(struct ab_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Lets the compiler see that the value is -1, so that it knows what was not set on the way. */
#define ab_fail(...)                                                                               \
    __extension__({                                                                                \
        (void)(ab_fail)(__VA_ARGS__);                                                              \
        -1;                                                                                        \
    })
#define ab_fail_kind(...)                                                                          \
    __extension__({                                                                                \
        (void)(ab_fail_kind)(__VA_ARGS__);                                                         \
        -1;                                                                                        \
    })
#define ab_fail_errno(...)                                                                         \
    __extension__({                                                                                \
        (void)(ab_fail_errno)(__VA_ARGS__);                                                        \
        -1;                                                                                        \
    })
#define ab_fail_within(...)                                                                        \
    __extension__({                                                                                \
        (void)(ab_fail_within)(__VA_ARGS__);                                                       \
        -1;                                                                                        \
    })

/* AB_EBUSY for an errno that passes by itself or with an administrator's help (a full disk, no
 * descriptors left, a file server that is away): no reason to fail a job. Else AB_EINVAL. */
int ab_errno_code(int number);

/* "not_found" for 404 and so on; "error" for what has no name. */
const char *ab_code_kind(int code);

#endif
