#include "status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"

int status_line(int fd, const char *format, ...)
{
        char line[1024];
        va_list arguments;

        va_start(arguments, format);
        int length = vsnprintf(line, sizeof line - 1, format, arguments);
        va_end(arguments);
        if (length < 0)
                return -EINVAL;
        size_t size = (size_t)length < sizeof line - 1 ? (size_t)length : sizeof line - 2;
        line[size++] = '\n';
        for (size_t done = 0; done < size;) {
                ssize_t wrote = RETRY(write(fd, line + done, size - done));
                if (wrote < 0)
                        return -errno;
                done += (size_t)wrote;
        }
        return 0;
}

int status_failure(int fd, const struct failure *failure)
{
        char text[sizeof failure->text], operation[sizeof failure->operation];

        memcpy(text, failure->text, sizeof text);
        memcpy(operation, failure->operation, sizeof operation);
        for (char *c = text; *c; c++)
                if ((unsigned char)*c < ' ' || *c == 0x7f)
                        *c = '?';
        for (char *c = operation; *c; c++)
                if ((unsigned char)*c <= ' ' || *c == 0x7f)
                        *c = '?';
        return status_line(fd, "error %s %d %s", *operation ? operation : "?", failure->error, text);
}
