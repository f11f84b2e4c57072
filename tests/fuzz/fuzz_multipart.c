/* fuzz_multipart.c - a form of several parts: whatever is accepted is a form of plain characters */
#include "fuzz.h"
#include "gateway/multipart.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The first line is the Content-Type, the rest the body. */
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    struct boundary b = multipart_boundary((const char *)data, n);
    struct ab_buf out = {0};

    if (b.n >= sizeof(b.text))
        abort();
    if (end && multipart_to_form(&b, (const char *)end + 1, size - n - 1, &out) == 0)
        for (size_t i = 0; i < out.len; i++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%=&",
                        out.data[i]))
                abort();
    ab_buf_free(&out);
    return 0;
}
