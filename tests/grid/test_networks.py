"""Networks of tests: who can talk to whom, and that nothing is left of them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.grid.networks import Networks, NoNetworksError
from tests.servers.fixtures import available

pytestmark = pytest.mark.crash
# After a heal, the kernel asks again for an address that nobody has answered for only when a second is over, and so it
# is with what TCP has sent: a shorter wait would find silence where there is none.
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 1), 4)
except ConnectionRefusedError:
    print("heard")
except OSError:
    print("silence")
"""


@pytest.fixture
def networks() -> Iterator[Networks]:
    made = Networks("abcd")
    available(made.__enter__, NoNetworksError)
    try:
        yield made
    finally:
        made.__exit__()


def heard(networks: Networks, *pairs: str) -> list[bool]:
    """Of each pair, whether the first gets an answer of the second."""
    asked = [
        subprocess.Popen(
            [*networks.command(one), sys.executable, "-c", _CONNECT, networks.address(other)], stdout=subprocess.PIPE
        )
        for one, other in map(tuple, pairs)
    ]
    return [process.communicate()[0] == b"heard\n" for process in asked]


def test_machines_on_one_side_of_a_split_can_talk(networks: Networks) -> None:
    pairs = "ab", "ba", "cd", "ac", "db"
    assert heard(networks, *pairs) == [True] * 5
    networks.split("ab", "cd")
    assert heard(networks, *pairs) == [True, True, True, False, False]
    networks.split("cb")
    assert heard(networks, "bc", "ab", "ad") == [True, False, False]
    networks.heal()
    assert heard(networks, *pairs) == [True] * 5


def test_two_alone_cannot_talk(networks: Networks) -> None:
    networks.part("a", "b")
    assert heard(networks, "ab", "ba", "ac", "cb", "cd") == [False, False, True, True, True]
    networks.heal()
    assert heard(networks, "ab") == [True]


def test_one_direction_is_cut(networks: Networks) -> None:
    networks.mute("a", to="b")
    # Either way there is no answer; other machines are heard.
    assert heard(networks, "ab", "ba", "ac", "cb") == [False, False, True, True]
    networks.heal()
    assert heard(networks, "ab", "ba") == [True, True]


def test_nothing_is_left_though_a_test_fails(networks: Networks) -> None:
    with contextlib.suppress(ZeroDivisionError), Networks("xy") as others:
        name = others.command("x")[-1]
        assert name in _namespaces()
        raise ZeroDivisionError
    assert name not in _namespaces()
    assert networks.command("a")[-1] in _namespaces()


def test_networks_that_cannot_be_made_are_reported_and_removed(networks: Networks) -> None:
    before = _namespaces()
    # No namespace has a name with a slash.
    with pytest.raises(NoNetworksError, match=r"ip netns add .* has failed, which needs root"), Networks(["x", "y/z"]):
        pass
    assert _namespaces() == before


def _namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in listed.splitlines()}
