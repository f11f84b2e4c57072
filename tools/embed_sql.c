/* embed_sql.c - turns .sql files into C constants at build time
 *
 *     embed_sql IN.sql OUT_PREFIX              named blocks: OUT_PREFIX.c and OUT_PREFIX.h
 *     embed_sql --whole OUT_PREFIX FILE...     whole files, as they are: migrations and roles
 *
 * A block begins at `-- name: x` and ends at the next one. `:param` becomes $n (the same name, the
 * same n); comments go, quoted text and `::` casts are left alone. So the file still runs in psql
 * with -v, and the text that is prepared is the text that was tried by hand.
 *
 * A host tool: it runs before anything else is built and uses nothing of the tree.
 */
#include "embed.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void stop(const char *path, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", path, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void add(struct text *t, const char *bytes, size_t n)
{
    if (t->len + n + 1 > t->cap) {
        t->cap = (t->len + n + 1) * 2;
        t->data = realloc(t->data, t->cap);
        if (!t->data) {
            fputs("embed_sql: out of memory\n", stderr);
            exit(1);
        }
    }
    memcpy(t->data + t->len, bytes, n);
    t->len += n;
    t->data[t->len] = '\0';
}

struct text read_file(const char *path)
{
    struct text t = {0};
    char piece[65536];
    size_t n;
    FILE *in = fopen(path, "rb");
    if (!in)
        stop(path, 0, "cannot read: %s", strerror(errno));
    add(&t, "", 0);
    while ((n = fread(piece, 1, sizeof(piece), in)) > 0)
        add(&t, piece, n);
    if (ferror(in))
        stop(path, 0, "cannot read: %s", strerror(errno));
    fclose(in);
    if (memchr(t.data, '\0', t.len))
        stop(path, 0, "contains a NUL byte");
    return t;
}

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

static FILE *create(const char *prefix, const char *suffix, char path[4096])
{
    if (snprintf(path, 4096, "%s%s", prefix, suffix) >= 4096)
        stop(prefix, 0, "the name is too long");
    FILE *out = fopen(path, "wb");
    if (!out)
        stop(path, 0, "cannot write: %s", strerror(errno));
    return out;
}

static void finish(FILE *out, const char *path)
{
    if (ferror(out) || fclose(out) != 0)
        stop(path, 0, "cannot write: %s", strerror(errno));
}

static void write_string(FILE *out, const char *text, size_t len)
{
    fputs("\n    \"", out);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n' && i + 1 < len)
            fputs("\\n\"\n    \"", out);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(out, "\\%03o", c);
        else if (c == '?')
            fputs("\\?", out); /* no trigraphs */
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void write_names(FILE *out, const char *kind, const char *block,
                        char names[][NAME_MAX_LEN + 1], int n)
{
    fprintf(out, "static const char *const %s_%s[] = {", kind, block);
    for (int i = 0; i < n; i++)
        fprintf(out, "\"%s\", ", names[i]);
    fputs("NULL};\n", out);
}

/* The list's name: lease.sql -> lease_sql. */
static void list_name(const char *path, char out[NAME_MAX_LEN + 8])
{
    struct source s = {path, base_name(path), NULL, 1};
    s.end = s.at + strlen(s.at);
    if (!take_word(&s, out, "the file's name") || isdigit((unsigned char)out[0]))
        stop(path, 1, "the file's name must begin like a C identifier");
    memcpy(out + strlen(out), "_sql", sizeof("_sql"));
}

static void write_blocks(const char *in, const char *prefix)
{
    char path[4096], list[NAME_MAX_LEN + 8];
    list_name(in, list);
    FILE *h = create(prefix, ".h", path);
    fprintf(h,
            "/* Made from %s by embed_sql. */\n#ifndef AB_SQL_%s\n#define AB_SQL_%s\n\n"
            "#include \"db/db.h\"\n\n",
            base_name(in), list, list);
    for (int i = 0; i < n_blocks; i++)
        fprintf(h, "extern const struct ab_sql SQL_%s;\n", blocks[i].name);
    fprintf(h, "\nextern const struct ab_sql *const %s[];\n\n#endif\n", list);
    finish(h, path);

    FILE *c = create(prefix, ".c", path);
    fprintf(c, "/* Made from %s by embed_sql. */\n#include \"%s.h\"\n", base_name(in),
            base_name(prefix));
    for (int i = 0; i < n_blocks; i++) {
        struct block *b = &blocks[i];
        fputc('\n', c);
        write_names(c, "params", b->name, b->params, b->n_params);
        if (b->n_columns)
            write_names(c, "columns", b->name, b->columns, b->n_columns);
        fprintf(c,
                "const struct ab_sql SQL_%s = {\n    .name = \"%s\",\n    .params = params_%s,\n"
                "    .file = \"%s\",\n",
                b->name, b->name, b->name, base_name(in));
        if (b->n_columns)
            fprintf(c, "    .copy_columns = columns_%s,\n    .copy_table = \"%s\",\n", b->name,
                    b->table);
        fputs("    .text =", c);
        write_string(c, b->sql.data, b->sql.len);
        fputs("};\n", c);
    }
    fprintf(c, "\nconst struct ab_sql *const %s[] = {\n", list);
    for (int i = 0; i < n_blocks; i++)
        fprintf(c, "    &SQL_%s,\n", blocks[i].name);
    fputs("    NULL};\n", c);
    finish(c, path);
}

/* 0001_init.sql -> ab_text_0001_init, and a table of all files in their order. */
static void write_whole(const char *prefix, int n, char **files)
{
    char path[4096];
    FILE *h = create(prefix, ".h", path);
    fputs("/* Made by embed_sql. */\n#ifndef AB_SQL_FILES\n#define AB_SQL_FILES\n\n"
          "struct ab_sql_file {\n    const char *name, *text;\n};\n\n"
          "/* Ends with a row of NULLs. */\nextern const struct ab_sql_file "
          "ab_sql_files[];\n\n#endif\n",
          h);
    finish(h, path);

    FILE *c = create(prefix, ".c", path);
    fprintf(c,
            "/* Made by embed_sql. */\n#include \"%s.h\"\n#include <stddef.h>\n\n"
            "const struct ab_sql_file ab_sql_files[] = {\n",
            base_name(prefix));
    for (int i = 0; i < n; i++) {
        struct text t = read_file(files[i]);
        fprintf(c, "{\"%s\",", base_name(files[i]));
        write_string(c, t.data, t.len);
        fputs("},\n", c);
        free(t.data);
    }
    fputs("{NULL, NULL}};\n", c);
    finish(c, path);
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "--whole") == 0) {
        write_whole(argv[2], argc - 3, argv + 3);
        return 0;
    }
    if (argc != 3 || argv[1][0] == '-') {
        fputs("usage: embed_sql IN.sql OUT_PREFIX\n       embed_sql --whole OUT_PREFIX FILE...\n",
              stderr);
        return 2;
    }
    struct text in = read_file(argv[1]);
    struct source s = {argv[1], in.data, in.data + in.len, 1};
    read_blocks(&s);
    write_blocks(argv[1], argv[2]);
    for (int i = 0; i < n_blocks; i++)
        free(blocks[i].sql.data);
    free(in.data);
    return 0;
}
