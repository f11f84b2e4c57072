/* paths.c - the other files of the installation, found from this program's own place
 *
 * <prefix>/bin, <prefix>/libexec/abies, <prefix>/share/abies, in a build tree as after installing.
 */
#include "spawn.h"

#include "cleanup.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char self_dir[PATH_MAX];

static void look_around(void)
{
    ssize_t n = readlink("/proc/self/exe", self_dir, sizeof(self_dir) - 1);
    self_dir[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self_dir, '/');
    if (slash)
        *slash = '\0';
}

const char *ab_self_dir(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_around);
    return self_dir;
}

/* Texts that were given out before: they live as long as the process. */
struct found {
    struct found *next;
    int mode;
    char *name, *path;
};

static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;
static struct found *found;

static const char *remember(const char *name, int mode, const char *const *dirs, size_t n)
{
    pthread_mutex_lock(&found_lock);
    const char *path = NULL;
    for (struct found *f = found; f && !path; f = f->next)
        if (f->mode == mode && strcmp(f->name, name) == 0)
            path = f->path;
    for (size_t i = 0; i < n && !path; i++) {
        char candidate[2 * PATH_MAX];
        snprintf(candidate, sizeof(candidate), "%s/%s", dirs[i], name);
        if (access(candidate, mode) < 0)
            continue;
        struct found *f = calloc(1, sizeof(*f));
        char *real = realpath(candidate, NULL);
        if (f && real && (f->name = strdup(name))) {
            f->mode = mode;
            f->path = real;
            f->next = found;
            found = f;
            path = real;
        } else {
            free(f);
            free(real);
        }
    }
    pthread_mutex_unlock(&found_lock);
    return path;
}

const char *ab_find_program(const char *name)
{
    const char *self = ab_self_dir();
    char bin[PATH_MAX + 32], bin2[PATH_MAX + 32], libexec[PATH_MAX + 32];
    snprintf(bin, sizeof(bin), "%s/../bin", self);
    snprintf(bin2, sizeof(bin2), "%s/../../bin", self);
    snprintf(libexec, sizeof(libexec), "%s/../libexec/abies", self);
    const char *dirs[] = {self, bin, libexec, bin2};
    return remember(name, X_OK, dirs, AB_COUNT(dirs));
}

const char *ab_find_share(const char *name)
{
    const char *self = ab_self_dir();
    char share[PATH_MAX + 32], share2[PATH_MAX + 32];
    snprintf(share, sizeof(share), "%s/../share/abies", self);
    snprintf(share2, sizeof(share2), "%s/../../share/abies", self);
    const char *dirs[] = {share, share2};
    return remember(name, R_OK, dirs, AB_COUNT(dirs));
}
