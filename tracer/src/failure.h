/* What failed while a sandbox was set up: the `error` line of PROTOCOL.md § STATUS_FD, as a value. */
#pragma once

struct failure {
        char operation[32];
        int error; /* positive errno */
        char text[512];
};

/* Fills *failure and gives -error, so that a caller can `return fail(...)`. */
__attribute__((format(printf, 4, 5))) int fail(struct failure *failure, const char *operation, int error,
                                               const char *format, ...);
