/* matrix.h - symmetric matrices and spectra in files
 *
 * A matrix file: 8 bytes "ABMATRX1", int64 order, order * order doubles, column by column, in the
 * byte order of the machine. A spectrum file: one number a line, ascending, 17 digits.
 */
#ifndef MATRIX_H
#define MATRIX_H

#include <stddef.h>

#define MATRIX_MAX_ORDER 20000

/* 0, or -1 after a message on stderr that names the file. The caller frees what it gets. */
int matrix_write(const char *path, const double *a, size_t order);
int matrix_read(const char *path, double **a, size_t *order);
int spectrum_write(const char *path, const double *values, size_t n);
int spectrum_read(const char *path, double **values, size_t *n);

/* Largest relative distance of two ascending spectra of n values. */
double spectrum_distance(const double *a, const double *b, size_t n);

#endif
