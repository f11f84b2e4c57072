/* words.c - command lines with {{placeholders}}: split once, at load, when only the site's user has
 * spoken; values come later and stay inside the word they were put into
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "inner.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX_BYTES (256 * 1024)
#define WORDS_MAX 4096
#define PARTS_MAX 256

const struct ab_app_param *app_param(const struct ab_app *app, const char *name, size_t len)
{
    for (size_t i = 0; i < app->n_params; i++)
        if (strlen(app->params[i].name) == len && memcmp(app->params[i].name, name, len) == 0)
            return &app->params[i];
    return NULL;
}

/* Length of "{{ name }}" at `p`, its name; 0: no placeholder starts here; -1 a broken one. */
static int64_t placeholder(const char *p, size_t len, const char **name, size_t *name_len)
{
    if (len < 2 || p[0] != '{' || p[1] != '{')
        return 0;
    size_t at = 2;
    while (at < len && p[at] == ' ')
        at++;
    size_t start = at;
    while (at < len && (isalnum((unsigned char)p[at]) || p[at] == '_'))
        at++;
    *name = p + start;
    *name_len = at - start;
    while (at < len && p[at] == ' ')
        at++;
    if (at + 2 > len || p[at] != '}' || p[at + 1] != '}' || !*name_len)
        return -1;
    return (int64_t)at + 2;
}

/* ------------------------------------------------------------------ shell scripts
 *
 * A value goes in as 'value', which bash takes as one word only in plain text. Everywhere else
 * (quotes, comments, here documents, arithmetic, ${..}, [[ ]], backticks, after a $ or a backslash)
 * the quotes mean something else, so a placeholder there is refused. And where it is hard to say
 * what bash would take for the end of a quote (quotes within an expansion within quotes), no
 * placeholder may follow at all. */

#define NESTING_MAX 32

struct lexer {
    enum {
        PLAIN,
        SINGLE,
        DOUBLE,
        BACKTICK,
        COMMENT,
        INNER,
        TEST
    } at;
    int outer;                 /* PLAIN or TEST: around SINGLE, DOUBLE, BACKTICK */
    int around;                /* INNER: PLAIN, TEST or DOUBLE */
    char closers[NESTING_MAX]; /* of INNER, innermost last */
    int depth;
    bool word_start;
    const char *bad; /* what does not go with placeholders in this script */
};

static const char *const place_names[] = {
    "",          "single quotes", "double quotes",
    "backticks", "a comment",     "an expansion (${...}, arithmetic, or $(...) within quotes)",
    "[[ ]]",
};

static bool starts(const char *p, size_t len, const char *text)
{
    size_t n = strlen(text);
    return len >= n && memcmp(p, text, n) == 0;
}

static void push(struct lexer *lex, char closer)
{
    if (lex->depth == NESTING_MAX)
        lex->bad = "expansions nested that deeply do";
    else
        lex->closers[lex->depth++] = closer;
}

/* What starts with a $ or is arithmetic and has an end of its own. 0: nothing of that kind. */
static size_t open_inner(struct lexer *lex, const char *p, size_t len)
{
    static const struct {
        const char *text, *closers;
        bool in_plain; /* there $(...) is plain text, and ((...)) is arithmetic */
        bool elsewhere;
    } opens[] = {
        {"$((", "))", true, true}, {"((", "))", true, false}, {"${", "}", true, true},
        {"$[", "]", true, true},   {"$(", ")", false, true},
    };

    for (size_t i = 0; i < AB_COUNT(opens); i++) {
        if (!(lex->at == PLAIN ? opens[i].in_plain : opens[i].elsewhere)
            || !starts(p, len, opens[i].text))
            continue;
        if (lex->at != INNER)
            lex->around = lex->at;
        lex->at = INNER;
        for (const char *c = opens[i].closers; *c; c++)
            push(lex, *c);
        return strlen(opens[i].text);
    }
    return 0;
}

