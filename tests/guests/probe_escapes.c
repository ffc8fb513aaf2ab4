/* Tries every door out of the sandbox: one line each, the call and the errno it got (0: the door is open). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *name, long result)
{
	printf("%s %d\n", name, result < 0 ? errno : 0);
}

static long open_and_close(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? -1 : close(fd);
}

/* Whether a read gives anything at all: some files are masked by an empty one. */
static long read_some(const char *path)
{
	char byte;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -1;
	ssize_t got = read(fd, &byte, 1);
	int saved = errno;
	close(fd);
	errno = got == 0 ? ENODATA : saved;
	return got > 0 ? 0 : -1;
}

static void against_a_sibling(void)
{
	int ready[2], status;
	char word[8] = "sibling";
	struct iovec here = { word, sizeof word }, there = { word, sizeof word };

	if (pipe(ready) != 0)
		return;
	pid_t sibling = fork();
	if (sibling == 0) {
		pause();
		_exit(0);
	}
	tell("ptrace_seize", syscall(SYS_ptrace, PTRACE_SEIZE, sibling, 0, 0));
	tell("ptrace_attach", syscall(SYS_ptrace, PTRACE_ATTACH, sibling, 0, 0));
	tell("process_vm_writev", syscall(SYS_process_vm_writev, sibling, &here, 1, &there, 1, 0));
	int pidfd = (int)syscall(SYS_pidfd_open, sibling, 0);
	tell("pidfd_getfd", syscall(SYS_pidfd_getfd, pidfd, 1, 0));
	kill(sibling, SIGKILL);
	waitpid(sibling, &status, 0);
}

static void against_the_kernel(void)
{
	char ids[64] = { 0 };

	tell("bpf", syscall(SYS_bpf, 0, ids, sizeof ids));
	tell("perf_event_open", syscall(SYS_perf_event_open, ids, 0, -1, -1, 0));
	tell("keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0));
	tell("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -3));
	tell("request_key", syscall(SYS_request_key, "user", "x", NULL, 0));
	tell("userfaultfd", syscall(SYS_userfaultfd, 0));
	tell("io_uring_setup", syscall(SYS_io_uring_setup, 4, ids));
	tell("init_module", syscall(SYS_init_module, ids, 0, ""));
	tell("finit_module", syscall(SYS_finit_module, 0, "", 0));
	tell("delete_module", syscall(SYS_delete_module, "x", 0));
	tell("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0));
	tell("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL));
	tell("swapon", syscall(SYS_swapon, "/swap", 0));
	tell("acct", syscall(SYS_acct, "/acct"));
	tell("syslog", syscall(SYS_syslog, 3, ids, sizeof ids));
	tell("clock_settime", syscall(SYS_clock_settime, 0, ids));
	tell("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, ids, O_RDONLY));
	tell("seccomp_listener", syscall(SYS_seccomp, 1, 8, NULL));
	tell("clone_untraced", syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, NULL, NULL, NULL, NULL));
	tell("clone3", syscall(SYS_clone3, ids, sizeof ids));
	tell("raw_socket", socket(AF_INET, SOCK_RAW, 1));
	tell("packet_socket", socket(AF_PACKET, SOCK_RAW, 0));
	tell("iopl", syscall(SYS_iopl, 3));
	tell("tiocsti", ioctl(0, TIOCSTI, "x"));
	tell("tioclinux", ioctl(0, TIOCLINUX, ids));
	tell("controlling_terminal", open_and_close("/dev/tty", O_RDWR));
}

static void against_the_mounts(void)
{
	tell("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
	tell("bind", mount("/etc", "/tmp", NULL, MS_BIND, NULL));
	tell("remount", mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
	tell("umount", umount2("/proc", MNT_DETACH));
	tell("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp"));
	tell("chroot", chroot("/tmp"));
	tell("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
	tell("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
	tell("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, NULL, 0));
	tell("unshare_user", unshare(CLONE_NEWUSER));
	tell("unshare_mount", unshare(CLONE_NEWNS));
	tell("unshare_pid", unshare(CLONE_NEWPID));
	tell("unshare_net", unshare(CLONE_NEWNET));
	tell("clone_newuser", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
	int namespace = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	tell("setns", setns(namespace, 0));
	tell("whiteout", mknod("whiteout", S_IFCHR | 0600, makedev(0, 0)));
	tell("device", mknod("device", S_IFBLK | 0600, makedev(8, 0)));
}

static void against_the_files(void)
{
	tell("core_pattern", open_and_close("/proc/sys/kernel/core_pattern", O_WRONLY));
	tell("modprobe", open_and_close("/proc/sys/kernel/modprobe", O_WRONLY));
	tell("sysrq", open_and_close("/proc/sysrq-trigger", O_WRONLY));
	tell("release_agent", open_and_close("/sys/fs/cgroup/release_agent", O_WRONLY));
	tell("kcore", read_some("/proc/kcore"));
	tell("kmsg", open_and_close("/dev/kmsg", O_RDONLY));
	tell("mem", open_and_close("/dev/mem", O_RDONLY));
	tell("timer_list", read_some("/proc/timer_list"));
	tell("keys", read_some("/proc/keys"));
	tell("usr", open_and_close("/usr/planted", O_WRONLY | O_CREAT));
}

/* Everything that init and the tracer behind it are reached by. */
static void against_init(void)
{
	tell("init_mem", open_and_close("/proc/1/mem", O_RDWR));
	tell("init_maps", read_some("/proc/1/maps"));
	tell("init_environ", read_some("/proc/1/environ"));
	tell("init_exe", open_and_close("/proc/1/exe", O_RDONLY));
	tell("init_root", open_and_close("/proc/1/root/", O_RDONLY | O_DIRECTORY));
	tell("init_cwd", open_and_close("/proc/1/cwd/", O_RDONLY | O_DIRECTORY));
	tell("init_fds", open_and_close("/proc/1/fd", O_RDONLY | O_DIRECTORY) < 0 ? -1 : open_and_close("/proc/1/fd/0", O_RDONLY));
	tell("init_trace", syscall(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0));
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
	tell("init_getfd", syscall(SYS_pidfd_getfd, pidfd, 3, 0));
	kill(1, SIGKILL); /* ignored for a namespace's init, or not permitted */
	kill(1, SIGTERM);
	kill(-1, SIGCONT);
	tell("own_exe", open_and_close("/proc/self/exe", O_WRONLY));
	tell("parent", getppid() <= 1 ? 0 : -1);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	against_a_sibling();
	against_the_kernel();
	against_the_mounts();
	against_the_files();
	against_init();
	return 0;
}
