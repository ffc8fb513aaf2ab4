/* What is loaded into a shell so that it hands on what it exports: inside/handoff.c, which this program carries with it. */
#pragma once

#include "failure.h"
#include "spec.h"

/* Puts the object into a descriptor of the guest's and its name into LD_PRELOAD; the object takes away both. To be called
 * in G before its filter is on. 0 or -errno. */
int preload_prepare(struct spec *spec, struct failure *failure);
