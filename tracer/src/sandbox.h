/* From a mount namespace full of host to one that holds the guest's world and nothing else. */
#pragma once

#include "failure.h"
#include "ids.h"
#include "spec.h"

/* Runs in C, once, in its fresh namespaces. Afterwards "/" is the guest's and the host's tree is gone. */
int sandbox_enter(const struct spec *spec, const struct ids *ids, struct failure *failure);
