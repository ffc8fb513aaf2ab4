#include "message.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"

int message_send(int fd, enum message_kind kind, const struct failure *failure)
{
        struct message message = {.kind = (int)kind};
        size_t size = failure ? sizeof message : offsetof(struct message, failure);

        if (failure)
                message.failure = *failure;
        /* MSG_NOSIGNAL: the other side may be gone, which is an answer and no reason to die of SIGPIPE */
        if (RETRY(send(fd, &message, size, MSG_NOSIGNAL)) < 0)
                return -errno;
        return 0;
}

int message_send_listener(int fd, enum message_kind kind, int listener)
{
        struct message message = {.kind = (int)kind, .listener = listener};

        return RETRY(send(fd, &message, offsetof(struct message, failure), MSG_NOSIGNAL)) < 0 ? -errno : 0;
}

int message_receive(int fd, struct message *message, int *pid)
{
        union {
                struct cmsghdr header;
                char room[CMSG_SPACE(sizeof(struct ucred))];
        } control;
        struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
        struct msghdr header = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.room,
                .msg_controllen = sizeof control.room,
        };

        memset(message, 0, sizeof *message);
        ssize_t got = RETRY(recvmsg(fd, &header, MSG_CMSG_CLOEXEC));
        if (got < 0)
                return -errno;
        if ((size_t)got < offsetof(struct message, failure))
                return got ? -EPROTO : -ECONNRESET;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); pid && c; c = CMSG_NXTHDR(&header, c)) {
                struct ucred sender;
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
                        continue;
                memcpy(&sender, CMSG_DATA(c), sizeof sender);
                *pid = sender.pid;
        }
        return 0;
}
