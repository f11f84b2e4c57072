/* node.c - the platforms that are built in */
#include "node.h"

#include "base/cleanup.h"

#include <string.h>

static const struct node_platform *const platforms[] = {&node_local};

const struct node_platform *node_platform_find(const char *name, struct ab_error *err)
{
    for (size_t i = 0; i < AB_COUNT(platforms); i++)
        if (strcmp(platforms[i]->name, name) == 0)
            return platforms[i];
    ab_fail(err, AB_EINVAL, "there is no compute node platform `%s`; known: local", name);
    return NULL;
}
