#include "sessions.h"

int main(int argc, char **argv)
{
    return ab_service_main(&sessions_service, argc, argv);
}
