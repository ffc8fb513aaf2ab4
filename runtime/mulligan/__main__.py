"""`python -m mulligan`: the command line."""

from mulligan.cli.main import entry

if __name__ == "__main__":
    entry()
