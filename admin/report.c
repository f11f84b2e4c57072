/* report.c - the lines of `check` and `doctor`, for people or as JSON */
#include "admin.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void report_begin(struct report *self, bool json)
{
    *self = (struct report){.json = json};
    if (json)
        fputs("[", stdout);
}

static void print_json(struct report *self, enum report_level level, const char *name,
                       const char *remedy, const char *detail)
{
    static const char *const levels[] = {"ok", "note", "broken"};
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_buf_str(&out, self->lines ? ",\n {\"name\":" : "\n {\"name\":");
    ab_buf_json_str(&out, name, strlen(name));
    ab_buf_printf(&out, ",\"ok\":%s,\"level\":\"%s\",\"detail\":",
                  level == REPORT_BROKEN ? "false" : "true", levels[level]);
    ab_buf_json_str(&out, detail, strlen(detail));
    ab_buf_str(&out, ",\"do\":");
    if (remedy)
        ab_buf_json_str(&out, remedy, strlen(remedy));
    else
        ab_buf_str(&out, "null");
    ab_buf_str(&out, "}");
    fputs(out.data ? out.data : "", stdout);
}

static void print(struct report *self, enum report_level level, const char *name,
                  const char *remedy, const char *detail)
{
    static const char *const words[] = {"ok     ", "note   ", "BROKEN "};
    self->broken += level == REPORT_BROKEN;
    if (self->json) {
        print_json(self, level, name, remedy, detail);
    } else {
        printf("%s %s%s%s\n", words[level], name, *detail ? ": " : "", detail);
        if (remedy)
            printf("        do: %s\n", remedy);
    }
    self->lines++;
}

void report_line(struct report *self, bool ok, const char *name, const char *format, ...)
{
    char detail[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    print(self, ok ? REPORT_OK : REPORT_BROKEN, name, NULL, detail);
}

void report_find(struct report *self, enum report_level level, const char *name, const char *remedy,
                 const char *format, ...)
{
    char detail[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    print(self, level, name, level == REPORT_OK ? NULL : remedy, detail);
}

int report_end(struct report *self)
{
    if (self->json)
        puts("\n]");
    else
        printf("%d of %d are well\n", self->lines - self->broken, self->lines);
    return self->broken ? 1 : 0;
}
