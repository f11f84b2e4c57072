#include "transfers.h"

int main(int argc, char **argv)
{
    return ab_service_main(&transfers_service, argc, argv);
}
