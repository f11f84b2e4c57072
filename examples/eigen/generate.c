/* generate.c - the detector of a beamline: symmetric matrices whose spectrum is known
 *
 *     eigen-generate FOLDER COUNT ORDER [SEED]
 *
 * writes FOLDER/frames/frame-0001.bin .. and FOLDER/truth/frame-0001.txt, the eigenvalues. A matrix
 * is H_k .. H_1 D H_1 .. H_k with D diagonal and H_i random Householder reflections, so D is its
 * spectrum to rounding. Same seed, same files.
 */
#include "matrix.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    REFLECTIONS = 3
};

/* splitmix64: small, and the same everywhere */
static uint64_t next_bits(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state)
{
    return (double)(next_bits(state) >> 11) * 0x1p-53;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A := H A H with H = I - 2 v v' / (v' v). With w = A v, k = v' v, c = v' w:
 * A - (2/k) (v w' + w v') + (4 c / k^2) v v'. */
static void reflect(double *a, size_t n, const double *v, double *w)
{
    double k = 0, c = 0;
    for (size_t i = 0; i < n; i++)
        k += v[i] * v[i];
    for (size_t i = 0; i < n; i++) {
        w[i] = 0;
        for (size_t j = 0; j < n; j++)
            w[i] += a[j * n + i] * v[j];
        c += v[i] * w[i];
    }
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < n; i++)
            a[j * n + i] += -2 / k * (v[i] * w[j] + w[i] * v[j]) + 4 * c / (k * k) * v[i] * v[j];
}

static int one_frame(const char *folder, int number, size_t n, uint64_t *state)
{
    double *a = calloc(n * n, sizeof(double)), *d = malloc(n * sizeof(double));
    double *v = malloc(n * sizeof(double)), *w = malloc(n * sizeof(double));
    char path[4096];
    int rc = -1;
    if (!a || !d || !v || !w) {
        fprintf(stderr, "a matrix of order %zu does not fit into memory\n", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        d[i] = 200 * uniform(state) - 100;
    qsort(d, n, sizeof(double), ascending);
    for (size_t i = 0; i < n; i++)
        a[i * n + i] = d[i];
    for (int r = 0; r < REFLECTIONS; r++) {
        for (size_t i = 0; i < n; i++)
            v[i] = uniform(state) - 0.5;
        reflect(a, n, v, w);
    }
    snprintf(path, sizeof(path), "%s/frames/frame-%04d.bin", folder, number);
    rc = matrix_write(path, a, n);
    if (rc == 0) {
        snprintf(path, sizeof(path), "%s/truth/frame-%04d.txt", folder, number);
        rc = spectrum_write(path, d, n);
    }
out:
    free(a);
    free(d);
    free(v);
    free(w);
    return rc;
}

static int make_folder(const char *parent, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s%s%s", parent, name ? "/" : "", name ? name : "");
    if (mkdir(path, 0777) < 0 && errno != EEXIST) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    long order = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
    uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    if (argc < 4 || argc > 5 || count < 1 || count > 9999 || order < 1
        || order > MATRIX_MAX_ORDER) {
        fprintf(stderr, "usage: eigen-generate FOLDER COUNT(1..9999) ORDER(1..%d) [SEED]\n",
                MATRIX_MAX_ORDER);
        return 2;
    }
    if (make_folder(argv[1], NULL) < 0 || make_folder(argv[1], "frames") < 0
        || make_folder(argv[1], "truth") < 0)
        return 1;
    for (long i = 1; i <= count; i++)
        if (one_frame(argv[1], (int)i, (size_t)order, &seed) < 0)
            return 1;
    return 0;
}
