/* Who outlived the main process, by name. */
#pragma once

struct tracer;

/* The main process has ended: who is left will be killed with the pid namespace. Named now, while they have names,
 * and reported when they are seen to be killed: one that just ends by itself was no survivor. */
void note_survivors(struct tracer *t);
