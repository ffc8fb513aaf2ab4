/* The tree was shaped by the guest: names, depth and attributes are hostile. The walk never follows a symlink and
 * opens nothing but folders; it goes up again by "..", so that its depth costs no descriptors; and no path is handed to
 * the kernel whole, so that it may be longer than PATH_MAX. The guest is dead by now: nothing moves under the walk. */
#include "layerwalk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cleanup.h"

#define TRUSTED_PREFIX "trusted.overlay."
#define USER_PREFIX "user.overlay."

/* A path of n levels is told n times, once per object on it: without a bound a guest of a few thousand mkdir calls
 * would make gigabytes of events. */
enum { MAX_PATH_BYTES = 16 * PATH_MAX };

/* The names of one folder that are still to be visited. */
struct level {
        char **names;
        size_t count, next;
        size_t path_length; /* of the folder's own path */
};

struct walk {
        const struct ids *ids;
        struct out *out;
        struct failure *failure;
        const char *prefix; /* of the overlay's own attributes */

        int directory; /* where the walk stands */
        char *path;    /* what is being looked at, as inside */
        size_t path_room;

        struct level *levels;
        size_t depth, level_room;
};

/* The attributes of one object: two buffers, and pointers into them. */
struct attributes {
        char *names, *values;
        struct out_xattr *list;
        size_t count;
        bool opaque, whiteout;
};

static void free_attributes(struct attributes *attributes)
{
        free(attributes->names);
        free(attributes->values);
        free(attributes->list);
}

static int walk_error(struct walk *walk, int error, const char *what)
{
        return fail(walk->failure, "walk", error, "%s %.300s: %s", what, walk->path, strerror(error));
}

/* Where the l…xattr calls find the object without a path of ours getting long. */
static void name_object(const struct walk *walk, const char *name, char *place, size_t size)
{
        if (*name)
                snprintf(place, size, "/proc/self/fd/%d/%s", walk->directory, name);
        else
                snprintf(place, size, "/proc/self/fd/%d/.", walk->directory);
}

/* Sorts one attribute: the overlay's own says what the object is, any other belongs to the state. An attribute that
 * the guest named like the overlay's own is kept by the overlay with the prefix doubled, and stays so here. */
static bool is_own_attribute(const struct walk *walk, const char *name, const char *value, ssize_t size,
                             struct attributes *found)
{
        size_t length = strlen(walk->prefix);

        if (strncmp(name, walk->prefix, length) != 0 || strncmp(name + length, "overlay.", 8) == 0)
                return false;
        if (strcmp(name + length, "opaque") == 0)
                found->opaque |= size == 1 && *value == 'y';
        if (strcmp(name + length, "whiteout") == 0)
                found->whiteout = true;
        return true;
}

static int read_values(const struct walk *walk, const char *place, ssize_t listed, struct attributes *found)
{
        size_t used = 0, room = 4096, count = 0;

        for (const char *name = found->names; name < found->names + listed; name += strlen(name) + 1)
                count++;
        found->values = malloc(room + (size_t)XATTR_SIZE_MAX);
        found->list = calloc(count, sizeof *found->list);
        size_t *offsets __attribute__((cleanup(free_ptr))) = calloc(count, sizeof *offsets);
        if (!found->values || !found->list || !offsets)
                return -ENOMEM;
        for (const char *name = found->names; name < found->names + listed; name += strlen(name) + 1) {
                ssize_t size = lgetxattr(place, name, found->values + used, XATTR_SIZE_MAX);
                if (size < 0)
                        return -errno;
                if (is_own_attribute(walk, name, found->values + used, size, found))
                        continue;
                offsets[found->count] = used;
                found->list[found->count++] = (struct out_xattr){
                        .name = name, .name_len = strlen(name), .value_len = (size_t)size};
                used += (size_t)size;
                if (used > room) {
                        room = used * 2;
                        char *larger = realloc(found->values, room + (size_t)XATTR_SIZE_MAX);
                        if (!larger)
                                return -ENOMEM;
                        found->values = larger;
                }
        }
        for (size_t i = 0; i < found->count; i++)
                found->list[i].value = found->values + offsets[i];
        return 0;
}

