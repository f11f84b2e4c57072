/* apprun.c - the starters that are built in */
#include "apprun.h"

#include "base/cleanup.h"

#include <string.h>

static const struct apprun *const starters[] = {&apprun_local, &apprun_mpich};

const struct apprun *apprun_find(const char *name, struct ab_error *err)
{
    for (size_t i = 0; i < AB_COUNT(starters); i++)
        if (strcmp(starters[i]->name, name) == 0)
            return starters[i];
    ab_fail(err, AB_EINVAL, "there is no application launcher `%s`; known: local, mpich", name);
    return NULL;
}
