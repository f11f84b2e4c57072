/* figures.c - see figures.h */
#include "figures.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "run/metrics"
#define SUFFIX ".prom"
#define FAMILIES_MAX 512

struct ab_figures {
    char *path, *fresh; /* written there first */
    int64_t next_ms;
};

ab_figures_t *ab_figures_new(const struct ab_site *site, const char *name)
{
    AB_AUTO(ab_free) char *folder = ab_site_path(site, FOLDER);
    AB_AUTO(ab_buf_free) struct ab_buf path = {0}, fresh = {0};

    if (ab_mkdirs(folder, 0700, NULL) < 0)
        return NULL;
    ab_figures_t *self = calloc(1, sizeof(*self));
    ab_buf_printf(&path, "%s/%s" SUFFIX, folder, name);
    ab_buf_printf(&fresh, "%s/.%s" SUFFIX, folder, name);
    if (!self || path.failed || fresh.failed)
        abort();
    self->path = ab_buf_take(&path);
    self->fresh = ab_buf_take(&fresh);
    return self;
}

void ab_figures_destroy(ab_figures_t **self)
{
    if (!*self)
        return;
    (void)unlink((*self)->path);
    free((*self)->path);
    free((*self)->fresh);
    free(*self);
    *self = NULL;
}

int64_t ab_figures_due(const ab_figures_t *self, int64_t now_ms)
{
    if (!self)
        return AB_FIGURES_MS;
    return self->next_ms > now_ms ? self->next_ms - now_ms : 0;
}

/* No fsync: after a crash of the machine nobody misses them. */
void ab_figures_write(ab_figures_t *self, const struct ab_buf *text, int64_t now_ms)
{
    if (!self)
        return;
    self->next_ms = now_ms + AB_FIGURES_MS;
    if (text->failed || text->len == 0)
        return;
    int fd = open(self->fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    ssize_t n = write(fd, text->data, text->len);
    if (close(fd) == 0 && n == (ssize_t)text->len)
        (void)rename(self->fresh, self->path);
    else
        (void)unlink(self->fresh);
}

/* ---- merging */

struct family {
    const char *name; /* with its length: points into a text */
    size_t n;
    bool help, type; /* their lines are there */
    struct ab_buf head, samples;
};

struct families {
    struct family v[FAMILIES_MAX];
    size_t n;
};

static struct family *family_of(struct families *all, const char *name, size_t n)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].n == n && memcmp(all->v[i].name, name, n) == 0)
            return &all->v[i];
    if (all->n == FAMILIES_MAX || n == 0)
        return NULL;
    all->v[all->n] = (struct family){.name = name, .n = n};
    return &all->v[all->n++];
}

/* "name_bucket{" of family "name": its own samples, or those of a histogram. */
static bool belongs(const struct family *f, const char *line, size_t n)
{
    static const char *const endings[] = {"", "_bucket", "_sum", "_count"};

    if (n <= f->n || memcmp(line, f->name, f->n) != 0)
        return false;
    for (size_t i = 0; i < AB_COUNT(endings); i++) {
        size_t end = f->n + strlen(endings[i]);
        if (n > end && memcmp(line + f->n, endings[i], end - f->n) == 0
            && (line[end] == '{' || line[end] == ' '))
            return true;
    }
    return false;
}

static void take_line(struct families *all, struct family **now, const char *line, size_t n)
{
    bool help = n > 7 && memcmp(line, "# HELP ", 7) == 0,
         type = n > 7 && memcmp(line, "# TYPE ", 7) == 0;

    if (help || type) {
        const char *name = line + 7, *end = memchr(name, ' ', n - 7);
        struct family *f = *now = end ? family_of(all, name, (size_t)(end - name)) : NULL;
        if (!f || (help && f->help) || (type && f->type))
            return;
        f->help |= help;
        f->type |= type;
        ab_buf_add(&f->head, line, n);
        ab_buf_char(&f->head, '\n');
    } else if (*now && belongs(*now, line, n)) {
        ab_buf_add(&(*now)->samples, line, n);
        ab_buf_char(&(*now)->samples, '\n');
    }
}

void ab_figures_merge(const struct ab_buf *texts, size_t n, struct ab_buf *out)
{
    struct families *all = calloc(1, sizeof(*all));

    if (!all)
        abort();
    for (size_t i = 0; i < n; i++) {
        struct family *now = NULL;
        const char *at = texts[i].data, *end = at ? at + texts[i].len : at;
        while (at < end) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            if (!stop)
                break; /* half a line is none */
            take_line(all, &now, at, (size_t)(stop - at));
            at = stop + 1;
        }
    }
    for (size_t i = 0; i < all->n; i++) {
        ab_buf_add(out, all->v[i].head.data, all->v[i].head.len);
        ab_buf_add(out, all->v[i].samples.data, all->v[i].samples.len);
        ab_buf_free(&all->v[i].head);
        ab_buf_free(&all->v[i].samples);
    }
    free(all);
}

/* ---- the folder */

/* False: gone, or a dead process's (which is removed: its name is that of one process only). */
static bool is_fresh(int folder, const char *name)
{
    struct stat st;

    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return false;
    int64_t age_ms = ab_utc_us() / 1000 - (int64_t)st.st_mtim.tv_sec * 1000;
    if (age_ms < AB_FIGURES_STALE_MS)
        return true;
    (void)unlinkat(folder, name, 0);
    return false;
}

void ab_figures_gather(const struct ab_site *site, struct ab_buf *out)
{
    AB_AUTO(ab_free) char *path = ab_site_path(site, FOLDER);
    struct ab_buf texts[AB_FIGURES_FILES] = {0};
    size_t n = 0;
    DIR *folder = opendir(path);

    for (struct dirent *e; folder && n < AB_FIGURES_FILES && (e = readdir(folder));) {
        AB_AUTO(ab_buf_free) struct ab_buf file = {0};
        size_t len = strlen(e->d_name);
        if (len <= strlen(SUFFIX) || strcmp(e->d_name + len - strlen(SUFFIX), SUFFIX) != 0
            || e->d_name[0] == '.' || !is_fresh(dirfd(folder), e->d_name))
            continue;
        ab_buf_printf(&file, "%s/%s", path, e->d_name);
        if (ab_file_read(file.data, AB_FIGURES_BYTES, &texts[n], NULL) == 0)
            n++;
        else
            ab_buf_free(&texts[n]);
    }
    if (folder)
        closedir(folder);
    ab_figures_merge(texts, n, out);
    for (size_t i = 0; i < n; i++)
        ab_buf_free(&texts[i]);
}
