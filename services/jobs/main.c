#include "jobs.h"

int main(int argc, char **argv)
{
    return ab_service_main(&jobs_service, argc, argv);
}
