/* A descriptor that another process opened and passed on: what is done by it has the name of the file. */
#include "guest.h"

#include <sys/socket.h>

static void pass(int channel, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'x';
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	must(sendmsg(channel, &message, 0) == 1);
}

static int take(int channel)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	int fd;

	must(recvmsg(channel, &message, 0) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

int main(void)
{
	int ends[2], byte;

	must(mkdir("folder", 0755) == 0);
	put("folder/file", "x");
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		int file = take(ends[1]), folder = take(ends[1]);
		must(read(file, &byte, 1) == 1 && fchmod(file, 0600) == 0);
		must(faccessat(folder, "absent", F_OK, 0) < 0);
		must(openat(folder, "made", O_WRONLY | O_CREAT, 0644) >= 0);
		_exit(0);
	}
	pass(ends[0], open("folder/file", O_RDONLY));
	pass(ends[0], open("folder", O_PATH | O_DIRECTORY));
	finish_child(child);
	expect("READ", "folder/file");
	expect("META", "folder/file");
	expect("MISSED", "folder/absent");
	expect("CREATE", "folder/made");
	return 0;
}
