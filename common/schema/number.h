/* number.h - inside schema/ only: a double as text, the way Python prints it */
#ifndef AB_NUMBER_H
#define AB_NUMBER_H

#include <stddef.h>

#define AB_NUMBER_TEXT 32

/* The shortest digits that read back as `v`: 2.0, 0.1, 1e+16, 1e-05. Also valid JSON when v is
 * finite; otherwise "inf", "-inf", "nan". Returns the length. */
size_t ab_number_text(double v, char out[AB_NUMBER_TEXT]);

#endif
