/* fuzz_route.c - method and path of a request: any bytes find one route, one page, or none */
#include "fuzz.h"

#include "gateway/route.h"
#include "schema/schema.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int started;
    struct ab_error err;
    if (!started++)
        FUZZ_CHECK(route_init(&err) == 0);
    const char *text = (const char *)data;
    const char *space = memchr(text, ' ', size < 16 ? size : 16);
    if (!space)
        return 0;
    const char *path = space + 1;
    size_t method_n = (size_t)(space - text), path_n = size - method_n - 1;
    struct route_match match, other;
    route_find(text, method_n, path, path_n, &match);
    FUZZ_CHECK(!match.route || match.page == PAGE_NONE);
    if (match.route) {
        FUZZ_CHECK(strlen(match.route->method) == method_n);
        FUZZ_CHECK(memcmp(match.route->method, text, method_n) == 0);
        FUZZ_CHECK(match.allow != 0);
        FUZZ_CHECK(match.id_at + match.id_n <= path_n && match.name_at + match.name_n <= path_n);
        FUZZ_CHECK(!memchr(path + match.id_at, '/', match.id_n));
        /* with the parameter in its place the pattern is this path, but for a slash at the end */
        char *pattern = malloc(strlen(match.route->path) + path_n + 2), *to = pattern;
        for (const char *p = match.route->path; *p; p++) {
            if (*p != '{') {
                *to++ = *p;
                continue;
            }
            memcpy(to, path + match.id_at, match.id_n);
            to += match.id_n;
            p = strchr(p, '}');
        }
        size_t n = (size_t)(to - pattern), shorter = n < path_n ? n : path_n;
        FUZZ_CHECK(n - shorter <= 1 && path_n - shorter <= 1
                   && memcmp(pattern, path, shorter) == 0);
        free(pattern);
    }
    /* a method that nobody knows gets the whole list for its 405, and no route */
    route_find("NONE", 4, path, path_n, &other);
    FUZZ_CHECK((other.allow & match.allow) == match.allow && !other.route);
    return 0;
}
