/* The guest's root file system: one overlay of the stack's layers. */
#pragma once

#include "failure.h"
#include "ids.h"
#include "spec.h"

/* Mounts the overlay and gives a descriptor of its root, or -errno. It is attached over its own upper directory: a place in
 * the host's tree that is sure to exist, in a mount namespace that nobody else sees. The overlay itself works on a private
 * clone of what lies there. */
int overlay_mount(const struct spec *spec, const struct ids *ids, struct failure *failure);
