/* What an action left: every object of the upper directory, as ENTRY events, parents first. */
#pragma once

#include "failure.h"
#include "ids.h"
#include "out.h"

/* Walks `upper` (an open directory; its own metadata is that of the guest's "/"). 0 or -errno and *failure. */
int layerwalk(int upper, const struct ids *ids, struct out *out, struct failure *failure);
