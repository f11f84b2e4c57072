/* fuzz_http.c - the request head: any bytes, and the same bytes in two pieces, give one answer */
#include "http/head.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_span(const struct ab_http_head *head, struct ab_http_span span)
{
    if ((size_t)span.at + span.n > head->length)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy of exactly this size, so that the sanitizer sees one byte too many. */
    char *bytes = calloc(size ? size : 1, 1);
    if (!bytes)
        return 0;
    if (size)
        memcpy(bytes, data, size);

    struct ab_http_head whole = {0}, pieces = {0};
    int rc = ab_http_head_parse(&whole, bytes, size);
    int again = 0;
    size_t step = size ? 1 + data[0] % 7 : 1;
    for (size_t have = step;; have += step) {
        again = ab_http_head_parse(&pieces, bytes, have < size ? have : size);
        if (again != 0 || have >= size)
            break;
    }
    if (rc != again || whole.status != pieces.status || whole.length != pieces.length
        || whole.content_length != pieces.content_length || whole.close != pieces.close)
        abort();
    if (rc == 1) {
        if (whole.length > size || whole.content_length < 0)
            abort();
        check_span(&whole, whole.method);
        check_span(&whole, whole.target);
        check_span(&whole, whole.path);
        check_span(&whole, whole.query);
        for (int i = 0; i < AB_H_FIELDS; i++)
            check_span(&whole, whole.field[i]);
        if (bytes[whole.target.at] != '/' || memchr(bytes, 0, whole.length))
            abort();
    }
    free(bytes);
    return 0;
}
