/* The filter, run by an interpreter of its own: every number of the table gets what its row says, unknown numbers and
 * other calling conventions are traced, and the arguments that are tested are tested. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "decode.h"
#include "filter.h"
#include "notify.h"

static const struct sock_filter program[] = {
#include "filter_generated.h"
};

static unsigned run(const struct seccomp_data *data)
{
	unsigned a = 0;

	for (size_t at = 0; at < sizeof program / sizeof program[0]; at++) {
		const struct sock_filter *i = &program[at];
		int taken;

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)data + i->k, sizeof a);
			continue;
		case BPF_RET | BPF_K:
			return i->k;
		case BPF_JMP | BPF_JA:
			at += i->k;
			continue;
		case BPF_JMP | BPF_JEQ | BPF_K:
			taken = a == i->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			taken = a >= i->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			taken = (a & i->k) != 0;
			break;
		default:
			assert(!"known instruction");
			return 0;
		}
		at += taken ? i->jt : i->jf;
	}
	assert(!"a program that ends");
	return 0;
}

static unsigned call(unsigned arch, long number, unsigned long first, unsigned long second)
{
	struct seccomp_data data = {.nr = (int)number, .arch = arch, .args = {first, second}};
	return run(&data);
}

static bool told_at_entry(const struct call_row *row)
{
	return row->decoder == DECODE_LOOK || row->decoder == DECODE_LOOK_FD || row->decoder == DECODE_LIST;
}

static unsigned action(unsigned result)
{
	return result & SECCOMP_RET_ACTION_FULL;
}

static void every_number(void)
{
	for (unsigned number = 0; number < 4096; number++) {
		const struct call_row *row = call_find(number);
		unsigned result = call(AUDIT_ARCH_X86_64, (long)number, 0, 0);
		if (row == NULL)
			assert(result == (SECCOMP_RET_TRACE | DATA_UNKNOWN));
		else if (number == SYS_sendto || number == SYS_prctl || number == SYS_mmap)
			assert(result == SECCOMP_RET_ALLOW); /* not with these arguments */
		else if (told_at_entry(row) || number == SYS_open || number == SYS_openat)
			assert(action(result) == SECCOMP_RET_USER_NOTIF && notify_row(row));
		else if (row->decoder != DECODE_NONE)
			assert(result == (SECCOMP_RET_TRACE | row->decoder | (row->needs_exit ? DATA_NEEDS_EXIT : 0u)));
		else
			assert(action(result) == SECCOMP_RET_ALLOW || action(result) == SECCOMP_RET_ERRNO);
	}
}

/* Lookups and plain opens come by notification, unless the argument that they don't have asks for a stop. */
static void notifications(void)
{
	struct seccomp_data look = {.nr = SYS_newfstatat, .arch = AUDIT_ARCH_X86_64};
	const unsigned no_plain[] = {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_NOATIME, O_TMPFILE};

	assert(action(run(&look)) == SECCOMP_RET_USER_NOTIF);
	look.args[5] = WANTS_STOP & 0xffffffff;
	assert(action(run(&look)) == SECCOMP_RET_USER_NOTIF);
	look.args[5] = WANTS_STOP & ~0xffffffffUL;
	assert(action(run(&look)) == SECCOMP_RET_USER_NOTIF);
	look.args[5] = WANTS_STOP;
	assert(run(&look) == (SECCOMP_RET_TRACE | DECODE_LOOK));
	for (size_t i = 0; i < sizeof no_plain / sizeof no_plain[0]; i++) {
		struct seccomp_data open = {.nr = SYS_open, .arch = AUDIT_ARCH_X86_64, .args = {0, no_plain[i] | O_CLOEXEC}};
		assert(run(&open) == (SECCOMP_RET_TRACE | DECODE_OPEN | DATA_NEEDS_EXIT));
		open.args[1] = O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_PATH;
		assert(action(run(&open)) == SECCOMP_RET_USER_NOTIF);
		open.args[5] = WANTS_STOP;
		assert(run(&open) == (SECCOMP_RET_TRACE | DECODE_OPEN | DATA_NEEDS_EXIT));
		struct seccomp_data at = {.nr = SYS_openat, .arch = AUDIT_ARCH_X86_64, .args = {0, 0, no_plain[i]}};
		assert(run(&at) == (SECCOMP_RET_TRACE | DECODE_OPEN | DATA_NEEDS_EXIT));
	}
	assert(action(call(AUDIT_ARCH_X86_64, SYS_creat, 0, 0)) == SECCOMP_RET_TRACE);
	assert(action(call(AUDIT_ARCH_X86_64, SYS_openat2, 0, 0)) == SECCOMP_RET_TRACE);
}

