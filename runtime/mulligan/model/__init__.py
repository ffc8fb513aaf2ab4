"""The nouns of Mulligan, pure and frozen: nothing here touches a file, a process, a clock or a database."""
