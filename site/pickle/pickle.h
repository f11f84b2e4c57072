/* pickle.h - the plain data of a Python pickle, and nothing else
 *
 * A pickle is a program for a small stack machine whose instructions can call whatever Python can
 * import. This reader knows only those that build dict, list, tuple, str, int, float, bool and
 * None, in protocols 0 to 5; it has no way to do anything else. The first other instruction ends
 * it, and the error names that instruction, what it wanted and what to send instead.
 *
 * Small pickles can mean large values (a list of ten times the same list of ten times ...) or
 * endless ones: what comes out is bounded in depth, values and bytes.
 */
#ifndef AB_PICKLE_H
#define AB_PICKLE_H

#include "base/arena.h"
#include "base/error.h"
#include "schema/json.h"
#include <stddef.h>

#define AB_PICKLE_BYTES ((size_t)512 * 1024) /* longest pickle, and longest sum of texts in it */
#define AB_PICKLE_VALUES 100000
#define AB_PICKLE_DEPTH 64    /* as free JSON */
#define AB_PICKLE_DIGITS 4300 /* of an int: as far as Python prints one */

/* The value in the arena, or NULL with AB_EINVAL. Tuples become lists. An int beyond 64 bits
 * becomes its decimal digits as text, so that no digit is lost. Keys are texts; int, bool and None
 * as keys become text as in JSON. Of equal keys the last one counts (ab_value_get). */
const struct ab_value *ab_pickle_parse(ab_arena_t *arena, const void *bytes, size_t len,
                                       struct ab_error *err);

#endif
