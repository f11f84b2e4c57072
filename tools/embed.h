/* embed.h - what the two halves of embed_sql share: blocks as they were read */
#ifndef EMBED_H
#define EMBED_H

#include <stddef.h>

enum {
    NAME_MAX_LEN = 60, /* PostgreSQL keeps 63 bytes of a statement's name */
    MAX_PARAMS = 64,
    MAX_COLUMNS = 64,
    MAX_BLOCKS = 200,
};

struct text {
    char *data;
    size_t len, cap;
};

struct block {
    char name[NAME_MAX_LEN + 1];
    int line;
    struct text sql;
    char params[MAX_PARAMS][NAME_MAX_LEN + 1];
    int n_params;
    char table[NAME_MAX_LEN + 1];
    char columns[MAX_COLUMNS][NAME_MAX_LEN + 1];
    int n_columns;
};

/* Where we are in the input; errors are said as file:line. */
struct source {
    const char *path;
    const char *at, *end;
    int line;
};

extern struct block blocks[MAX_BLOCKS];
extern int n_blocks;

/* Ends the program with "file:line: why". */
_Noreturn void stop(const char *path, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void add(struct text *t, const char *bytes, size_t n);
struct text read_file(const char *path);
const char *base_name(const char *path);

/* One word into `out`; 0 when there is none. */
size_t take_word(struct source *s, char out[NAME_MAX_LEN + 1], const char *what);

/* ---- read.c: fills blocks[], COPY columns included */
void read_blocks(struct source *s);

#endif
