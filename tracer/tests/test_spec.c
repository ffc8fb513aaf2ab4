/* The operation list comes from another process: whatever it holds, it is taken apart rightly or refused by name. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "spec.h"

#define LIST(text) (text), sizeof(text) /* with the final NUL */
#define HEAD "version\0" "1\0"
#define BODY "idmap\0" "0\0" "100000\0" "65536\0" "lower\0/a\0lower\0/b\0upper\0/u\0/w\0cwd\0/\0" "uid\0" "0\0" "0\0"
#define TAIL "arg\0true\0end"

static int parse(struct spec *spec, const char *list, size_t size, struct spec_error *error)
{
        char *copy = malloc(size ? size : 1); /* exactly as long, so that a read beyond it is found */

        CHECK(copy);
        memcpy(copy, list, size);
        return spec_parse(spec, copy, size, error);
}

static void accepts(const char *list, size_t size, struct spec *spec)
{
        struct spec_error error;
        int failed = parse(spec, list, size, &error);

        if (failed)
                fprintf(stderr, "%s: %s\n", error.operation, error.text);
        CHECK(!failed);
}

static void refuses(const char *list, size_t size, const char *operation, const char *part)
{
        struct spec spec;
        struct spec_error error;

        CHECK(parse(&spec, list, size, &error) == -EINVAL);
        if (strcmp(error.operation, operation) != 0 || !strstr(error.text, part))
                fprintf(stderr, "%s: %s\n", error.operation, error.text);
        CHECK(strcmp(error.operation, operation) == 0);
        CHECK(strstr(error.text, part));
        spec_free(&spec);
}

static void takes_all_operations(void)
{
        struct spec spec;

        accepts(LIST(HEAD BODY "ro-bind\0/usr\0/usr\0tmpfs\0/run\0" "1755\0" "4096\0proc\0/proc\0" "dev\0/dev\0hostname\0box\0"
                     "rlimit\0nofile\0" "100\0unlimited\0walk\0" "1\0" "trace\0" "0\0umask\0" "077\0handoff\0" "1\0" "env\0A=1\0env\0B=\0arg\0sh\0arg\0\0" "arg\0x y\0end"),
                &spec);
        CHECK(spec.range_count == 1 && spec.ranges[0].outside == 100000 && spec.ranges[0].count == 65536);
        CHECK(spec.lower_count == 2 && strcmp(spec.lowers[0], "/a") == 0 && strcmp(spec.lowers[1], "/b") == 0);
        CHECK(strcmp(spec.upper, "/u") == 0 && strcmp(spec.work, "/w") == 0);
        CHECK(spec.mount_count == 4);
        CHECK(spec.mounts[0].kind == OP_RO_BIND && strcmp(spec.mounts[0].source, "/usr") == 0);
        CHECK(spec.mounts[1].kind == OP_TMPFS && spec.mounts[1].mode == 01755 && spec.mounts[1].bytes == 4096);
        CHECK(spec.mounts[2].kind == OP_PROC && spec.mounts[3].kind == OP_DEV);
        CHECK(spec.limit_count == 1 && spec.limits[0].resource == RLIMIT_NOFILE);
        CHECK(spec.limits[0].value.rlim_cur == 100 && spec.limits[0].value.rlim_max == RLIM_INFINITY);
        CHECK(spec.argc == 3 && strcmp(spec.argv[1], "") == 0 && strcmp(spec.argv[2], "x y") == 0 && !spec.argv[3]);
        CHECK(spec.env_count == 2 && strcmp(spec.envp[1], "B=") == 0 && !spec.envp[2]);
        CHECK(spec.walk && spec.untraced && spec.umask == 077 && spec.handoff);
        spec_free(&spec);
}

static void gives_an_empty_environment(void)
{
        struct spec spec;

        accepts(LIST(HEAD BODY TAIL), &spec);
        CHECK(spec.env_count == 0 && spec.envp && !spec.envp[0] && !spec.walk && !spec.untraced && spec.umask == 022 && !spec.handoff);
        spec_free(&spec);
}

