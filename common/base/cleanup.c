/* cleanup.c - destructors of the two commonest things */
#include "cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ab_close(int *fd)
{
    int number = errno;
    if (*fd >= 0)
        close(*fd); /* not again on EINTR: Linux has let go of it by then */
    *fd = -1;
    errno = number;
}

void ab_free(void *pointer_to_pointer)
{
    void *pointer;
    memcpy(&pointer, pointer_to_pointer, sizeof(pointer));
    int number = errno;
    free(pointer);
    errno = number;
    pointer = NULL;
    memcpy(pointer_to_pointer, &pointer, sizeof(pointer));
}
