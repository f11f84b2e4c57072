/* figures.h - run/metrics/NAME.prom: what a process of the site says to Prometheus
 *
 * Modules and launchers have no port: a launcher's node is not reached from outside, and a login
 * node has other users. Each writes its text into a file, by rename, and removes it at its end; the
 * broker serves all of them together, and a textfile collector may read the folder as it is. A file
 * that has not been written for AB_FIGURES_STALE_MS is a dead process's.
 */
#ifndef AB_SITEDIR_FIGURES_H
#define AB_SITEDIR_FIGURES_H

#include "base/buf.h"
#include "site.h"

#define AB_FIGURES_MS 5000
#define AB_FIGURES_STALE_MS 60000
#define AB_FIGURES_FILES 256               /* of a site, at most */
#define AB_FIGURES_BYTES ((size_t)1 << 20) /* of a file, at most */

typedef struct ab_figures ab_figures_t;

/* NULL: the folder cannot be made; figures are not worth an error. */
ab_figures_t *ab_figures_new(const struct ab_site *site, const char *name);
void ab_figures_destroy(ab_figures_t **self); /* removes the file */

/* Ms until the next text is due; 0: now. */
int64_t ab_figures_due(const ab_figures_t *self, int64_t now_ms);
void ab_figures_write(ab_figures_t *self, const struct ab_buf *text, int64_t now_ms);

/* Family by family: the texts of all files. Files of the dead are removed. */
void ab_figures_gather(const struct ab_site *site, struct ab_buf *out);

/* The families of several texts, each once. What is no sample under a TYPE line is left out. */
void ab_figures_merge(const struct ab_buf *texts, size_t n, struct ab_buf *out);

#endif
