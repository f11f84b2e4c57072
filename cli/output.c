/* output.c - tables, progress and questions */
#include "output.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define GAP 2
#define NARROWEST 6
#define COLUMNS_MAX 32
#define PROGRESS_EVERY_MS 100

int terminal_width(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int64_t n;
    if (columns && ab_parse_i64(columns, strlen(columns), 20, 10000, &n) == 0)
        return (int)n;
    if (!isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col : 80;
}

/* Bytes of the character at p: 0 at the end, negative (of as many bytes) if it must not be shown.
 */
static int character(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (!*p)
        return 0;
    if (*p < 0x80)
        return *p < 0x20 || *p == 0x7F ? -1 : 1;
    int n = *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : 4;
    for (int i = 1; i < n; i++)
        if (!p[i])
            return -1;
    if (!ab_utf8_ok(p, (size_t)n))
        return -1;
    return *p == 0xC2 && p[1] < 0xA0 ? -2 : n; /* the other control characters, U+0080 to U+009F */
}

static size_t width_of(const char *text)
{
    size_t width = 0;
    for (int n; (n = character(text)); text += abs(n))
        width++;
    return width;
}

/* At most `most` characters; what is longer ends with an ellipsis. The number written. */
static size_t print_cut(FILE *out, const char *text, size_t most)
{
    size_t width = width_of(text), done = 0, keep = width > most ? most - 1 : width;
    for (int n; done < keep && (n = character(text)); text += abs(n), done++) {
        if (n < 0)
            fputc('?', out);
        else
            fwrite(text, 1, (size_t)n, out);
    }
    if (width > most) {
        fputs("\u2026", out);
        done++;
    }
    return done;
}

void print_clean(FILE *out, const char *text)
{
    (void)print_cut(out, text, SIZE_MAX);
}

void print_wrapped(FILE *out, const char *text, int indent, int columns)
{
    size_t room = columns > indent ? (size_t)(columns - indent) : SIZE_MAX, used = 0;
    AB_AUTO(ab_free) char *copy = strdup(text);
    for (char *rest = copy, *word; (word = strsep(&rest, " "));) {
        size_t width = width_of(word);
        bool breaks = used > 0 && width + 1 > room - used;
        if (breaks)
            fputc('\n', out);
        if (used == 0 || breaks)
            fprintf(out, "%*s", indent, "");
        else
            fputc(' ', out);
        used = breaks || used == 0 ? 0 : used + 1;
        print_clean(out, word);
        used += width < room - used ? width : room - used;
    }
    fputc('\n', out);
}

void table_begin(struct table *self, ab_arena_t *arena, const char *const *heads, size_t n)
{
    *self = (struct table){.arena = arena, .columns = n > COLUMNS_MAX ? COLUMNS_MAX : n};
    table_add(self, heads);
}

void table_add(struct table *self, const char *const *cells)
{
    size_t used = self->rows * self->columns;
    if (used + self->columns > self->cap) {
        size_t cap = self->cap ? 2 * self->cap : 32 * self->columns;
        const char **grown = ab_alloc(self->arena, cap, sizeof(*grown));
        if (used > 0)
            memcpy(grown, self->cells, used * sizeof(*grown));
        self->cells = grown;
        self->cap = cap;
    }
    for (size_t i = 0; i < self->columns; i++)
        self->cells[used + i] = ab_strdup(self->arena, cells[i] ? cells[i] : "");
    self->rows++;
}

static void fit(size_t *widths, size_t n, int terminal)
{
    for (;;) {
        size_t total = 0, widest = 0;
        for (size_t i = 0; i < n; i++) {
            total += widths[i] + (i ? GAP : 0);
            if (widths[i] > widths[widest])
                widest = i;
        }
        if (terminal <= 0 || total <= (size_t)terminal || widths[widest] <= NARROWEST)
            return;
        widths[widest]--;
    }
}

static void print_row(const struct table *self, size_t row, const size_t *widths, FILE *out)
{
    size_t owed = 0; /* blanks in front of the next cell: none at the end of a line */
    for (size_t i = 0; i < self->columns; i++) {
        const char *cell = self->cells[row * self->columns + i];
        size_t w = width_of(cell), pad = w < widths[i] ? widths[i] - w : 0;
        bool right = self->right >> i & 1;
        owed += right ? pad : 0;
        if (*cell) {
            fprintf(out, "%*s", (int)owed, "");
            (void)print_cut(out, cell, widths[i]);
            owed = 0;
        }
        owed += (right ? 0 : pad) + GAP;
    }
    fputc('\n', out);
}

void table_print(const struct table *self, FILE *out, int width)
{
    size_t widths[COLUMNS_MAX] = {0};
    for (size_t r = 0; r < self->rows; r++)
        for (size_t i = 0; i < self->columns; i++) {
            size_t w = width_of(self->cells[r * self->columns + i]);
            widths[i] = w > widths[i] ? w : widths[i];
        }
    fit(widths, self->columns, width);
    for (size_t r = 0; r < self->rows; r++)
        print_row(self, r, widths, out);
}

static bool progress_shown;
static int64_t progress_last_ms;

void progress(const char *format, ...)
{
    int64_t now = ab_now_ms();
    char line[256];
    if (!isatty(STDERR_FILENO) || (progress_shown && now - progress_last_ms < PROGRESS_EVERY_MS))
        return;
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    struct winsize size = {.ws_col = 80};
    (void)ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    fputs("\r\033[K", stderr);
    (void)print_cut(stderr, line, size.ws_col > 2 ? size.ws_col - 1u : 79);
    fflush(stderr);
    progress_shown = true;
    progress_last_ms = now;
}

void progress_end(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}

const char *ask_line(ab_arena_t *arena, const char *question, bool secret, struct ab_error *err)
{
    struct termios before, quiet;
    AB_AUTO(ab_close) int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (tty < 0) {
        ab_fail(err, AB_EINVAL,
                "there is no terminal to ask for `%s`; give it by an option (see --help)",
                question);
        return NULL;
    }
    progress_end();
    dprintf(tty, "%s: ", question);
    bool hidden = secret && tcgetattr(tty, &before) == 0;
    if (hidden) {
        quiet = before;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        (void)tcsetattr(tty, TCSAFLUSH, &quiet);
    }
    char line[1024];
    size_t n = 0;
    ssize_t got = 0;
    while (n < sizeof(line) - 1
           && ((got = read(tty, line + n, 1)) == 1 || (got < 0 && errno == EINTR))) {
        if (got == 1 && line[n++] == '\n')
            break;
    }
    if (hidden) {
        (void)tcsetattr(tty, TCSAFLUSH, &before);
        dprintf(tty, "\n");
    }
    if (n == 0) {
        ab_fail(err, AB_EINVAL, "nothing was entered for `%s`", question);
        return NULL;
    }
    const char *answer = ab_strndup(arena, line, line[n - 1] == '\n' ? n - 1 : n);
    explicit_bzero(line, sizeof(line));
    return answer;
}

int ask_yes(struct ab_error *err, const char *format, ...)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    char question[512];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(question, sizeof(question) - 8, format, ap);
    va_end(ap);
    (void)n;
    if (!isatty(STDIN_FILENO))
        return ab_fail(err, AB_EINVAL, "%s There is no terminal to ask: add --yes", question);
    strncat(question, " [y/N]", sizeof(question) - strlen(question) - 1);
    const char *answer = ask_line(arena, question, false, err);
    if (answer && (strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0))
        return 0;
    return ab_fail(err, AB_EINVAL, "nothing was done");
}

const char *short_time(ab_arena_t *arena, double seconds)
{
    if (seconds < 0)
        seconds = 0;
    if (seconds < 10)
        return ab_printf(arena, "%.1f s", seconds);
    if (seconds < 120)
        return ab_printf(arena, "%.0f s", seconds);
    if (seconds < 7200)
        return ab_printf(arena, "%.0f min", seconds / 60);
    if (seconds < 172800)
        return ab_printf(arena, "%.0f h", seconds / 3600);
    return ab_printf(arena, "%.0f d", seconds / 86400);
}
