/* fuzz.h - what every target begins with
 *
 * A target is one function: it feeds bytes to a reader and checks that what was accepted survives a
 * round trip. With AB_FUZZ it is linked with libFuzzer:
 *
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/tests/fuzz_json -max_total_time=60 /tmp/new tests/fuzz/corpus/json
 *
 * otherwise with replay.c, which runs it over its corpus as a unit test. A crash that was found is
 * added to the corpus.
 */
#ifndef AB_FUZZ_H
#define AB_FUZZ_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assertion that stays in every build. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
