/* opt.h - command lines of the CLI as tables
 *
 *     struct job_ls { const char *state; bool by_state; int64_t limit; struct ab_opt_list tags; } o
 * = {0}; const struct ab_opt options[] = { AB_OPT_TEXT('s', "state", &o.state, "STATE", "only jobs
 * in this state"), AB_OPT_LIST('t', "tag", &o.tags, "KEY=VALUE", "only jobs with this tag
 * (repeat)"), {0},
 *     };
 *     if (ab_opt_parse("abies job ls", "List jobs", options, NULL, &argc, &argv, err) ...
 *
 * argc and argv are what stands behind the name of the program or command.
 * GNU rules: --name value, --name=value, -sVALUE, -s VALUE, "--" ends options. Single-dash long
 * names of old clients (-tag, -rpn) are rows with `old` set. Unknown options get a near match.
 */
#ifndef AB_OPT_H
#define AB_OPT_H

#include "error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ab_opt_list {
    const char **v; /* borrowed from argv; the array lives as long as the process */
    size_t n;
};

struct ab_opt {
    char letter;      /* 0: none */
    const char *name; /* without dashes */
    const char *old;  /* single-dash long name, without its dash; NULL: none */
    enum {
        AB_OPT_END,
        AB_OPT_KIND_FLAG,
        AB_OPT_KIND_TEXT,
        AB_OPT_KIND_INT,
        AB_OPT_KIND_LIST
    } kind;
    void *out;
    const char *value; /* what stands for the value in --help */
    const char *text;
};

#define AB_OPT_FLAG(letter, name, out, text)                                                       \
    {                                                                                              \
        letter, name, NULL, AB_OPT_KIND_FLAG, (bool *)(out), NULL, text                            \
    }
#define AB_OPT_TEXT(letter, name, out, value, text)                                                \
    {                                                                                              \
        letter, name, NULL, AB_OPT_KIND_TEXT, (const char **)(out), value, text                    \
    }
#define AB_OPT_INT(letter, name, out, value, text)                                                 \
    {                                                                                              \
        letter, name, NULL, AB_OPT_KIND_INT, (int64_t *)(out), value, text                         \
    }
#define AB_OPT_LIST(letter, name, out, value, text)                                                \
    {                                                                                              \
        letter, name, NULL, AB_OPT_KIND_LIST, (struct ab_opt_list *)(out), value, text             \
    }

/* Takes the options out; the rest stays in *argv[0 .. *argc). 0 go on, 1 --help was printed, -1
 * error. `usage` is printed as "Usage: <program> <usage>". */
int ab_opt_parse(const char *program, const char *usage, const char *about,
                 const struct ab_opt *options, int *argc, char ***argv, struct ab_error *err);

#endif
