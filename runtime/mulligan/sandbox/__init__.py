"""Running one action: bases, layers, stacks, and the way to the tracer program that launches and watches it."""
