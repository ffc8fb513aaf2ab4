/* See out.h. Events gather in one buffer, written as a frame when it passes FRAME_SIZE. */
#include "out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "msgpack.h"
#include "syscalls_generated.h"

enum {
	PROTOCOL_VERSION = 1,
	FRAME_SIZE = 64 * 1024,
	MOST_BLOB_BYTES = 64 * 1024 * 1024,
	FRAME_HEADER = 4 + 5, /* length, then the array32 header whose count is filled in late */
	STAT_OF_CWD = EV_XATTR_READ + 1, /* a bit of its own among the seen observations */
};

struct seen {
	uint32_t generation;
	uint16_t kinds; /* bit (kind - EV_READ) */
	bool announced; /* PATH was written */
};

struct out {
	int fd;
	int error;
	struct msgpack frame;
	uint32_t events; /* in the frame */
	struct intern paths;
	struct seen *seen; /* by path id */
	uint32_t seen_capacity;
	uint32_t generation;
	struct intern blobs;
	uint32_t blobs_written;
	size_t blob_bytes;
	struct intern said; /* keys of what is reported once */
	uint32_t said_count;
};

struct out *out_new(int fd)
{
	struct out *out = calloc(1, sizeof *out);

	if (out == NULL)
		return NULL;
	out->fd = fd;
	out->generation = 1;
	if (intern_init(&out->paths) < 0 || intern_init(&out->blobs) < 0 || intern_init(&out->said) < 0) {
		out_free(out);
		return NULL;
	}
	msgpack_reset(&out->frame, FRAME_HEADER);
	out->events++;
	msgpack_array(&out->frame, 3);
	msgpack_uint(&out->frame, EV_HELLO);
	msgpack_uint(&out->frame, PROTOCOL_VERSION);
	msgpack_str(&out->frame, TRACED_ARCH, strlen(TRACED_ARCH));
	return out;
}

void out_free(struct out *out)
{
	if (out == NULL)
		return;
	msgpack_free(&out->frame);
	intern_free(&out->paths);
	intern_free(&out->blobs);
	intern_free(&out->said);
	free(out->seen);
	free(out);
}

int out_error(const struct out *out)
{
	return out->error;
}

const struct intern *out_paths(const struct out *out)
{
	return &out->paths;
}

static int write_all(int fd, const unsigned char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t wrote = write(fd, bytes, len);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return -errno;
		bytes += wrote;
		len -= (size_t)wrote;
	}
	return 0;
}

int out_flush(struct out *out)
{
	struct msgpack *frame = &out->frame;

	if (out->events > 0 && out->error == 0) {
		if (frame->failed)
			out->error = -ENOMEM;
		else {
			uint32_t length = (uint32_t)(frame->len - 4);
			for (int i = 0; i < 4; i++)
				frame->bytes[i] = (unsigned char)(length >> (8 * i));
			frame->bytes[4] = MSGPACK_ARRAY32;
			for (int i = 0; i < 4; i++)
				frame->bytes[5 + i] = (unsigned char)(out->events >> (8 * (3 - i)));
			out->error = write_all(out->fd, frame->bytes, frame->len);
		}
	}
	msgpack_reset(frame, FRAME_HEADER);
	out->events = 0;
	return out->error;
}

/* Begins an event of `fields` fields, the kind included. False: the stream is broken, nothing is to be written. */
static bool begin(struct out *out, unsigned kind, uint32_t fields)
{
	if (out->error != 0)
		return false;
	if (out->frame.len >= FRAME_SIZE && out_flush(out) < 0)
		return false;
	out->events++;
	msgpack_array(&out->frame, fields);
	msgpack_uint(&out->frame, kind);
	return true;
}

uint32_t out_path(struct out *out, const char *path, size_t len)
{
	uint32_t id = intern_id(&out->paths, path, len);

	if (id >= out->seen_capacity) {
		uint32_t capacity = out->seen_capacity ? out->seen_capacity * 2 : 1024;
		struct seen *grown = realloc(out->seen, capacity * sizeof *grown);
		if (grown == NULL)
			abort();
		memset(grown + out->seen_capacity, 0, (capacity - out->seen_capacity) * sizeof *grown);
		out->seen = grown;
		out->seen_capacity = capacity;
	}
	return id;
}

