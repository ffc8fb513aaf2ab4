/* The tracer's own executable, kept out of the guest's reach. */
#pragma once

#include "failure.h"

/* Goes on from a sealed copy in memory, if the guest's ids could write to the file. Does not return then. */
int selfexe_protect(char **argv, struct failure *failure);
