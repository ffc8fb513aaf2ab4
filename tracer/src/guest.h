/* G: the process that becomes the guest's command. */
#pragma once

#include "ids.h"
#include "spec.h"

/* Takes the guest's identity, gives up all else, waits to be traced, and execs; never returns. */
_Noreturn void guest_run(struct spec *spec, const struct ids *ids, int channel);
