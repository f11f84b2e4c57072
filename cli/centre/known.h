/* known.h - which program knows which setting: asked of the programs themselves */
#ifndef CENTRE_KNOWN_H
#define CENTRE_KNOWN_H

#include "centre.h"

#define PROGRAMS (ROLES + 1) /* the gateway first, then centre_roles */

struct known {
    const char *path[PROGRAMS]; /* of the program */
    bool *of[PROGRAMS];         /* of[program][setting]; NULL without settings */
};

const char *known_role(int program); /* "gateway", "auth", ... */

/* Finds the programs. Each setting of the centre must be known to one of them and have a value that
 * it takes: else an error with a near match. */
int known_find(const struct centre *self, struct known *out, struct ab_error *err);

#endif
