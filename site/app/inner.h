/* inner.h - what the files of this folder share */
#ifndef APP_INNER_H
#define APP_INNER_H

#include "app.h"

const struct ab_app_param *app_param(const struct ab_app *app, const char *name, size_t len);

/* May this text be the parameter's value? */
int value_check(const struct ab_app_param *param, const char *text, size_t len,
                struct ab_error *err);

/* A command line into words, as a shell splits it, but once and without expanding anything. */
int words_split(const struct ab_app *app, const char *line, struct ab_app_vector *out,
                struct ab_error *err);

/* One word, or the script of a shell command (`shell`: placeholders must stand where a quoted word
 * can). */
int words_parse(const struct ab_app *app, const char *text, size_t len, bool shell,
                struct ab_app_word *out, struct ab_error *err);

#endif
