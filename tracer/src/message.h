/* What T, C and G say to each other during set-up: one SOCK_SEQPACKET pair, whose one end T holds, the other C and G. */
#pragma once

#include "failure.h"

enum message_kind {
        MESSAGE_FAILED = 1, /* C or G to T: `failure` says what; nothing more comes */
        MESSAGE_BORN,       /* G to T: its pid in T's namespace comes along as SCM_CREDENTIALS (unix(7)) */
        MESSAGE_MAPPED,     /* T to G: the id maps are written */
        MESSAGE_READY,      /* G to T: everything but the exec is done */
        MESSAGE_GO,         /* tracer to G: exec. Any byte will do */
};

struct message {
        int kind;
        int listener; /* MESSAGE_READY: G's descriptor for notifications, or -1; MESSAGE_MAPPED: -1, T could not take it */
        struct failure failure;
};

/* Sends one message, without payload except for MESSAGE_FAILED. 0 or -errno. */
int message_send(int fd, enum message_kind kind, const struct failure *failure);

/* The same for the two that speak of a listener. */
int message_send_listener(int fd, enum message_kind kind, int listener);

/* Receives one message; *pid (if wanted) is the sender's as seen from here. 0 or -errno; -ECONNRESET at the end. */
int message_receive(int fd, struct message *message, int *pid);
