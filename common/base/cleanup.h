/* cleanup.h - clean-up belongs to the scope, success takes the object out of it
 *
 *     AB_AUTO(ab_buf_free) struct ab_buf text = {0};
 *     AB_AUTO(worker_destroy) worker_t *self = worker_new();
 *     ...
 *     return AB_TAKE(self);
 *
 * A destructor takes T ** (or T * for a struct held by value), accepts NULL and half-built objects.
 */
#ifndef AB_CLEANUP_H
#define AB_CLEANUP_H

#define AB_AUTO(destructor) __attribute__((cleanup(destructor)))

/* Hand a pointer over to the caller: the variable becomes NULL. */
#define AB_TAKE(pointer)                                                                           \
    __extension__({                                                                                \
        __typeof__(pointer) ab_taken = (pointer);                                                  \
        (pointer) = NULL;                                                                          \
        ab_taken;                                                                                  \
    })

/* The same for a descriptor: the variable becomes -1. */
#define AB_TAKE_FD(fd)                                                                             \
    __extension__({                                                                                \
        int ab_taken_fd = (fd);                                                                    \
        (fd) = -1;                                                                                 \
        ab_taken_fd;                                                                               \
    })

#define AB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* For AB_AUTO: close a descriptor (-1 is left alone), free a malloc'ed pointer. errno is kept. */
void ab_close(int *fd);
void ab_free(void *pointer_to_pointer);

#endif
