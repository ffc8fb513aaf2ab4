# ruff: noqa: INP001, T201 - a script of the demo, run inside its sandbox
"""Restart the service and ask for its health over HTTP.  restart.py config.yaml PORT"""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PATIENCE_S = 20.0


def health(url: str, service: "subprocess.Popen[bytes]") -> str:
    """The service's answer, asked for until it comes, the service ends or patience does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            with opener.open(url, timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())
        except OSError:
            if service.poll() is not None:
                sys.exit("the service did not start")
            time.sleep(0.02)
    sys.exit("the service does not answer")


def main() -> None:
    """Start the service, print its health, stop it."""
    service = subprocess.Popen([sys.executable, str(Path(__file__).with_name("service.py")), sys.argv[1]])
    try:
        print(health(f"http://127.0.0.1:{sys.argv[2]}/health", service))
    finally:
        service.terminate()
        service.wait()


main()
