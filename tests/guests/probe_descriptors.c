/* Files that are written by another process, through another descriptor or under another name than they were opened by.
 * Prints what was written, one absolute path a line. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define must(condition) ((condition) ? (void)0 : (perror(#condition), exit(1)))

static void send_descriptor(int channel, int fd)
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

static int receive_descriptor(int channel)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	int fd;

	must(recvmsg(channel, &message, 0) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void by_message(void)
{
	int ends[2], status;

	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	pid_t other = fork();
	if (other == 0) {
		must(write(receive_descriptor(ends[1]), "passed", 6) == 6);
		_exit(0);
	}
	int fd = open("passed", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	send_descriptor(ends[0], fd);
	close(fd);
	must(waitpid(other, &status, 0) == other && status == 0);
	puts("/workspace/passed");
}

static void by_mapping(void)
{
	int fd = open("mapped", O_RDWR | O_CREAT, 0644);

	must(ftruncate(fd, 4096) == 0);
	char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(map != MAP_FAILED && close(fd) == 0);
	strcpy(map, "mapped");
	puts("/workspace/mapped");
}

static void by_openat2(void)
{
	struct open_how how = { .flags = O_WRONLY | O_CREAT, .mode = 0644, .resolve = RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, "second", &how, sizeof how);

	must(fd >= 0 && write(fd, "second", 6) == 6 && close(fd) == 0);
	puts("/workspace/second");
}

static void by_a_removed_name(void)
{
	int fd = open("temporary", O_RDWR | O_CREAT, 0644);
	char name[64];

	must(unlink("temporary") == 0 && write(fd, "back", 4) == 4);
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	must(open(name, O_RDONLY) >= 0);
	int unnamed = open(".", O_TMPFILE | O_WRONLY, 0644);
	must(unnamed >= 0 && write(unnamed, "named", 5) == 5);
	snprintf(name, sizeof name, "/proc/self/fd/%d", unnamed);
	must(linkat(AT_FDCWD, name, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
	puts("/workspace/named");
}

static void by_a_memory_file(char **argv)
{
	int program = open(argv[0], O_RDONLY), memory = memfd_create("program", 0), status;
	char block[65536];
	ssize_t got;

	must(program >= 0 && memory >= 0);
	while ((got = read(program, block, sizeof block)) > 0)
		must(write(memory, block, (size_t)got) == got);
	pid_t child = fork();
	if (child == 0) {
		char *again[] = { argv[0], "only-write", NULL }, *none[] = { NULL };
		syscall(SYS_execveat, memory, "", again, none, AT_EMPTY_PATH);
		_exit(1);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	puts("/workspace/from-memory");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return open("from-memory", O_WRONLY | O_CREAT, 0644) < 0;
	by_message();
	by_mapping();
	by_openat2();
	by_a_removed_name();
	by_a_memory_file(argv);
	return 0;
}
