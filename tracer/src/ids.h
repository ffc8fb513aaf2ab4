/* Who is who: user and group ids of the caller, of the tracer's own user namespace, and of the guest's.
 *
 * With privilege, T stays in the caller's user namespace and the guest gets a range of otherwise unused ids. Without,
 * T makes a user namespace of its own (U1) in which it is root over nothing but its caller's id, so that it may make
 * mounts there; the guest's namespace (U2, a child of U1) then maps that one id back. user_namespaces(7). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "failure.h"
#include "spec.h"

/* Ranges whose `outside` is as T sees it, thus 0 for the own id without privilege. */
struct id_map {
        struct id_range ranges[SPEC_MAX_RANGES];
        size_t count;
};

struct ids {
        bool privileged;
        struct id_map uids;
        struct id_map gids;
};

enum { ID_UNMAPPED = 65534 }; /* what the kernel shows for an id without a mapping, user_namespaces(7) */

/* Checks the ranges asked for, and enters U1 where there is no privilege. */
int ids_prepare(struct ids *ids, const struct spec *spec, struct failure *failure);

/* Writes the maps of the guest's namespace; `guest` is in T's pid namespace. */
int ids_write_maps(const struct ids *ids, pid_t guest, struct failure *failure);

bool ids_outside(const struct id_map *map, uint32_t inside, uint32_t *outside);

/* The id inside, or ID_UNMAPPED. */
uint32_t ids_inside(const struct id_map *map, uint32_t outside);
