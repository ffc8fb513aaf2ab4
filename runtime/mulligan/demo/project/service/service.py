# ruff: noqa: INP001 - a script of the demo, run inside its sandbox
"""The service that is deployed: a small HTTP server over the database its config names.  service.py config.yaml"""

import json
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def tenants(database: str) -> int:
    """How many tenants the database serves; the service does not start without them."""
    path = database.partition("sqlite:")[2]
    try:
        (count,) = sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("SELECT count(*) FROM tenants").fetchone()
    except sqlite3.Error as error:
        sys.exit(f"cannot connect to the database {path}: {error}")
    return int(count)


def main() -> None:
    """Read the config, connect, and serve /health on the loopback until stopped."""
    lines = Path(sys.argv[1]).read_text().splitlines()
    config = {name.strip(): value.strip() for name, _, value in (line.partition(": ") for line in lines)}
    health = {"status": "healthy", "database": config["database"], "tenants": tenants(config["database"])}

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(health).encode()
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    HTTPServer(("127.0.0.1", int(config["port"])), Health).serve_forever()


main()
