/* main.c - the `auth` service */
#include "auth.h"

int main(int argc, char **argv)
{
    return ab_service_main(&auth_service, argc, argv);
}