static int read_attributes(struct walk *walk, const char *name, struct attributes *found)
{
        char place[NAME_MAX + 64];

        *found = (struct attributes){0};
        name_object(walk, name, place, sizeof place);
        ssize_t size = llistxattr(place, NULL, 0);
        if (size == 0 || (size < 0 && errno == ENOTSUP))
                return 0;
        if (size < 0)
                return walk_error(walk, errno, "attributes of");
        found->names = malloc((size_t)size);
        if (!found->names)
                return walk_error(walk, ENOMEM, "attributes of");
        size = llistxattr(place, found->names, (size_t)size);
        int failed = size < 0 ? -errno : read_values(walk, place, size, found);
        return failed ? walk_error(walk, -failed, "attributes of") : 0;
}

static const char *kind_of(const struct stat *what, bool whiteout)
{
        switch (what->st_mode & S_IFMT) {
        case S_IFDIR:
                return "dir";
        case S_IFLNK:
                return "link";
        case S_IFIFO:
                return "fifo";
        case S_IFSOCK:
                return "sock";
        case S_IFBLK:
                return "block";
        case S_IFCHR:
                return what->st_rdev ? "char" : "whiteout"; /* overlayfs.rst, "whiteouts and opaque directories" */
        default:
                return whiteout && !what->st_size ? "whiteout" : "file"; /* the xattr form, for overlays in overlays */
        }
}

/* Reports the object called `name` in the current folder ("" is the folder itself). */
static int report(struct walk *walk, const char *name, const struct stat *what)
{
        __attribute__((cleanup(free_attributes))) struct attributes attributes;
        char target[PATH_MAX];
        ssize_t target_length = 0;
        int failed = read_attributes(walk, name, &attributes);

        if (failed)
                return failed;
        if (S_ISLNK(what->st_mode)) {
                target_length = readlinkat(walk->directory, name, target, sizeof target);
                if (target_length < 0)
                        return walk_error(walk, errno, "reading the link");
        }
        out_entry(walk->out, &(struct out_entry){
                .path = walk->path,
                .path_len = strlen(walk->path),
                .kind = kind_of(what, attributes.whiteout),
                .mode = what->st_mode & 07777,
                .uid = ids_inside(&walk->ids->uids, what->st_uid),
                .gid = ids_inside(&walk->ids->gids, what->st_gid),
                .size = S_ISREG(what->st_mode) ? (uint64_t)what->st_size : 0,
                .mtime_ns = (int64_t)what->st_mtim.tv_sec * 1000000000 + what->st_mtim.tv_nsec,
                .nlink = what->st_nlink,
                .ino = what->st_ino,
                .target = S_ISLNK(what->st_mode) ? target : NULL,
                .target_len = (size_t)target_length,
                .rdev = what->st_rdev,
                .opaque = attributes.opaque,
                .xattrs = attributes.list,
                .xattr_count = attributes.count,
        });
        failed = out_error(walk->out);
        return failed ? walk_error(walk, -failed, "reporting") : 0;
}

static int by_bytes(const void *left, const void *right)
{
        const char *const *first = left, *const *second = right;

        return strcmp(*first, *second);
}

static void free_level(struct level *level)
{
        for (size_t i = 0; i < level->count; i++)
                free(level->names[i]);
        free(level->names);
}

static int add_name(struct level *level, const char *name)
{
        if (!(level->count & (level->count - 1))) { /* a power of two, or none */
                char **larger = realloc(level->names, (level->count ? level->count * 2 : 1) * sizeof *larger);
                if (!larger)
                        return -ENOMEM;
                level->names = larger;
        }
        level->names[level->count] = strdup(name);
        return level->names[level->count++] ? 0 : -ENOMEM;
}

