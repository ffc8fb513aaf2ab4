"""The command line: a view. It reads arguments and the environment, calls `mulligan.session`, prints. No rule lives here."""
