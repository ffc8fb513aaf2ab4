# ruff: noqa: INP001, T201 - a script of the demo, run inside its sandbox
"""Back a database up through SQLite's own backup interface.  backup.py CONNECTION_FILE BACKUP.db"""

import sqlite3
import sys
from pathlib import Path


def main() -> None:
    """Copy the database that the connection string names, page by page, and count what was copied."""
    path = Path(sys.argv[1]).read_text().strip().partition("sqlite:")[2]
    target = Path(sys.argv[2])
    if target.exists():
        target.unlink()
    source, copy = sqlite3.connect(f"file:{path}?mode=ro", uri=True), sqlite3.connect(str(target))
    with copy:
        source.backup(copy)
    tables = [name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    copy.close()
    print(f"backed up {path}: tables {', '.join(tables)}")


main()
