# ruff: noqa: INP001, T201 - a script of the demo, run inside its sandbox
"""The agent's memory: print the content of the entry that a query finds.  recall.py MEMORY.db QUERY"""

import sqlite3
import sys


def main() -> None:
    """Ask the memory and print its one answer."""
    memory = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    found = memory.execute(sys.argv[2]).fetchone()
    if found is None:
        sys.exit("the memory has no such entry")
    print(found[0])


main()
