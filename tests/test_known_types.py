"""Types that several threads decode for the first time at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, msgspec
from {}.known_types import known

sys.setswitchinterval(1e-6)
for number in range(100):
    inner = msgspec.defstruct("Inner", [("a", int), ("b", str)])
    outer = msgspec.defstruct("Outer", [("x", int), ("i", list[inner]), ("z", str)])
    content = msgspec.msgpack.encode({"x": 1, "i": [{"a": 1, "b": "c"}] * 50, "z": "q"})
    together = threading.Barrier(6)

    def run():
        together.wait()
        msgspec.msgpack.decode(content, type=known(outer))

    threads = [threading.Thread(target=run) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
"""


# The grid has it too, as it imports nothing of sparkjet.
@pytest.mark.parametrize("package", ["sparkjet", "sparkjet_grid"])
def test_threads_that_decode_a_type_for_the_first_time_at_once_live(package: str) -> None:
    """A member of the grid, and whoever asked it, died of the first requests that came at once (SIGSEGV)."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{}", package, 1)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
