/* read.c - .sql files into blocks: comments, quoting, :params, COPY columns */
#include "embed.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct block blocks[MAX_BLOCKS];
int n_blocks;

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- reading ----------------------------------------------------------------------------------
 */

size_t take_word(struct source *s, char out[NAME_MAX_LEN + 1], const char *what)
{
    size_t n = 0;
    while (s->at + n < s->end && is_word(s->at[n]))
        n++;
    if (n > NAME_MAX_LEN)
        stop(s->path, s->line, "%s is longer than %d characters", what, NAME_MAX_LEN);
    memcpy(out, s->at, n);
    out[n] = '\0';
    s->at += n;
    return n;
}

static void copy_to(struct source *s, struct text *out, const char *to)
{
    for (const char *p = s->at; p < to; p++)
        s->line += *p == '\n';
    add(out, s->at, (size_t)(to - s->at));
    s->at = to;
}

/* 'text', "name" (a doubled quote is two texts in a row), E'it\'s'. */
static void copy_quoted(struct source *s, struct text *out)
{
    char quote = *s->at;
    bool escapes = quote == '\'' && out->len > 0 && toupper(out->data[out->len - 1]) == 'E'
                   && (out->len < 2 || !is_word(out->data[out->len - 2]));
    const char *p = s->at + 1;
    while (p < s->end && *p != quote)
        p += escapes && *p == '\\' && p + 1 < s->end ? 2 : 1;
    if (p >= s->end)
        stop(s->path, s->line, "the %c that opens here is not closed", quote);
    copy_to(s, out, p + 1);
}

/* $tag$ .. $tag$; anything else after a dollar is copied as it is. */
static void copy_dollar(struct source *s, struct text *out)
{
    size_t n = 1;
    while (s->at + n < s->end && is_word(s->at[n]))
        n++;
    if (s->at + n >= s->end || s->at[n] != '$' || isdigit((unsigned char)s->at[1])) {
        copy_to(s, out, s->at + 1);
        return;
    }
    n++;
    const char *p = s->at + n;
    while (p + n <= s->end && memcmp(p, s->at, n) != 0)
        p++;
    if (p + n > s->end)
        stop(s->path, s->line, "the %.*s that opens here is not closed", (int)n, s->at);
    copy_to(s, out, p + n);
}

static void skip_comment(struct source *s)
{
    int depth = 0, line = s->line;
    if (s->at[0] == '-') {
        while (s->at < s->end && *s->at != '\n')
            s->at++;
        return;
    }
    do {
        if (s->at + 1 >= s->end)
            stop(s->path, line, "the /* that opens here is not closed");
        if (s->at[0] == '/' && s->at[1] == '*') {
            depth++;
            s->at += 2;
        } else if (s->at[0] == '*' && s->at[1] == '/') {
            depth--;
            s->at += 2;
        } else {
            s->line += *s->at == '\n';
            s->at++;
        }
    } while (depth > 0);
}

static void take_param(struct source *s, struct block *b)
{
    char name[NAME_MAX_LEN + 1], number[16];
    int i = 0;
    s->at++;
    take_word(s, name, "a parameter");
    while (i < b->n_params && strcmp(b->params[i], name) != 0)
        i++;
    if (i == b->n_params) {
        if (i == MAX_PARAMS)
            stop(s->path, s->line, "%s has more than %d parameters", b->name, MAX_PARAMS);
        memcpy(b->params[b->n_params++], name, strlen(name) + 1);
    }
    snprintf(number, sizeof(number), "$%d", i + 1);
    add(&b->sql, number, strlen(number));
}

static void take_colon(struct source *s, struct block *b)
{
    const char *next = s->at + 1;
    if (next < s->end && (*next == ':' || *next == '='))
        copy_to(s, &b->sql, s->at + 2);
    else if (next < s->end && (isalpha((unsigned char)*next) || *next == '_'))
        take_param(s, b);
    else if (next < s->end && (*next == '\'' || *next == '"'))
        stop(s->path, s->line, "write :name, not :'name': values are bound, never quoted");
    else
        copy_to(s, &b->sql, s->at + 1);
}

/* A line `-- name: x`? Then s->at stands behind it. */
static bool take_heading(struct source *s, char name[NAME_MAX_LEN + 1])
{
    static const char mark[] = "-- name:";
    const char *line = s->at;
    if ((size_t)(s->end - line) < sizeof(mark) - 1 || memcmp(line, mark, sizeof(mark) - 1) != 0)
        return false;
    s->at += sizeof(mark) - 1;
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t'))
        s->at++;
    if (!take_word(s, name, "a block's name") || isdigit((unsigned char)name[0]))
        stop(s->path, s->line, "expected a name (a C identifier) after `-- name:`");
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
    if (s->at < s->end && *s->at != '\n')
        stop(s->path, s->line, "nothing may follow the name %s on its line", name);
    return true;
}

static void begin_block(struct source *s, const char *name)
{
    for (int i = 0; i < n_blocks; i++)
        if (strcmp(blocks[i].name, name) == 0)
            stop(s->path, s->line, "%s is already the name of the block at line %d", name,
                 blocks[i].line);
    if (n_blocks == MAX_BLOCKS)
        stop(s->path, s->line, "more than %d blocks", MAX_BLOCKS);
    memcpy(blocks[n_blocks].name, name, strlen(name) + 1);
    blocks[n_blocks].line = s->line;
    add(&blocks[n_blocks].sql, "", 0);
    n_blocks++;
}