static void refuses_a_wrong_frame(void)
{
        refuses("", 0, "spec", "empty");
        refuses("version", 7, "spec", "no end");
        refuses(LIST(BODY TAIL), "idmap", "`version` comes first");
        refuses(LIST("version\0" "2\0" BODY TAIL), "version", "speaks version 1");
        refuses(LIST(HEAD HEAD BODY TAIL), "version", "once");
        refuses(LIST(HEAD BODY "arg\0true"), "end", "cut off");
        refuses(LIST(HEAD BODY TAIL "\0walk\0" "1"), "walk", "after `end`");
        refuses(LIST(HEAD BODY "ro-bind\0/usr"), "ro-bind", "takes 2 arguments, has 1");
        refuses(LIST(HEAD BODY "mount\0/x"), "mount", "no operation");
        refuses(LIST(HEAD BODY "end"), "end", "no command");
        refuses(LIST(HEAD TAIL), "end", "no `lower`");
}

static void refuses_wrong_arguments(void)
{
        refuses(LIST(HEAD "idmap\0" "0\0-1\0" "1"), "idmap", "no number");
        refuses(LIST(HEAD "idmap\0" "0\0 1\0" "1"), "idmap", "no number");
        refuses(LIST(HEAD "idmap\0" "0\0" "1\0" "1x"), "idmap", "no number");
        refuses(LIST(HEAD "idmap\0" "0\0" "1\0" "0"), "idmap", "empty");
        refuses(LIST(HEAD "idmap\0" "0\0" "4294967294\0" "2"), "idmap", "32-bit");
        refuses(LIST(HEAD "idmap\0" "0\0" "99999999999999999999\0" "2"), "idmap", "no number");
        refuses(LIST(HEAD "idmap\0" "0\0" "10\0" "5\0idmap\0" "5\0" "14\0" "1"), "idmap", "overlap");
        refuses(LIST(HEAD "lower\0relative"), "lower", "no absolute path");
        refuses(LIST(HEAD "lower\0"), "lower", "no absolute path");
        refuses(LIST(HEAD "upper\0/a\0/b\0upper\0/a\0/b"), "upper", "twice");
        refuses(LIST(HEAD "tmpfs\0/run\0" "9\0" "1"), "tmpfs", "no number");
        refuses(LIST(HEAD "rlimit\0files\0" "1\0" "1"), "rlimit", "no limit");
        refuses(LIST(HEAD "rlimit\0nofile\0" "2\0" "1"), "rlimit", "soft limit");
        refuses(LIST(HEAD "hostname\0"), "hostname", "1 to 64");
        refuses(LIST(HEAD "walk\0yes"), "walk", "neither");
        refuses(LIST(HEAD "trace\0" "2"), "trace", "neither");
        refuses(LIST(HEAD "count\0" "2"), "count", "neither");
        refuses(LIST(HEAD "env\0=x"), "env", "NAME=VALUE");
        refuses(LIST(HEAD "umask\0" "1000"), "umask", "no number");
        refuses(LIST(HEAD "umask\0" "9"), "umask", "no number");
        refuses(LIST(HEAD "uid\0" "0\0" "4294967295"), "uid", "no number");
}

/* Every prefix of a good list, and every one with a byte changed, is taken or refused, and never read beyond its end. */
static void survives_damage(void)
{
        static const char list[] = HEAD BODY "tmpfs\0/run\0" "1755\0" "4096\0rlimit\0nofile\0" "1\0" "2\0" TAIL;
        char copy[sizeof list];
        struct spec spec;
        struct spec_error error;

        for (size_t size = 0; size < sizeof list; size++) {
                CHECK(parse(&spec, list, size, &error));
                spec_free(&spec);
        }
        for (size_t i = 0; i < sizeof list; i++) {
                for (int byte = 0; byte < 256; byte += 5) {
                        memcpy(copy, list, sizeof list);
                        copy[i] = (char)byte;
                        parse(&spec, copy, sizeof copy, &error);
                        spec_free(&spec);
                }
        }
}

static void reads_to_the_end(void)
{
        int ends[2];
        char *buffer = NULL;
        size_t size = 0;

        CHECK(!pipe(ends));
        CHECK(write(ends[1], "ab\0c", 4) == 4);
        close(ends[1]);
        CHECK(!spec_read(ends[0], &buffer, &size));
        CHECK(size == 4 && memcmp(buffer, "ab\0c", 4) == 0);
        close(ends[0]);
        free(buffer);
        CHECK(spec_read(-1, &buffer, &size) == -EBADF);
}

int main(void)
{
        takes_all_operations();
        gives_an_empty_environment();
        refuses_a_wrong_frame();
        refuses_wrong_arguments();
        survives_damage();
        reads_to_the_end();
        return 0;
}