/* Under somebody's listener there can be no second one: then all are stops. In a child, for it stays filtered. */
static void under_a_listener(void)
{
	struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
	const struct sock_fprog all = {1, &allow};
	int status, listener;
	pid_t child = fork();

	assert(child >= 0);
	if (child == 0) {
		bool ready = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
			     syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &all) >= 0;
		if (ready && (filter_install(true, &listener) != 0 || listener != -1))
			_exit(1);
		/* No tracer is there: a stop fails with ENOSYS. A notification would wait for ever. */
		_exit(ready && access("/", F_OK) == 0);
	}
	assert(waitpid(child, &status, 0) == child && status == 0);
}

static void conventions(void)
{
	assert(call(AUDIT_ARCH_I386, SYS_read, 0, 0) == (SECCOMP_RET_TRACE | DATA_FOREIGN));
	assert(call(AUDIT_ARCH_X86_64, 0x40000000 | SYS_read, 0, 0) == (SECCOMP_RET_TRACE | DATA_FOREIGN));
	assert(call(AUDIT_ARCH_X86_64, -1, 0, 0) == SECCOMP_RET_ALLOW);
}

static void arguments(void)
{
	struct seccomp_data send = {.nr = SYS_sendto, .arch = AUDIT_ARCH_X86_64, .args = {0, 0, 0, 0, 1UL << 32, 16}};

	struct seccomp_data map = {.nr = SYS_mmap, .arch = AUDIT_ARCH_X86_64, .args = {0, 4096, 3, 0x22, 0xffffffffUL, 0}};

	assert(action(run(&send)) == SECCOMP_RET_TRACE);
	assert(run(&map) == SECCOMP_RET_ALLOW); /* private */
	map.args[3] = 0x21;
	assert(action(run(&map)) == SECCOMP_RET_TRACE);
	assert(call(AUDIT_ARCH_X86_64, SYS_clone, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND, 0) == SECCOMP_RET_ALLOW);
	assert(call(AUDIT_ARCH_X86_64, SYS_clone, CLONE_UNTRACED, 0) == (SECCOMP_RET_ERRNO | EPERM));
	assert(call(AUDIT_ARCH_X86_64, SYS_clone, CLONE_NEWNS, 0) == (SECCOMP_RET_ERRNO | EPERM));
	assert(call(AUDIT_ARCH_X86_64, SYS_unshare, CLONE_NEWUSER, 0) == (SECCOMP_RET_ERRNO | EPERM));
	assert(call(AUDIT_ARCH_X86_64, SYS_unshare, CLONE_FS, 0) == SECCOMP_RET_ALLOW);
	assert(call(AUDIT_ARCH_X86_64, SYS_ioctl, 0, 0x5412) == (SECCOMP_RET_ERRNO | EPERM));
	assert(call(AUDIT_ARCH_X86_64, SYS_ioctl, 0, 0xffffffff0000541cUL) == (SECCOMP_RET_ERRNO | EPERM));
	assert(call(AUDIT_ARCH_X86_64, SYS_ioctl, 0, 0x40086602) == (SECCOMP_RET_ERRNO | EOPNOTSUPP));
	assert(call(AUDIT_ARCH_X86_64, SYS_ioctl, 0, 0x5401) == SECCOMP_RET_ALLOW);
	assert(call(AUDIT_ARCH_X86_64, SYS_seccomp, 1, 8) == (SECCOMP_RET_ERRNO | EPERM));
	assert(call(AUDIT_ARCH_X86_64, SYS_seccomp, 1, 1) == SECCOMP_RET_ALLOW);
	assert(call(AUDIT_ARCH_X86_64, SYS_prctl, 4, 0) == SECCOMP_RET_ERRNO);
	assert(call(AUDIT_ARCH_X86_64, SYS_prctl, 4, 1) == SECCOMP_RET_ALLOW);
	assert(call(AUDIT_ARCH_X86_64, SYS_prctl, 15, 0) == SECCOMP_RET_ALLOW);
	assert(action(call(AUDIT_ARCH_X86_64, SYS_prctl, 24, 1)) == SECCOMP_RET_TRACE); /* PR_CAPBSET_DROP */
	assert(action(call(AUDIT_ARCH_X86_64, SYS_prctl, 28, 1)) == SECCOMP_RET_TRACE); /* PR_SET_SECUREBITS */
	for (unsigned family = 0; family < 64; family++) {
		bool usual = family <= 2 || family == 10 || family == 16 || family == 17;
		assert(call(AUDIT_ARCH_X86_64, SYS_socket, family, 1) ==
		       (usual ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EAFNOSUPPORT));
	}
	assert(call(AUDIT_ARCH_X86_64, SYS_clone3, 0, 0) == (SECCOMP_RET_ERRNO | ENOSYS));
	assert(call(AUDIT_ARCH_X86_64, SYS_ptrace, 0, 0) == (SECCOMP_RET_ERRNO | EPERM));
	assert(call(AUDIT_ARCH_X86_64, SYS_read, 0, 0) == SECCOMP_RET_ALLOW);
}

int main(void)
{
	every_number();
	notifications();
	under_a_listener();
	conventions();
	arguments();
	return 0;
}
