"""Free ports for the servers of tests, several processes of which may run at the same time."""

from __future__ import annotations

import os
import random
import re
import socket

# Below the ports that Linux assigns automatically, so that no other program takes one between its choice and
# its use.
FIRST, ABOVE = 12_000, 10_000
EACH = 600
"""Ports per test process; 16 times as many fit below ``FIRST + ABOVE``."""


def free_ports(count: int) -> list[int]:
    """Returns free ports, of which the ports 10,000 above, which SeaweedFS uses, are free, too."""
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % 16
    first = FIRST + worker * EACH
    found: list[int] = []
    for port in random.sample(range(first, first + EACH), EACH):
        if len(found) < count and _is_free(port) and _is_free(port + ABOVE):
            found.append(port)
    assert len(found) == count, f"no {count} ports are free from {first} on"
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
