/* gather.c - the last job: compare every spectrum with the one that the generator wrote down
 *
 *     eigen-gather RESULTS_FOLDER TRUTH_FOLDER REPORT
 *
 * Ends with 0 only when each file of TRUTH has its twin in RESULTS and all agree to 1e-9. REPORT is
 * JSON.
 */
#include "matrix.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tally {
    int frames, missing, wrong;
    size_t eigenvalues;
    double worst;
};

static int is_spectrum(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 4 && strcmp(entry->d_name + n - 4, ".txt") == 0;
}

static void compare(const char *results, const char *truth, const char *name, struct tally *t)
{
    char path[4096];
    double *got = NULL, *want = NULL;
    size_t n_got = 0, n_want = 0;
    t->frames++;
    snprintf(path, sizeof(path), "%s/%s", truth, name);
    if (spectrum_read(path, &want, &n_want) < 0) {
        t->missing++;
        return;
    }
    snprintf(path, sizeof(path), "%s/%s", results, name);
    if (spectrum_read(path, &got, &n_got) < 0) {
        t->missing++;
    } else if (n_got != n_want) {
        fprintf(stderr, "%s: %zu eigenvalues where %zu are known\n", path, n_got, n_want);
        t->wrong++;
    } else {
        double d = spectrum_distance(got, want, n_want);
        if (!(d <= 1e-9)) {
            fprintf(stderr, "%s: differs from the known spectrum by %g\n", path, d);
            t->wrong++;
        }
        if (d > t->worst)
            t->worst = d;
        t->eigenvalues += n_want;
    }
    free(got);
    free(want);
}

int main(int argc, char **argv)
{
    struct tally t = {0};
    struct dirent **names = NULL;
    if (argc != 4) {
        fprintf(stderr, "usage: eigen-gather RESULTS TRUTH REPORT\n");
        return 2;
    }
    int n = scandir(argv[2], &names, is_spectrum, alphasort);
    if (n < 0) {
        fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
        return 1;
    }
    for (int i = 0; i < n; i++) {
        compare(argv[1], argv[2], names[i]->d_name, &t);
        free(names[i]);
    }
    free(names);
    int correct = t.frames > 0 && t.missing == 0 && t.wrong == 0;
    FILE *f = fopen(argv[3], "w");
    if (!f
        || fprintf(f,
                   "{\"frames\": %d, \"missing\": %d, \"wrong\": %d, \"eigenvalues\": %zu, "
                   "\"worst_relative_error\": %.3g, \"correct\": %s}\n",
                   t.frames, t.missing, t.wrong, t.eigenvalues, t.worst, correct ? "true" : "false")
               < 0
        || fclose(f) != 0) {
        fprintf(stderr, "%s: %s\n", argv[3], strerror(errno));
        return 1;
    }
    printf("%d spectra, %d missing, %d wrong, worst relative error %.3g\n", t.frames, t.missing,
           t.wrong, t.worst);
    return correct ? 0 : 1;
}
