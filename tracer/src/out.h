/* The event stream: frames of MessagePack events on EVENT_FD, as tracer/PROTOCOL.md describes them.
 *
 * Knows the wire form and which observations were reported already. Knows nothing of system calls.
 * A write error is sticky: every later call is a no-op and out_error() says it, so that callers check once per turn. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "intern.h"

struct out;

/* Takes the descriptor for writing (it stays the caller's to close) and queues HELLO. NULL: no memory. */
struct out *out_new(int fd);
void out_free(struct out *out);

/* 0, or the -errno of the first write that failed. */
int out_error(const struct out *out);

/* Ids of paths. Interning alone writes nothing; PATH goes out before the first event that uses the id. */
uint32_t out_path(struct out *out, const char *path, size_t len);
const struct intern *out_paths(const struct out *out);

/* An observation (READ … XATTR_READ). Left out when the same one was reported since the last out_forget(). */
void out_saw(struct out *out, unsigned kind, uint32_t path);
void out_saw_stat(struct out *out, uint32_t path, bool own_cwd);
bool out_was_seen(const struct out *out, unsigned kind, uint32_t path);
/* Names moved: the same path may now be another object, so observations count anew. */
void out_forget(struct out *out);

/* Mutations; never left out. */
void out_did(struct out *out, unsigned kind, uint32_t path);
void out_write(struct out *out, uint32_t path, bool truncated);
void out_rename(struct out *out, uint32_t source, uint32_t target, bool exchange);
void out_hardlink(struct out *out, uint32_t source, uint32_t target);
void out_meta(struct out *out, uint32_t path, unsigned what);

struct out_exec {
	int tid;
	uint32_t path, cwd;
	const char *argv; /* NUL-joined */
	size_t argv_len;
	const char *env;
	size_t env_len;
	int error; /* positive errno, 0 when it ran */
	int umask; /* of the caller, when it did not run; -1 for not asked */
};
void out_exec(struct out *out, const struct out_exec *exec);

struct out_connect {
	unsigned op; /* 0 connect, 1 bind, 2 send */
	const char *family;
	const char *address;
	size_t address_len;
	unsigned port;
	int error;
};
/* A repeated one is left out. */
void out_connect(struct out *out, const struct out_connect *connect);
void out_credentials(struct out *out, int tid);
/* Once. */
void out_umask(struct out *out);
void out_killed(struct out *out, int pid, const char *name, size_t len);
/* Each (reason, detail) once. */
void out_incomplete(struct out *out, const char *reason, const char *detail, size_t len);

struct out_xattr {
	const char *name;
	size_t name_len;
	const char *value;
	size_t value_len;
};

struct out_entry {
	const char *path; /* absolute, as inside */
	size_t path_len;
	const char *kind; /* "file" "dir" "link" "fifo" "sock" "char" "block" "whiteout" */
	uint32_t mode;    /* permission bits */
	uint32_t uid, gid; /* as inside */
	uint64_t size;
	int64_t mtime_ns;
	uint64_t nlink, ino;
	const char *target; /* of a symlink; NULL for none */
	size_t target_len;
	uint64_t rdev;
	bool opaque;
	const struct out_xattr *xattrs;
	size_t xattr_count;
};
void out_entry(struct out *out, const struct out_entry *entry);

/* END, and everything on its way. Returns out_error(). */
int out_end(struct out *out, uint64_t seccomp_stops, uint64_t exit_stops);
/* Everything queued so far on its way. Returns out_error(). */
int out_flush(struct out *out);
