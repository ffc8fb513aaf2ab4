/* Ownership by scope: a variable marked `cleanup_fd` or `cleanup_free` gives up what it holds when it goes out of
 * scope; `steal_fd` and `steal_ptr` hand it on. (GCC manual, "Common Variable Attributes", cleanup.) */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* close(2): on Linux the descriptor is gone even when EINTR is returned, so it is never retried. */
static inline void close_fd(int *fd)
{
        if (*fd >= 0) {
                int saved = errno;
                close(*fd);
                errno = saved;
                *fd = -1;
        }
}

static inline void free_ptr(void *at)
{
        void **pointer = at;

        free(*pointer);
        *pointer = NULL;
}

static inline int steal_fd(int *fd)
{
        int given = *fd;

        *fd = -1;
        return given;
}

static inline void *steal_ptr(void *at)
{
        void **pointer = at;
        void *given = *pointer;

        *pointer = NULL;
        return given;
}

#define cleanup_fd __attribute__((cleanup(close_fd)))
#define cleanup_free __attribute__((cleanup(free_ptr)))

/* For a path's buffer: the build zeroes variables at their birth (-ftrivial-auto-var-init), which for one of these costs
 * as much as a system call. What fills it says how much of it there is. */
#ifdef __has_attribute
#if __has_attribute(uninitialized)
#define not_zeroed __attribute__((uninitialized))
#endif
#endif
#ifndef not_zeroed
#define not_zeroed
#endif

/* A call that a signal may interrupt before it did anything is made again (signal(7)). */
#define RETRY(call)                                         \
        ({                                                  \
                __typeof__(call) retried_;                  \
                do                                          \
                        retried_ = (call);                  \
                while (retried_ == -1 && errno == EINTR);   \
                retried_;                                   \
        })
