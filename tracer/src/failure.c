#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

int fail(struct failure *failure, const char *operation, int error, const char *format, ...)
{
        va_list arguments;

        snprintf(failure->operation, sizeof failure->operation, "%s", operation);
        failure->error = error;
        va_start(arguments, format);
        vsnprintf(failure->text, sizeof failure->text, format, arguments);
        va_end(arguments);
        return -error;
}