static void announce(struct out *out, uint32_t path)
{
	if (out->seen[path].announced || !begin(out, EV_PATH, 3))
		return;
	out->seen[path].announced = true;
	msgpack_uint(&out->frame, path);
	msgpack_bin(&out->frame, intern_bytes(&out->paths, path), intern_len(&out->paths, path));
}

bool out_was_seen(const struct out *out, unsigned kind, uint32_t path)
{
	const struct seen *seen = &out->seen[path];
	return seen->generation == out->generation && (seen->kinds & (1u << (kind - EV_READ))) != 0;
}

static bool see(struct out *out, unsigned kind, uint32_t path)
{
	struct seen *seen = &out->seen[path];

	if (seen->generation != out->generation) {
		seen->generation = out->generation;
		seen->kinds = 0;
	}
	if (seen->kinds & (1u << (kind - EV_READ)))
		return false;
	seen->kinds |= (uint16_t)(1u << (kind - EV_READ));
	announce(out, path);
	return true;
}

void out_saw(struct out *out, unsigned kind, uint32_t path)
{
	if (kind == EV_STAT)
		out_saw_stat(out, path, false);
	else if (see(out, kind, path) && begin(out, kind, 2))
		msgpack_uint(&out->frame, path);
}

void out_saw_stat(struct out *out, uint32_t path, bool own_cwd)
{
	if (!see(out, own_cwd ? STAT_OF_CWD : EV_STAT, path) || !begin(out, EV_STAT, 3))
		return;
	msgpack_uint(&out->frame, path);
	msgpack_uint(&out->frame, own_cwd ? 1 : 0);
}

void out_forget(struct out *out)
{
	out->generation++;
}

void out_did(struct out *out, unsigned kind, uint32_t path)
{
	announce(out, path);
	if (begin(out, kind, 2))
		msgpack_uint(&out->frame, path);
}

static void path_and_number(struct out *out, unsigned kind, uint32_t path, unsigned number)
{
	announce(out, path);
	if (!begin(out, kind, 3))
		return;
	msgpack_uint(&out->frame, path);
	msgpack_uint(&out->frame, number);
}

void out_write(struct out *out, uint32_t path, bool truncated)
{
	path_and_number(out, EV_WRITE, path, truncated ? 1 : 0);
}

void out_meta(struct out *out, uint32_t path, unsigned what)
{
	path_and_number(out, EV_META, path, what);
}

void out_rename(struct out *out, uint32_t source, uint32_t target, bool exchange)
{
	announce(out, source);
	announce(out, target);
	if (!begin(out, EV_RENAME, 4))
		return;
	msgpack_uint(&out->frame, source);
	msgpack_uint(&out->frame, target);
	msgpack_uint(&out->frame, exchange ? 1 : 0);
}

void out_hardlink(struct out *out, uint32_t source, uint32_t target)
{
	announce(out, source);
	announce(out, target);
	if (!begin(out, EV_HARDLINK, 3))
		return;
	msgpack_uint(&out->frame, source);
	msgpack_uint(&out->frame, target);
}

static uint32_t blob(struct out *out, const char *bytes, size_t len)
{
	char unique[16];
	bool keep = out->blob_bytes < MOST_BLOB_BYTES;

	/* A guest may exec for ever with another environment: what is too much is written, and not remembered. */
	int unique_len = snprintf(unique, sizeof unique, "#%u", out->blobs_written);
	uint32_t id = keep ? intern_id(&out->blobs, bytes, len) : intern_id(&out->blobs, unique, (size_t)unique_len);

	if (id >= out->blobs_written && begin(out, EV_BLOB, 3)) {
		out->blobs_written = id + 1;
		out->blob_bytes += keep ? len : 0;
		msgpack_uint(&out->frame, id);
		msgpack_bin(&out->frame, bytes, len);
	}
	return id;
}

enum { NO_UMASK = 01000 };

