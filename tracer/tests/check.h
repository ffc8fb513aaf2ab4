/* A test program runs its checks in main() and exits 0 when all of them held. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                          \
        do {                                                                                      \
                if (!(condition)) {                                                               \
                        fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
                        exit(1);                                                                  \
                }                                                                                 \
        } while (0)
