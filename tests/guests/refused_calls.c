/* What would leave the tracer or the sandbox is refused. */
#include "guest.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>

int main(void)
{
	must(syscall(SYS_io_uring_setup, 8, NULL) < 0 && errno == ENOSYS);
	must(syscall(SYS_clone3, NULL, 0) < 0 && errno == ENOSYS);
	must(syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, NULL, NULL, NULL, NULL) < 0 && errno == EPERM);
	must(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL) < 0 && errno == EPERM);
	must(unshare(CLONE_NEWUSER) < 0 && errno == EPERM);
	must(ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 && errno == EPERM);
	must(syscall(SYS_bpf, 0, NULL, 0) < 0 && errno == EPERM);
	must(syscall(SYS_keyctl, 0, 0) < 0 && errno == EPERM);
	must(syscall(SYS_seccomp, 1, 8, NULL) < 0 && errno == EPERM);
	must(syscall(SYS_process_vm_writev, getpid(), NULL, 0, NULL, 0, 0) < 0 && errno == EPERM);
	must(ioctl(0, TIOCSTI, "x") < 0 && errno == EPERM);
	expect("! INCOMPLETE", "/");
	return 0;
}
