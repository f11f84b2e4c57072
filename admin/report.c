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

void report_line(struct report *self, bool ok, const char *name, const char *format, ...)
{
    char detail[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    self->broken += !ok;
    if (self->json) {
        AB_AUTO(ab_buf_free) struct ab_buf out = {0};
        ab_buf_str(&out, self->lines ? ",\n {\"name\":" : "\n {\"name\":");
        ab_buf_json_str(&out, name, strlen(name));
        ab_buf_printf(&out, ",\"ok\":%s,\"detail\":", ok ? "true" : "false");
        ab_buf_json_str(&out, detail, strlen(detail));
        ab_buf_str(&out, "}");
        fputs(out.data ? out.data : "", stdout);
    } else {
        printf("%s %s%s%s\n", ok ? "ok     " : "BROKEN ", name, *detail ? ": " : "", detail);
    }
    self->lines++;
}

int report_end(struct report *self)
{
    if (self->json)
        puts("\n]");
    else
        printf("%d of %d are well\n", self->lines - self->broken, self->lines);
    return self->broken ? 1 : 0;
}