/* A quote opens, in plain text or in [[ ]]. */
static bool open_quote(struct lexer *lex, char c)
{
    static const char quotes[] = {[SINGLE] = '\'', [DOUBLE] = '"', [BACKTICK] = '`'};

    for (int i = SINGLE; i <= BACKTICK; i++) {
        if (c != quotes[i])
            continue;
        lex->outer = (int)lex->at;
        lex->at = i;
        return true;
    }
    return false;
}

/* How many bytes belong together at p, in plain text; moves to the state they open. */
static size_t plain_step(struct lexer *lex, const char *p, size_t len)
{
    bool start = lex->word_start;

    lex->word_start = strchr(" \t\n;|&()", *p) != NULL;
    if (*p == '\\' && len > 1)
        return 2;
    if (*p == '#' && start) {
        lex->at = COMMENT;
        return 1;
    }
    if (start && starts(p, len, "[[")) {
        lex->at = TEST;
        return 2;
    }
    if (starts(p, len, "$'"))
        lex->bad = "$'...' does";
    size_t n = open_inner(lex, p, len);
    if (n)
        return n;
    (void)open_quote(lex, *p);
    return 1;
}

static size_t test_step(struct lexer *lex, const char *p, size_t len)
{
    if (starts(p, len, "]]")) {
        lex->at = PLAIN;
        return 2;
    }
    if (starts(p, len, "$'"))
        lex->bad = "$'...' does";
    size_t n = open_inner(lex, p, len);
    if (!n)
        (void)open_quote(lex, *p);
    return n ? n : 1;
}

/* Without a quote in it, it is clear where it ends; with one it may not be. */
static size_t inner_step(struct lexer *lex, const char *p, size_t len)
{
    char closer = lex->depth ? lex->closers[lex->depth - 1] : '\0';

    if (strchr("\"'`\\", *p))
        lex->bad = "a quote or backslash within ${...}, arithmetic, or $(...) in quotes does";
    if (starts(p, len, "case") || (*p == '#' && strchr(" \t\n;&|(", p[-1])))
        lex->bad = "`case` and comments within $(...) in quotes do";
    size_t n = open_inner(lex, p, len);
    if (n)
        return n;
    if ((closer == ')' && *p == '(') || (closer == ']' && *p == '['))
        push(lex, closer);
    if (*p == closer && --lex->depth == 0)
        lex->at = lex->around;
    return 1;
}

static size_t inside_step(struct lexer *lex, const char *p, size_t len)
{
    static const char ends[] = {
        [SINGLE] = '\'', [DOUBLE] = '"', [BACKTICK] = '`', [COMMENT] = '\n'};

    lex->word_start = false;
    if (lex->at == INNER)
        return inner_step(lex, p, len);
    if (*p == '\\' && len > 1 && lex->at != SINGLE && lex->at != COMMENT)
        return 2;
    if (lex->at == TEST)
        return test_step(lex, p, len);
    if (*p == ends[lex->at]) {
        lex->word_start = lex->at == COMMENT;
        lex->at = lex->at == COMMENT ? PLAIN : lex->outer;
        return 1;
    }
    if (lex->at == DOUBLE && *p == '`')
        lex->bad = "backticks within quotes do";
    size_t n = lex->at == DOUBLE ? open_inner(lex, p, len) : 0;
    return n ? n : 1;
}

static int fail_bad(const struct lexer *lex, struct ab_error *err)
{
    return ab_fail(err, AB_EINVAL,
                   "%s not go with placeholders; write a script file and call it with "
                   "{{parameters}} as its arguments",
                   lex->bad);
}

static int check_place(const struct lexer *lex, const char *text, size_t at, const char *name,
                       size_t name_len, struct ab_error *err)
{
    if (lex->at != PLAIN)
        return ab_fail(
            err, AB_EINVAL,
            "{{%.*s}} stands inside %s, where its value could become shell syntax; use it "
            "as a word of its own (it is quoted already)",
            (int)name_len, name, place_names[lex->at]);
    if (at > 0 && strchr("$\\", text[at - 1]))
        return ab_fail(err, AB_EINVAL, "{{%.*s}} must not stand right behind `%c`", (int)name_len,
                       name, text[at - 1]);
    return 0;
}

