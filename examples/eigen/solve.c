/* solve.c - all eigenvalues of a symmetric matrix, with LAPACK's dsyev
 *
 *     eigen-solve MATRIX OUTPUT
 */
#include "matrix.h"

#include <stdio.h>
#include <stdlib.h>

extern void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda,
                   double *w, double *work, const int *lwork, int *info);

static int eigenvalues(double *a, int n, double *values)
{
    int info = 0, lwork = -1;
    double best = 0;
    dsyev_("N", "U", &n, a, &n, values, &best, &lwork, &info); /* asks for the work space's size */
    if (info != 0)
        return info;
    lwork = (int)best;
    double *work = malloc((size_t)lwork * sizeof(double));
    if (!work)
        return -1000;
    dsyev_("N", "U", &n, a, &n, values, work, &lwork, &info);
    free(work);
    return info;
}

int main(int argc, char **argv)
{
    double *a = NULL, *values = NULL;
    size_t n = 0;
    int rc = 1;
    if (argc != 3) {
        fprintf(stderr, "usage: eigen-solve MATRIX OUTPUT\n");
        return 2;
    }
    if (matrix_read(argv[1], &a, &n) < 0)
        return 1;
    values = malloc(n * sizeof(double));
    if (!values) {
        fprintf(stderr, "%zu eigenvalues do not fit into memory\n", n);
    } else {
        int info = eigenvalues(a, (int)n, values);
        if (info != 0)
            fprintf(stderr, "%s: dsyev failed with info = %d\n", argv[1], info);
        else if (spectrum_write(argv[2], values, n) == 0) {
            printf("%zu eigenvalues, %.6g to %.6g\n", n, values[0], values[n - 1]);
            rc = 0;
        }
    }
    free(values);
    free(a);
    return rc;
}
