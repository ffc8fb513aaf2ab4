/* What is mounted over the overlay: read-only binds, tmpfs, proc, dev. */
#pragma once

#include "failure.h"
#include "ids.h"
#include "spec.h"

/* Carries out one operation under `root` (a descriptor of the attached overlay). */
int mounts_apply(int root, const struct mount_op *mount, const struct spec *spec, const struct ids *ids,
                 struct failure *failure);
