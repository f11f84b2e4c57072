/* cmd_logs.c - logs: what the processes of the local centre wrote */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/opt.h"
#include "base/str.h"
#include "centre/centre.h"
#include "cli.h"
#include "output.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 128
#define TAIL_BYTES ((off_t)4 << 20)

struct log_file {
    char *name; /* "jobs.0" */
    int fd;
    off_t at;
    bool middle; /* of a line: no name in front of the rest */
};

struct logs {
    struct log_file files[FILES_MAX];
    size_t n;
    bool names, json;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct log_file *)a)->name, ((const struct log_file *)b)->name);
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        size_t n = strlen(argv[i]);
        if (strncmp(name, argv[i], n) == 0 && (!name[n] || name[n] == '.'))
            return true;
    }
    return argc == 0;
}

static void open_files(struct logs *self, const char *folder, ab_arena_t *arena, int argc,
                       char **argv)
{
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir)) && self->n < FILES_MAX;) {
        size_t len = strlen(e->d_name);
        if (!ab_str_ends(e->d_name, ".log"))
            continue;
        char *name = ab_strndup(arena, e->d_name, len - 4);
        if (!wanted(name, argc, argv))
            continue;
        int fd = open(ab_printf(arena, "%s/%s", folder, e->d_name), O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            self->files[self->n++] = (struct log_file){.name = name, .fd = fd};
    }
    if (dir)
        closedir(dir);
    qsort(self->files, self->n, sizeof(self->files[0]), by_name);
}

static void print_line(struct logs *self, struct log_file *f, const char *line, size_t len,
                       bool whole)
{
    if (self->json) {
        AB_AUTO(ab_buf_free) struct ab_buf out = {0};
        ab_buf_str(&out, "{\"process\":");
        ab_buf_json_str(&out, f->name, strlen(f->name));
        ab_buf_str(&out, ",\"line\":");
        ab_buf_json_str(&out, line, len);
        printf("%s}\n", out.data);
        return;
    }
    if (self->names && !f->middle)
        printf("%-12s ", f->name);
    char copy[4200];
    snprintf(copy, sizeof(copy), "%.*s", (int)len, line);
    for (char *p = copy; *p; p++)
        if (*p == '\t')
            *p = ' ';
    print_clean(stdout, copy);
    if (whole)
        putchar('\n');
    f->middle = !whole;
}

/* What stands behind f->at. */
static void print_new(struct logs *self, struct log_file *f)
{
    char piece[4096];
    struct stat st;
    if (fstat(f->fd, &st) == 0 && st.st_size < f->at)
        f->at = 0; /* it was rotated */
    for (ssize_t n; (n = pread(f->fd, piece, sizeof(piece), f->at)) > 0;) {
        const char *end = memrchr(piece, '\n', (size_t)n);
        if (!end && n < (ssize_t)sizeof(piece))
            return; /* half a line: the rest is on its way */
        size_t use = end ? (size_t)(end - piece) + 1 : (size_t)n;
        for (const char *p = piece; p < piece + use;) {
            const char *nl = memchr(p, '\n', (size_t)(piece + use - p));
            size_t len = nl ? (size_t)(nl - p) : (size_t)(piece + use - p);
            print_line(self, f, p, len, nl != NULL);
            p += len + (nl != NULL);
        }
        f->at += (off_t)use;
    }
}

/* Where the last `lines` lines begin. */
static void seek_tail(struct log_file *f, int64_t lines)
{
    struct stat st;
    if (fstat(f->fd, &st) < 0)
        return;
    off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    size_t len = (size_t)(st.st_size - from);
    AB_AUTO(ab_free) char *text = malloc(len + 1);
    ssize_t n = text ? pread(f->fd, text, len, from) : 0;
    f->at = st.st_size;
    for (const char *p = text + n; n > 0 && p > text; p--) {
        if (p[-1] == '\n' && p < text + n && lines-- <= 1) {
            f->at = from + (p - text);
            return;
        }
    }
    f->at = lines > 0 ? from : f->at;
}

static int follow(struct logs *self, const char *folder, struct ab_error *err)
{
    AB_AUTO(ab_close) int notify = inotify_init1(IN_CLOEXEC);
    char space[8192] __attribute__((aligned(8)));
    if (notify < 0 || inotify_add_watch(notify, folder, IN_MODIFY) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot follow the files in %s", folder);
    do {
        for (size_t i = 0; i < self->n; i++)
            print_new(self, &self->files[i]);
        fflush(stdout);
    } while (read(notify, space, sizeof(space)) > 0 || errno == EINTR);
    return 0;
}

int cmd_logs(int argc, char **argv, struct ab_error *err)
{
    struct logs *self = calloc(1, sizeof(*self));
    const char *home = NULL;
    bool go_on = false, json = false;
    int64_t lines = 20;
    const struct ab_opt options[] = {
        AB_OPT_INT('n', "lines", &lines, "N", "the last N lines of each process [20]"),
        AB_OPT_FLAG('f', "follow", &go_on, "go on with what is written from now on"),
        AB_OPT_TEXT(0, "home", &home, "FOLDER",
                    "the centre's folder [ABIES_HOME, ~/.abies/centre]"),
        AB_OPT_FLAG('j', "json", &json, "print a JSON object for each line"),
        {0},
    };
    int rc = ab_opt_parse("abies logs", "[NAME...] [OPTIONS]",
                          "Show what the processes of the local centre wrote.\n\nNAME is a process "
                          "(jobs.0), all of a kind (jobs, gateway, "
                          "postgres), or supervisor; none shows all.\n\n  abies logs -f gateway",
                          options, &argc, &argv, err);
    AB_AUTO(centre_destroy) struct centre *c = rc == 0 ? centre_load(home, err) : NULL;
    if (!self || rc != 0 || !c) {
        free(self);
        return rc == 1 ? 0 : -1;
    }
    const char *folder = centre_path(c, "log");
    open_files(self, folder, c->arena, argc, argv);
    self->names = self->n > 1;
    self->json = json;
    rc = self->n > 0
             ? 0
             : ab_fail(err, AB_ENOENT, "there is no log%s%s in %s; `abies status` shows the names",
                       argc > 0 ? " of " : "", argc > 0 ? argv[0] : "", folder);
    for (size_t i = 0; i < self->n; i++) {
        seek_tail(&self->files[i], lines);
        print_new(self, &self->files[i]);
    }
    if (rc == 0 && go_on)
        rc = follow(self, folder, err);
    for (size_t i = 0; i < self->n; i++)
        ab_close(&self->files[i].fd);
    free(self);
    return rc;
}
