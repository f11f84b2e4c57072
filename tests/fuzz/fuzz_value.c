/* fuzz_value.c - JSON text: whatever another parser reads, ours reads; what ours reads it writes
 * and reads again */
#include "fuzz.h"

#include "schema/json.h"
#include <jansson.h>
#include <string.h>

/* Deepest nesting outside of strings. */
static int depth_of(const char *text, size_t len)
{
    int depth = 0, deepest = 0;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && (text[i] == '[' || text[i] == '{') && ++depth > deepest)
            deepest = depth;
        else if (!quoted && (text[i] == ']' || text[i] == '}'))
            depth--;
    }
    return deepest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf once = {0}, twice = {0};
    struct ab_error err;
    const struct ab_value *v = ab_value_parse(arena, text, size, &err);
    json_t *theirs = json_loadb(text, size, JSON_DECODE_ANY, NULL);
    if (theirs && !memchr(text, '\0', size)) /* it takes NUL for the end */
        FUZZ_CHECK(v || depth_of(text, size) > 64);
    json_decref(theirs);
    if (!v)
        return 0;
    ab_value_write(&once, v);
    v = ab_value_parse(arena, once.data, once.len, &err);
    FUZZ_CHECK(v);
    ab_value_write(&twice, v);
    FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    theirs = json_loadb(once.data, once.len, JSON_DECODE_ANY, NULL);
    FUZZ_CHECK(theirs);
    json_decref(theirs);
    return 0;
}
