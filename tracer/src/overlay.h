/* The guest's root file system: one overlay of the stack's layers. */
#pragma once

#include "failure.h"
#include "ids.h"
#include "spec.h"

/* Makes the overlay; a descriptor of the mount, attached nowhere yet, or -errno. The caller stands in the mount
 * namespace that the mount is for. */
int overlay_mount(const struct spec *spec, const struct ids *ids, struct failure *failure);

/* Checks in /proc/self/mountinfo that the mount at `target` got the options that were asked for. */
int overlay_check(const char *target, struct failure *failure);
