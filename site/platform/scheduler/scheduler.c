/* scheduler.c - the batch systems that are built in */
#include "scheduler.h"

#include "base/cleanup.h"
#include <string.h>

static const struct scheduler *const systems[] = {&scheduler_local};

const struct scheduler *scheduler_find(const char *name, struct ab_error *err)
{
    for (size_t i = 0; i < AB_COUNT(systems); i++)
        if (strcmp(systems[i]->name, name) == 0)
            return systems[i];
    ab_fail(err, AB_EINVAL,
            "there is no scheduler `%s` (settings.yml: scheduler.type); known: local", name);
    return NULL;
}