/* ------------------------------------------------------------------ pieces */

struct pieces {
    const char *text[PARTS_MAX + 1];
    const struct ab_app_param *param[PARTS_MAX];
    size_t n;
    struct ab_buf now;
};

static int add_param(struct pieces *pieces, const struct ab_app *app, const char *name, size_t len,
                     struct ab_error *err)
{
    const struct ab_app_param *param = app_param(app, name, len);

    if (!param)
        return ab_fail(err, AB_EINVAL,
                       "{{%.*s}} is no parameter of this app; declare it under parameters",
                       (int)len, name);
    if (pieces->n == PARTS_MAX)
        return ab_fail(err, AB_EINVAL, "more than %d placeholders in one word", PARTS_MAX);
    pieces->text[pieces->n] =
        ab_strndup(app->arena, pieces->now.data ? pieces->now.data : "", pieces->now.len);
    pieces->param[pieces->n++] = param;
    ab_buf_clear(&pieces->now);
    return 0;
}

static void finish_word(struct pieces *pieces, const struct ab_app *app, struct ab_app_word *out)
{
    size_t n = pieces->n;

    pieces->text[n] =
        ab_strndup(app->arena, pieces->now.data ? pieces->now.data : "", pieces->now.len);
    out->n = n;
    out->text = ab_memdup(app->arena, pieces->text, (n + 1) * sizeof(*out->text));
    out->param = n ? ab_memdup(app->arena, pieces->param, n * sizeof(*out->param)) : NULL;
    pieces->n = 0;
    ab_buf_clear(&pieces->now);
}

static int fail_broken(const char *p, size_t len, struct ab_error *err)
{
    return ab_fail(err, AB_EINVAL, "`%.*s` is not a placeholder; write {{name}}",
                   len > 20 ? 20 : (int)len, p);
}

/* Text of a shell command that would change what a placeholder behind it means. */
static int check_text(const struct lexer *lex, const char *text, size_t len, struct ab_error *err)
{
    if (lex->at == PLAIN && starts(text, len, "<<"))
        return ab_fail(err, AB_EINVAL,
                       "here documents (<<) do not go with placeholders; write a script "
                       "file and call it with {{parameters}} as its arguments");
    if (strchr("$\\", *text) && starts(text + 1, len - 1, "{{"))
        return ab_fail(err, AB_EINVAL, "a placeholder must not stand right behind `%c`", *text);
    return 0;
}

/* How far the next piece of plain text goes. */
static size_t text_step(struct lexer *lex, const char *text, size_t len, bool shell)
{
    if (!shell)
        return 1;
    return lex->at == PLAIN ? plain_step(lex, text, len) : inside_step(lex, text, len);
}

static int parse_pieces(const struct ab_app *app, const char *text, size_t len, bool shell,
                        struct pieces *pieces, struct ab_error *err)
{
    struct lexer lex = {.at = PLAIN, .word_start = true};

    for (size_t at = 0; at < len;) {
        const char *name;
        size_t name_len;
        int64_t n = placeholder(text + at, len - at, &name, &name_len);
        if (n < 0 || (n == 0 && starts(text + at, len - at, "}}") && !shell))
            return fail_broken(text + at, len - at, err);
        if (n > 0) {
            if (shell && check_place(&lex, text, at, name, name_len, err) < 0)
                return -1;
            if (add_param(pieces, app, name, name_len, err) < 0)
                return -1;
            if (lex.bad)
                return fail_bad(&lex, err);
            lex.word_start = false;
            at += (size_t)n;
            continue;
        }
        if (shell && check_text(&lex, text + at, len - at, err) < 0)
            return -1;
        size_t step = text_step(&lex, text + at, len - at, shell);
        ab_buf_add(&pieces->now, text + at, step);
        at += step;
    }
    if (lex.bad)
        return pieces->n ? fail_bad(&lex, err) : 0;
    if (shell && lex.at != PLAIN && lex.at != COMMENT)
        return ab_fail(err, AB_EINVAL, "the command ends inside %s", place_names[lex.at]);
    return 0;
}

