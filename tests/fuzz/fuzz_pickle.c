/* fuzz_pickle.c - pickles: what is accepted is a value within its bounds, and JSON can say it */
#include "fuzz.h"

#include "pickle/pickle.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf once = {0}, twice = {0};
    struct ab_error err = {0};
    const struct ab_value *v = ab_pickle_parse(arena, data, size, &err);

    FUZZ_CHECK(ab_arena_size(arena) < ((size_t)64 << 20));
    if (!v) {
        FUZZ_CHECK(err.code == AB_EINVAL && err.text[0]);
        return 0;
    }
    ab_value_write(&once, v);
    FUZZ_CHECK(!once.failed);
    v = ab_value_parse(arena, once.data, once.len, &err);
    FUZZ_CHECK(v);
    ab_value_write(&twice, v);
    FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    return 0;
}
