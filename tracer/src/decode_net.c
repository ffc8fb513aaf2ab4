/* connect, bind, sendto, sendmsg, sendmmsg: which peer.
 *
 * A socket with a path is a file: addressing it is a probe, binding it makes a name. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "decode.h"

enum { OP_CONNECT = 0, OP_BIND = 1, OP_SEND = 2, MOST_MESSAGES = 1024 };

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_un un;
	struct sockaddr_nl nl;
	char bytes[sizeof(struct sockaddr_storage)];
};

/* The address argument: its length, or 0 when there is none to be read. */
static size_t read_address(struct tracer *t, struct task *task, uint64_t at, uint64_t len, union address *address)
{
	memset(address, 0, sizeof *address);
	len = (uint32_t)len; /* an int for the kernel */
	if (at == 0 || len < sizeof address->any.sa_family || len > sizeof *address)
		return 0;
	if (guest_read(t, task, at, address, len) != (ssize_t)len) {
		task->pending.unread = true;
		return 0;
	}
	if (address->any.sa_family == AF_UNIX && len > sizeof address->un)
		return 0; /* EINVAL, as in unix_validate_addr() */
	return (size_t)len;
}

/* The path of a named socket; 0 for an abstract or an unnamed one. */
static size_t socket_path(const union address *address, size_t len)
{
	size_t start = offsetof(struct sockaddr_un, sun_path);

	if (address->any.sa_family != AF_UNIX || len <= start)
		return 0;
	return strnlen(address->un.sun_path, len - start);
}

static void report(struct tracer *t, unsigned op, const union address *address, size_t len, int error)
{
	char text[INET6_ADDRSTRLEN] = "", number[16];
	struct out_connect connect = { .op = op, .address = text, .error = error };

	switch (address->any.sa_family) {
	case AF_UNSPEC:
		return; /* dissolves an association: no peer */
	case AF_INET:
		connect.family = "inet";
		inet_ntop(AF_INET, &address->in.sin_addr, text, sizeof text);
		connect.port = ntohs(address->in.sin_port);
		break;
	case AF_INET6:
		connect.family = "inet6";
		inet_ntop(AF_INET6, &address->in6.sin6_addr, text, sizeof text);
		connect.port = ntohs(address->in6.sin6_port);
		break;
	case AF_UNIX:
		if (len <= offsetof(struct sockaddr_un, sun_path))
			return; /* autobind: the kernel chooses */
		connect.family = "unix-abstract";
		connect.address = address->un.sun_path + 1;
		connect.address_len = len - offsetof(struct sockaddr_un, sun_path) - 1;
		break;
	case AF_NETLINK:
		connect.family = "netlink";
		connect.port = address->nl.nl_pid;
		break;
	case AF_PACKET:
		connect.family = "packet";
		break;
	default:
		snprintf(number, sizeof number, "%u", address->any.sa_family);
		connect.family = number;
		break;
	}
	if (connect.address == text)
		connect.address_len = strlen(text);
	out_connect(t->out, &connect);
}

static struct found walk_socket(struct tracer *t, struct task *task, const union address *address, size_t len,
				bool follow)
{
	char path[sizeof address->un.sun_path + 1];
	struct walk_from from = { .dirfd = AT_FDCWD, .follow = follow };

	memcpy(path, address->un.sun_path, len);
	path[len] = '\0';
	struct found found = walk_at(t, task, from, path, len);
	if (found.what == FOUND_OBJECT)
		out_saw(t->out, EV_PROBE, found.path);
	return found;
}

static void send_to(struct tracer *t, struct task *task, uint64_t at, uint64_t size)
{
	union address address;
	size_t len = read_address(t, task, at, size, &address), path = socket_path(&address, len);

	if (path > 0)
		walk_socket(t, task, &address, path, true);
	else if (len > 0)
		report(t, OP_SEND, &address, len, 0);
}

enum after connect_enter(struct tracer *t, struct task *task)
{
	union address address;
	size_t len = read_address(t, task, task->pending.args[1], task->pending.args[2], &address);
	size_t path = socket_path(&address, len);

	if (path > 0)
		walk_socket(t, task, &address, path, true);
	return len > 0 && path == 0 ? AFTER_WANTS_EXIT : AFTER_CONTINUE;
}

void connect_leave(struct tracer *t, struct task *task, int64_t result)
{
	union address address;
	size_t len = read_address(t, task, task->pending.args[1], task->pending.args[2], &address);

	if (len > 0)
		report(t, OP_CONNECT, &address, len, result < 0 ? (int)-result : 0);
}

enum after bind_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;
	union address address;
	size_t len = read_address(t, task, call->args[1], call->args[2], &address);
	size_t path = socket_path(&address, len);

	call->walked = path > 0;
	if (call->walked)
		call->first = walk_socket(t, task, &address, path, false);
	return len > 0 ? AFTER_WANTS_EXIT : AFTER_CONTINUE;
}

void bind_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;
	union address address;

	if (!call->walked) {
		size_t len = read_address(t, task, call->args[1], call->args[2], &address);
		if (len > 0)
			report(t, OP_BIND, &address, len, result < 0 ? (int)-result : 0);
		return;
	}
	if (result < 0)
		return;
	names_changed(t);
	if (call->first.what == FOUND_ABSENT)
		out_did(t->out, EV_MKNOD, call->first.path);
	else
		incomplete(t, "walk_failed", "bind");
}

enum after sendto_enter(struct tracer *t, struct task *task)
{
	send_to(t, task, task->pending.args[4], task->pending.args[5]);
	return AFTER_CONTINUE;
}

enum after sendmsg_enter(struct tracer *t, struct task *task)
{
	struct msghdr message;

	if (guest_read(t, task, task->pending.args[1], &message, sizeof message) == (ssize_t)sizeof message)
		send_to(t, task, (uint64_t)(uintptr_t)message.msg_name, message.msg_namelen);
	else
		task->pending.unread = true;
	return AFTER_CONTINUE;
}

enum after sendmmsg_enter(struct tracer *t, struct task *task)
{
	struct mmsghdr message;
	uint64_t count = (uint32_t)task->pending.args[2];

	for (uint64_t i = 0; i < count && i < MOST_MESSAGES; i++) {
		uint64_t at = task->pending.args[1] + i * sizeof message;
		if (guest_read(t, task, at, &message, sizeof message) != (ssize_t)sizeof message) {
			task->pending.unread = true;
			break;
		}
		send_to(t, task, (uint64_t)(uintptr_t)message.msg_hdr.msg_name, message.msg_hdr.msg_namelen);
	}
	return AFTER_CONTINUE;
}
