/* sweep.c - see sweep.h */
#include "sweep.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 64

static bool match_part(const char *pattern, size_t n, const char *part, size_t len)
{
    char p[NAME_MAX + 1], t[NAME_MAX + 1];

    if (n > NAME_MAX || len > NAME_MAX)
        return false;
    memcpy(p, pattern, n);
    p[n] = '\0';
    memcpy(t, part, len);
    t[len] = '\0';
    return fnmatch(p, t, FNM_PERIOD) == 0;
}

/* Part by part, with one place to come back to: the last "**". Linear in practice, never
 * exponential. */
bool sweep_match(const char *pattern, const char *path)
{
    const char *star = NULL, *again = NULL;

    while (*path) {
        size_t n = strcspn(pattern, "/"), len = strcspn(path, "/");
        if (n == 2 && pattern[0] == '*' && pattern[1] == '*') {
            star = pattern + 2 + (pattern[2] == '/');
            if (!*star)
                return true;
            again = path;
            pattern = star;
        } else if (n && match_part(pattern, n, path, len)) {
            pattern += n + (pattern[n] == '/');
            path += len + (path[len] == '/');
        } else if (star) {
            size_t skip = strcspn(again, "/");
            again += skip + (again[skip] == '/');
            path = again;
            pattern = star;
        } else {
            return false;
        }
    }
    return !*pattern || strcmp(pattern, "**") == 0;
}

static void close_dir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

static size_t sweep(int folder, const char *prefix, int depth, const char *const *patterns,
                    size_t n)
{
    AB_AUTO(close_dir) DIR *dir = fdopendir(dup(folder));
    size_t gone = 0;

    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        AB_AUTO(ab_buf_free) struct ab_buf path = {0};
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0
            || fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        ab_buf_printf(&path, "%s%s", prefix, entry->d_name);
        if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
            AB_AUTO(ab_close)
            int below =
                openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            ab_buf_char(&path, '/');
            ab_buf_char(&path, '\0');
            gone += below < 0 ? 0 : sweep(below, path.data, depth + 1, patterns, n);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            if (!sweep_match(patterns[i], path.data))
                continue;
            gone += unlinkat(folder, entry->d_name, 0) == 0;
            break;
        }
    }
    return gone;
}

size_t sweep_folder(int folder, const char *const *patterns, size_t n)
{
    return sweep(folder, "", 0, patterns, n);
}
