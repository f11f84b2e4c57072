/* sweep.h - delete files below a folder by patterns that come from an app's file */
#ifndef MODULES_SWEEP_H
#define MODULES_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

/* "*" and "?" within a name, "**" for any number of folders: "*.tmp"; as a whole part of the path
 * "**" also matches none. */
bool sweep_match(const char *pattern, const char *path);

/* Removes each file (or link, not what it points to) whose path below `folder` matches one of the
 * patterns. Links to folders are not entered. Number removed. */
size_t sweep_folder(int folder, const char *const *patterns, size_t n);

#endif