/* Reads the names of the current folder, in the order of their bytes: the same state gives the same stream. */
static int list_names(int directory, struct level *level)
{
        int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *stream = copy < 0 ? NULL : fdopendir(copy);
        int failed = 0;

        if (!stream) {
                failed = -errno;
                close_fd(&copy);
                return failed;
        }
        for (errno = 0; !failed;) {
                const struct dirent *entry = readdir(stream);
                if (!entry) {
                        failed = -errno;
                        break;
                }
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        failed = add_name(level, entry->d_name);
        }
        closedir(stream);
        if (!failed && level->count)
                qsort(level->names, level->count, sizeof *level->names, by_bytes);
        return failed;
}

/* Makes the folder where the walk stands the innermost level. */
static int push_level(struct walk *walk)
{
        if (walk->depth == walk->level_room) {
                size_t room = walk->level_room ? walk->level_room * 2 : 16;
                struct level *larger = realloc(walk->levels, room * sizeof *larger);
                if (!larger)
                        return walk_error(walk, ENOMEM, "listing");
                walk->levels = larger;
                walk->level_room = room;
        }
        struct level *level = &walk->levels[walk->depth++];
        *level = (struct level){.path_length = strlen(walk->path)};
        int failed = list_names(walk->directory, level);
        return failed ? walk_error(walk, -failed, "listing") : 0;
}

static int move_to(struct walk *walk, const char *name)
{
        int next = openat(walk->directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (next < 0)
                return walk_error(walk, errno, "opening");
        close(walk->directory);
        walk->directory = next;
        return 0;
}

/* The current path becomes that of `name` in the innermost folder. */
static int set_path(struct walk *walk, const struct level *level, const char *name)
{
        size_t length = level->path_length == 1 ? 0 : level->path_length; /* "/" ends in its separator */
        size_t needed = length + 1 + strlen(name) + 1;

        if (needed > MAX_PATH_BYTES)
                return walk_error(walk, ENAMETOOLONG, "naming an object below");
        if (needed > walk->path_room) {
                char *larger = realloc(walk->path, needed * 2);
                if (!larger)
                        return walk_error(walk, ENOMEM, "naming");
                walk->path = larger;
                walk->path_room = needed * 2;
        }
        walk->path[length] = '/';
        strcpy(walk->path + length + 1, name);
        return 0;
}

/* Visits the next name of the innermost level, or leaves that level. */
static int step(struct walk *walk)
{
        struct level *level = &walk->levels[walk->depth - 1];
        struct stat what;

        if (level->next == level->count) {
                free_level(level);
                walk->depth--;
                return walk->depth ? move_to(walk, "..") : 0;
        }
        const char *name = level->names[level->next++];
        int failed = set_path(walk, level, name);
        if (failed)
                return failed;
        if (fstatat(walk->directory, name, &what, AT_SYMLINK_NOFOLLOW))
                return walk_error(walk, errno, "looking at");
        failed = report(walk, name, &what);
        if (failed || !S_ISDIR(what.st_mode))
                return failed;
        failed = move_to(walk, name);
        return failed ? failed : push_level(walk);
}

int layerwalk(int upper, const struct ids *ids, struct out *out, struct failure *failure)
{
        struct walk walk = {
                .ids = ids,
                .out = out,
                .failure = failure,
                .prefix = ids->privileged ? TRUSTED_PREFIX : USER_PREFIX,
                .directory = openat(upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                .path = strdup("/"),
                .path_room = 2,
        };
        struct stat what;
        int failed = 0;

        if (!walk.path)
                failed = fail(failure, "walk", ENOMEM, "no memory");
        else if (walk.directory < 0 || fstat(walk.directory, &what))
                failed = walk_error(&walk, errno, "opening");
        if (!failed)
                failed = report(&walk, "", &what);
        if (!failed)
                failed = push_level(&walk);
        while (!failed && walk.depth)
                failed = step(&walk);
        while (walk.depth)
                free_level(&walk.levels[--walk.depth]);
        free(walk.levels);
        free(walk.path);
        close_fd(&walk.directory);
        return failed;
}