/* Blanks at line ends and empty lines, left where comments stood. */
static void add_newline(struct text *t)
{
    while (t->len > 0 && (t->data[t->len - 1] == ' ' || t->data[t->len - 1] == '\t'))
        t->len--;
    if (t->len > 0 && t->data[t->len - 1] != '\n')
        add(t, "\n", 1);
}

static void end_block(struct source *s, struct block *b)
{
    struct text *t = &b->sql;
    bool ended = false;
    while (t->len > 0
           && (isspace((unsigned char)t->data[t->len - 1]) || t->data[t->len - 1] == ';')) {
        ended |= t->data[t->len - 1] == ';';
        t->len--;
    }
    t->data[t->len] = '\0';
    if (t->len == 0)
        stop(s->path, b->line, "%s has no statement", b->name);
    if (!ended)
        stop(s->path, b->line, "%s does not end with a semicolon", b->name);
}

static void take_statement(struct source *s)
{
    struct block *b = &blocks[n_blocks - 1];
    char c = *s->at, next = s->at + 1 < s->end ? s->at[1] : '\0';
    /* A prepared statement is one statement. */
    if (b->sql.len > 0 && b->sql.data[b->sql.len - 1] == ';' && !isspace((unsigned char)c)
        && !(c == '-' && next == '-') && !(c == '/' && next == '*'))
        stop(s->path, s->line, "%s has a second statement: give it a `-- name:` of its own",
             b->name);

    if ((c == '-' && next == '-') || (c == '/' && next == '*')) {
        skip_comment(s);
    } else if (c == '\'' || c == '"') {
        copy_quoted(s, &b->sql);
    } else if (c == '$' && (b->sql.len == 0 || !is_word(b->sql.data[b->sql.len - 1]))) {
        copy_dollar(s, &b->sql);
    } else if (c == ':') {
        take_colon(s, b);
    } else if (c == '\n') {
        if (b->sql.len > 0 && b->sql.data[b->sql.len - 1] != ';')
            add_newline(&b->sql);
        s->line++;
        s->at++;
    } else if (isspace((unsigned char)c) && b->sql.len > 0 && b->sql.data[b->sql.len - 1] == ';') {
        s->at++;
    } else {
        copy_to(s, &b->sql, s->at + 1);
    }
}

/* ---- COPY blocks ------------------------------------------------------------------------------
 */

static void skip_space(struct source *s)
{
    while (s->at < s->end && isspace((unsigned char)*s->at))
        s->at++;
}

/* COPY table (a, b) FROM STDIN (FORMAT binary): keep table and columns for the encoders. */
static void read_copy(const char *path, struct block *b)
{
    struct source s = {path, b->sql.data, b->sql.data + b->sql.len, b->line};
    char word[NAME_MAX_LEN + 1];
    if (!take_word(&s, word, "a word") || strcasecmp(word, "copy") != 0)
        return;
    if (b->n_params > 0)
        stop(path, b->line, "%s: COPY takes no parameters (:%s)", b->name, b->params[0]);
    skip_space(&s);
    take_word(&s, b->table, "a table's name");
    skip_space(&s);
    if (!b->table[0] || s.at >= s.end || *s.at != '(')
        stop(path, b->line, "%s: write COPY table (column, ...) FROM STDIN (FORMAT binary)",
             b->name);
    do {
        s.at++;
        skip_space(&s);
        if (b->n_columns == MAX_COLUMNS)
            stop(path, b->line, "%s copies more than %d columns", b->name, MAX_COLUMNS);
        if (!take_word(&s, b->columns[b->n_columns], "a column"))
            stop(path, b->line, "%s: expected a column's name", b->name);
        b->n_columns++;
        skip_space(&s);
    } while (s.at < s.end && *s.at == ',');
    if (s.at >= s.end || *s.at != ')' || !strstr(s.at, "STDIN") || !strstr(s.at, "binary"))
        stop(path, b->line, "%s: the columns must be followed by FROM STDIN (FORMAT binary)",
             b->name);
}

void read_blocks(struct source *s)
{
    char name[NAME_MAX_LEN + 1];
    bool line_start = true;
    while (s->at < s->end) {
        if (line_start && take_heading(s, name)) {
            if (n_blocks > 0)
                end_block(s, &blocks[n_blocks - 1]);
            begin_block(s, name);
            line_start = false;
            continue;
        }
        line_start = *s->at == '\n';
        if (n_blocks > 0) {
            take_statement(s);
        } else if (s->at[0] == '-' && s->at + 1 < s->end && s->at[1] == '-') {
            skip_comment(s);
        } else if (isspace((unsigned char)*s->at)) {
            s->line += *s->at == '\n';
            s->at++;
        } else {
            stop(s->path, s->line, "a statement before the first `-- name:` has no name");
        }
    }
    if (n_blocks == 0)
        stop(s->path, s->line, "no block: none begins with `-- name:`");
    end_block(s, &blocks[n_blocks - 1]);
    for (int i = 0; i < n_blocks; i++)
        read_copy(s->path, &blocks[i]);
}