int words_parse(const struct ab_app *app, const char *text, size_t len, bool shell,
                struct ab_app_word *out, struct ab_error *err)
{
    struct pieces pieces = {.now = {.limit = WORD_MAX_BYTES}};

    int rc = parse_pieces(app, text, len, shell, &pieces, err);
    if (rc == 0 && pieces.now.failed)
        rc = ab_fail(err, AB_EINVAL, "a word of more than %d bytes", WORD_MAX_BYTES);
    if (rc == 0)
        finish_word(&pieces, app, out);
    ab_buf_free(&pieces.now);
    return rc;
}

/* ------------------------------------------------------------------ splitting */

struct splitter {
    const struct ab_app *app;
    struct pieces pieces;
    struct ab_app_vector *out;
    size_t cap;
    bool in_word;
};

static int end_word(struct splitter *s, struct ab_error *err)
{
    if (!s->in_word)
        return 0;
    if (s->out->n == WORDS_MAX)
        return ab_fail(err, AB_EINVAL, "more than %d words", WORDS_MAX);
    if (s->out->n == s->cap) {
        struct ab_app_word *old = s->out->words;
        s->cap = s->cap ? s->cap * 2 : 16;
        s->out->words = ab_alloc(s->app->arena, s->cap, sizeof(*s->out->words));
        if (old)
            memcpy(s->out->words, old, s->out->n * sizeof(*old));
    }
    finish_word(&s->pieces, s->app, &s->out->words[s->out->n++]);
    s->in_word = false;
    return 0;
}

static int split_char(struct splitter *s, const char **p, char *quote, struct ab_error *err)
{
    char c = **p;

    if (*quote) {
        bool escaped = *quote == '"' && c == '\\' && (*p)[1] && strchr("\"\\", (*p)[1]);
        if (escaped)
            ab_buf_char(&s->pieces.now, *++*p);
        else if (c == *quote)
            *quote = '\0';
        else
            ab_buf_char(&s->pieces.now, c);
        return 0;
    }
    if (strchr(" \t\r\n", c))
        return end_word(s, err);
    if (strchr("|&;<>()$`", c))
        return ab_fail(err, AB_EINVAL,
                       "`%c` means something to a shell, and this command does not run in one; "
                       "quote it, or say `shell: true`",
                       c);
    s->in_word = true;
    if (c == '\'' || c == '"')
        *quote = c;
    else if (c == '\\' && (*p)[1])
        ab_buf_char(&s->pieces.now, *++*p);
    else
        ab_buf_char(&s->pieces.now, c);
    return 0;
}

static int split(struct splitter *s, const char *line, struct ab_error *err)
{
    char quote = '\0';

    for (const char *p = line; *p; p++) {
        const char *name;
        size_t name_len;
        int64_t n = placeholder(p, strlen(p), &name, &name_len);
        if (n < 0)
            return fail_broken(p, strlen(p), err);
        if (n > 0) {
            s->in_word = true;
            if (add_param(&s->pieces, s->app, name, name_len, err) < 0)
                return -1;
            p += n - 1;
        } else if (split_char(s, &p, &quote, err) < 0) {
            return -1;
        }
    }
    if (quote)
        return ab_fail(err, AB_EINVAL, "a quote (%c) is not closed", quote);
    return end_word(s, err);
}

int words_split(const struct ab_app *app, const char *line, struct ab_app_vector *out,
                struct ab_error *err)
{
    struct splitter s = {.app = app, .out = out, .pieces = {.now = {.limit = WORD_MAX_BYTES}}};

    *out = (struct ab_app_vector){0};
    int rc = split(&s, line, err);
    if (rc == 0 && s.pieces.now.failed)
        rc = ab_fail(err, AB_EINVAL, "a command of more than %d bytes", WORD_MAX_BYTES);
    if (rc == 0 && !out->n)
        rc = ab_fail(err, AB_EINVAL, "the command is empty");
    ab_buf_free(&s.pieces.now);
    return rc;
}
