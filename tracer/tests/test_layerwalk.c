/* The walk reports each object of a directory once, parents first, without following or opening what is not a folder. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "check.h"
#include "layerwalk.h"

static const struct ids plain = {
        .uids = {.ranges = {{0, 0, 65536}}, .count = 1},
        .gids = {.ranges = {{0, 0, 65536}}, .count = 1},
};

/* The whole event stream of a walk over `folder`, in a file. */
static size_t walk(const char *folder, char *stream, size_t room, int expected)
{
        struct failure failure = {.operation = ""};
        FILE *file = tmpfile();
        int upper = open(folder, O_RDONLY | O_DIRECTORY);

        CHECK(file && upper >= 0);
        struct out *out = out_new(fileno(file));
        CHECK(out);
        int failed = layerwalk(upper, &plain, out, &failure);
        if (failed != expected)
                fprintf(stderr, "%s %d %s\n", failure.operation, failure.error, failure.text);
        CHECK(failed == expected);
        CHECK(!out_end(out, 0, 0));
        out_free(out);
        close(upper);
        rewind(file);
        size_t size = fread(stream, 1, room, file);
        fclose(file);
        return size;
}

static const char *find(const char *stream, size_t size, const char *part)
{
        return memmem(stream, size, part, strlen(part));
}

static void reports_all_kinds(void)
{
        char folder[] = "/tmp/layerwalk-XXXXXX", stream[65536];

        CHECK(mkdtemp(folder) && !chdir(folder));
        mode_t closed = geteuid() ? 0500 : 0; /* the tracer may pass a closed folder, a test run by a plain user not */
        CHECK(!mkdir("dir", 0700) && !mkdir("dir/inner", closed));
        CHECK(!symlink("/etc/passwd", "link") && !mkfifo("fifo", 0600));
        int file = open("dir/file", O_CREAT | O_WRONLY, 0640);
        CHECK(file >= 0 && write(file, "abc", 3) == 3);
        bool attributes = !fsetxattr(file, "user.note", "v1", 2, 0) && !fsetxattr(file, "user.overlay.origin", "o", 1, 0) &&
                          !fsetxattr(file, "user.overlay.overlay.opaque", "y", 1, 0) &&
                          !setxattr("dir", "user.overlay.opaque", "y", 1, 0);
        close(file);
        size_t size = walk(folder, stream, sizeof stream, 0);
        CHECK(find(stream, size, "/dir/file") && find(stream, size, "/dir/inner") && find(stream, size, "/etc/passwd"));
        CHECK(find(stream, size, "fifo") && find(stream, size, "link"));
        CHECK(find(stream, size, "/dir") < find(stream, size, "/dir/file"));
        if (attributes) {
                CHECK(find(stream, size, "user.note"));
                CHECK(!find(stream, size, "user.overlay.origin"));
                CHECK(find(stream, size, "user.overlay.overlay.opaque"));
        }
        unlink("dir/file");
        rmdir("dir/inner");
        rmdir("dir");
        unlink("link");
        unlink("fifo");
        CHECK(!chdir("/") && !rmdir(folder));
}

/* A tree may be deeper than any path can be long, and than there are descriptors; beyond a bound it is refused. */
static void goes_deep(int levels, int expected)
{
        static const char name[] = "a-name-of-a-folder-that-is-some-fifty-bytes-long-..";
        static char stream[1 << 24];
        char folder[] = "/tmp/layerwalk-XXXXXX";

        CHECK(mkdtemp(folder) && !chdir(folder));
        for (int i = 0; i < levels; i++)
                CHECK(!mkdir(name, 0700) && !chdir(name));
        walk(folder, stream, sizeof stream, expected);
        for (int i = 0; i < levels; i++)
                CHECK(!chdir("..") && !rmdir(name));
        CHECK(!chdir("/") && !rmdir(folder));
}

int main(void)
{
        reports_all_kinds();
        goes_deep(200, 0);
        goes_deep(1400, -ENAMETOOLONG);
        return 0;
}
