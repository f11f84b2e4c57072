/* matrix.c - reading and writing the files of this example */
#include "matrix.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = "ABMATRX1";

static int complain(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    return -1;
}

int matrix_write(const char *path, const double *a, size_t order)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return complain(path, strerror(errno));
    int64_t n = (int64_t)order;
    size_t cells = order * order;
    int ok = fwrite(magic, sizeof(magic), 1, f) == 1 && fwrite(&n, sizeof(n), 1, f) == 1
             && fwrite(a, sizeof(double), cells, f) == cells;
    if (fclose(f) != 0 || !ok)
        return complain(path, "cannot be written whole; is the disk full?");
    return 0;
}

static int read_header(FILE *f, const char *path, size_t *order)
{
    char head[sizeof(magic)];
    int64_t n = 0;
    if (fread(head, sizeof(head), 1, f) != 1 || memcmp(head, magic, sizeof(magic)) != 0)
        return complain(path, "is not a matrix file (wrong first bytes)");
    if (fread(&n, sizeof(n), 1, f) != 1 || n < 1 || n > MATRIX_MAX_ORDER)
        return complain(path, "names an order outside 1 to 20000");
    *order = (size_t)n;
    return 0;
}

int matrix_read(const char *path, double **a, size_t *order)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return complain(path, strerror(errno));
    int rc = read_header(f, path, order);
    if (rc == 0) {
        size_t cells = *order * *order;
        *a = malloc(cells * sizeof(double));
        if (!*a)
            rc = complain(path, "does not fit into memory");
        else if (fread(*a, sizeof(double), cells, f) != cells || fgetc(f) != EOF)
            rc = complain(path, "is shorter or longer than its order says");
        if (rc < 0) {
            free(*a);
            *a = NULL;
        }
    }
    fclose(f);
    return rc;
}

int spectrum_write(const char *path, const double *values, size_t n)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return complain(path, strerror(errno));
    int ok = 1;
    for (size_t i = 0; i < n; i++)
        ok = ok && fprintf(f, "%.17g\n", values[i]) > 0;
    if (fclose(f) != 0 || !ok)
        return complain(path, "cannot be written whole; is the disk full?");
    return 0;
}

int spectrum_read(const char *path, double **values, size_t *n)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return complain(path, strerror(errno));
    size_t room = 0;
    int rc = 0;
    double x = 0;
    *values = NULL;
    *n = 0;
    while (rc == 0 && fscanf(f, "%lf", &x) == 1) {
        if (*n == room) {
            room = room ? room * 2 : 256;
            double *more = realloc(*values, room * sizeof(double));
            if (!more)
                rc = complain(path, "does not fit into memory");
            else
                *values = more;
        }
        if (rc == 0)
            (*values)[(*n)++] = x;
    }
    if (rc == 0 && !feof(f))
        rc = complain(path, "holds something that is not a number");
    fclose(f);
    if (rc < 0) {
        free(*values);
        *values = NULL;
    }
    return rc;
}

double spectrum_distance(const double *a, const double *b, size_t n)
{
    double worst = 0, scale = 1e-300;
    for (size_t i = 0; i < n; i++) {
        scale = fmax(scale, fabs(b[i]));
        worst = fmax(worst, fabs(a[i] - b[i]));
    }
    return worst / scale;
}
