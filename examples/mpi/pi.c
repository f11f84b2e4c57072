/* pi.c - pi by the midpoint rule, the intervals dealt out to the ranks
 *
 *     mpiexec -n 4 mpi-pi INTERVALS
 *
 * Rank 0 prints "pi = <value>, <ranks> ranks" and fails if the value is off by more than the method
 * allows.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank = 0, ranks = 0;
    double part = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    long n = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (n < 1 || n > 1000000000) {
        if (rank == 0)
            fprintf(stderr, "usage: mpi-pi INTERVALS (1 to 1000000000)\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (long i = rank; i < n; i += ranks) {
        double x = ((double)i + 0.5) / (double)n;
        part += 4 / (1 + x * x);
    }
    MPI_Reduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    double pi = sum / (double)n, allowed = 1.0 / ((double)n * (double)n) + 1e-12;
    if (rank == 0)
        printf("pi = %.12f, %d ranks\n", pi, ranks);
    MPI_Finalize();
    return rank == 0 && fabs(pi - M_PI) > allowed ? 1 : 0;
}
