/* fake.h - services made of a few handlers, to test the skeleton with
 *
 * The verbs are real ones (the skeleton knows no others); those of the service that are not given
 * answer 500.
 */
#ifndef FAKE_H
#define FAKE_H

#include "db/db.h"
#include "schema/json.h"
#include "service/service.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* `verbs` end with {0}; they take the place of the real handlers of this service. */
void fake_open(struct ab_service *service, const char *name, const struct ab_verb *verbs);
void fake_close(struct ab_service *service);

/* A reply as JSON text; borrowed until the next call. */
const char *fake_json(const struct ab_buf *reply);
/* The same as a tree. */
const struct ab_value *fake_tree(ab_arena_t *arena, const struct ab_buf *reply);

#endif