void out_exec(struct out *out, const struct out_exec *exec)
{
	uint32_t argv = blob(out, exec->argv, exec->argv_len);
	uint32_t env = blob(out, exec->env, exec->env_len);

	announce(out, exec->path);
	announce(out, exec->cwd);
	if (!begin(out, EV_EXEC, 8))
		return;
	msgpack_uint(&out->frame, (uint64_t)exec->tid);
	msgpack_uint(&out->frame, exec->path);
	msgpack_uint(&out->frame, argv);
	msgpack_uint(&out->frame, env);
	msgpack_uint(&out->frame, exec->cwd);
	msgpack_uint(&out->frame, (uint64_t)exec->error);
	msgpack_uint(&out->frame, exec->umask < 0 ? NO_UMASK : (uint64_t)exec->umask);
}

/* True the first time this frame tail (the event just written from `start`) appears; else it is taken back. */
static void only_once(struct out *out, size_t start)
{
	struct msgpack *frame = &out->frame;

	if (frame->failed)
		return;
	uint32_t id = intern_id(&out->said, (const char *)frame->bytes + start, frame->len - start);
	if (id < out->said_count) {
		frame->len = start;
		out->events--;
	} else
		out->said_count = id + 1;
}

void out_connect(struct out *out, const struct out_connect *connect)
{
	if (!begin(out, EV_CONNECT, 6))
		return;
	size_t start = out->frame.len - 2; /* an array header and a kind below 128: one byte each */
	msgpack_uint(&out->frame, connect->op);
	msgpack_str(&out->frame, connect->family, strlen(connect->family));
	msgpack_bin(&out->frame, connect->address, connect->address_len);
	msgpack_uint(&out->frame, connect->port);
	msgpack_uint(&out->frame, (uint64_t)connect->error);
	only_once(out, start);
}

void out_credentials(struct out *out, int tid)
{
	if (begin(out, EV_CREDENTIALS, 2))
		msgpack_uint(&out->frame, (uint64_t)tid);
}

void out_umask(struct out *out)
{
	if (begin(out, EV_UMASK, 1))
		only_once(out, out->frame.len - 2);
}

void out_killed(struct out *out, int pid, const char *name, size_t len)
{
	if (!begin(out, EV_KILLED, 3))
		return;
	msgpack_uint(&out->frame, (uint64_t)pid);
	msgpack_bin(&out->frame, name, len);
}

void out_incomplete(struct out *out, const char *reason, const char *detail, size_t len)
{
	if (!begin(out, EV_INCOMPLETE, 3))
		return;
	size_t start = out->frame.len - 2;
	msgpack_str(&out->frame, reason, strlen(reason));
	msgpack_bin(&out->frame, detail, len);
	only_once(out, start);
}

void out_entry(struct out *out, const struct out_entry *entry)
{
	struct msgpack *frame = &out->frame;
	uint32_t path = out_path(out, entry->path, entry->path_len);

	announce(out, path);
	if (!begin(out, EV_ENTRY, 14))
		return;
	msgpack_uint(frame, path);
	msgpack_str(frame, entry->kind, strlen(entry->kind));
	msgpack_uint(frame, entry->mode);
	msgpack_uint(frame, entry->uid);
	msgpack_uint(frame, entry->gid);
	msgpack_uint(frame, entry->size);
	msgpack_int(frame, entry->mtime_ns);
	msgpack_uint(frame, entry->nlink);
	msgpack_uint(frame, entry->ino);
	msgpack_bin(frame, entry->target, entry->target == NULL ? 0 : entry->target_len);
	msgpack_uint(frame, entry->rdev);
	msgpack_bool(frame, entry->opaque);
	msgpack_array(frame, (uint32_t)entry->xattr_count);
	for (size_t i = 0; i < entry->xattr_count; i++) {
		msgpack_array(frame, 2);
		msgpack_bin(frame, entry->xattrs[i].name, entry->xattrs[i].name_len);
		msgpack_bin(frame, entry->xattrs[i].value, entry->xattrs[i].value_len);
	}
}

int out_end(struct out *out, uint64_t seccomp_stops, uint64_t exit_stops)
{
	if (begin(out, EV_END, 3)) {
		msgpack_uint(&out->frame, seccomp_stops);
		msgpack_uint(&out->frame, exit_stops);
	}
	return out_flush(out);
}
