/* The parts of launching that need no namespace: ids, messages between the processes, status lines, the environment. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "command.h"
#include "failure.h"
#include "ids.h"
#include "message.h"
#include "status.h"

static void maps_ids_both_ways(void)
{
        const struct id_map map = {.ranges = {{0, 100000, 10}, {1000, 5, 1}}, .count = 2};
        uint32_t outside = 0;

        CHECK(ids_outside(&map, 0, &outside) && outside == 100000);
        CHECK(ids_outside(&map, 9, &outside) && outside == 100009);
        CHECK(!ids_outside(&map, 10, &outside));
        CHECK(ids_outside(&map, 1000, &outside) && outside == 5);
        CHECK(ids_inside(&map, 100003) == 3);
        CHECK(ids_inside(&map, 5) == 1000);
        CHECK(ids_inside(&map, 0) == ID_UNMAPPED);
        CHECK(ids_inside(&map, 100010) == ID_UNMAPPED);
}

/* Ranges may end at the highest id; no sum may wrap around. */
static void maps_the_highest_ids(void)
{
        const struct id_map map = {.ranges = {{UINT32_MAX - 2, 7, 2}}, .count = 1};
        uint32_t outside = 0;

        CHECK(ids_outside(&map, UINT32_MAX - 1, &outside) && outside == 8);
        CHECK(!ids_outside(&map, 0, &outside));
        CHECK(!ids_outside(&map, UINT32_MAX, &outside));
        CHECK(ids_inside(&map, 8) == UINT32_MAX - 1);
}

static void messages_tell_who_sent_them(void)
{
        int ends[2], on = 1;
        pid_t sender = 0;
        struct message message;
        struct failure failure;

        CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
        CHECK(!setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
        CHECK(!message_send(ends[1], MESSAGE_BORN, NULL));
        CHECK(!message_receive(ends[0], &message, &sender));
        CHECK(message.kind == MESSAGE_BORN && sender == getpid());
        CHECK(fail(&failure, "mount", ENOENT, "no %s", "/x") == -ENOENT);
        CHECK(!message_send_listener(ends[1], MESSAGE_MAPPED, -1));
        CHECK(!message_receive(ends[0], &message, NULL));
        CHECK(message.kind == MESSAGE_MAPPED && message.listener == -1);
        CHECK(!message_send(ends[1], MESSAGE_FAILED, &failure));
        CHECK(!message_receive(ends[0], &message, NULL));
        CHECK(message.kind == MESSAGE_FAILED && message.failure.error == ENOENT);
        CHECK(strcmp(message.failure.operation, "mount") == 0 && strcmp(message.failure.text, "no /x") == 0);
        CHECK(send(ends[1], "x", 1, 0) == 1);
        CHECK(message_receive(ends[0], &message, NULL) == -EPROTO);
        close(ends[1]);
        CHECK(message_receive(ends[0], &message, NULL) == -ECONNRESET);
        CHECK(message_send(ends[0], MESSAGE_MAPPED, NULL) == -EPIPE);
        close(ends[0]);
}

/* A path with a newline in it can't make a second status line. */
static void status_lines_stay_lines(void)
{
        int ends[2];
        char line[256];
        struct failure failure;

        CHECK(!pipe(ends));
        fail(&failure, "mo unt", 2, "/a\nexited 0\x1b[m \xff");
        CHECK(!status_failure(ends[1], &failure));
        ssize_t got = read(ends[0], line, sizeof line - 1);
        CHECK(got > 0);
        line[got] = '\0';
        CHECK(strcmp(line, "error mo?unt 2 /a?exited 0?[m \xff\n") == 0);
        close(ends[0]);
        close(ends[1]);
}

static void long_status_lines_are_cut(void)
{
        int ends[2];
        char text[3000], line[4096];

        memset(text, 'x', sizeof text - 1);
        text[sizeof text - 1] = '\0';
        CHECK(!pipe(ends));
        CHECK(!status_line(ends[1], "error %s", text));
        ssize_t got = read(ends[0], line, sizeof line);
        CHECK(got > 6 && got <= 1024 && line[got - 1] == '\n' && memchr(line, '\0', (size_t)got) == NULL);
        close(ends[0]);
        close(ends[1]);
}

static void finds_variables(void)
{
        const char *const environment[] = {"PATHS=1", "PATH=/bin", "PATH=/late", NULL};

        CHECK(strcmp(command_variable(environment, "PATH"), "/bin") == 0);
        CHECK(!command_variable(environment, "PAT"));
        CHECK(!command_variable(environment + 3, "PATH"));
}

int main(void)
{
        maps_ids_both_ways();
        maps_the_highest_ids();
        messages_tell_who_sent_them();
        status_lines_stay_lines();
        long_status_lines_are_cut();
        finds_variables();
        return 0;
}
