"""Networks that a test cuts and heals: a network namespace for each machine, joined by bridges in one more."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack

from typing_extensions import Self

_RANGE = "10.213.7"
"""Addresses that are routed nowhere, and exist in the namespaces of one test only."""
_PORT = "eth0"
_NOBODY = "02:00:00:00:00:01"
"""An address on the link that no machine has."""


class NoNetworksError(Exception):
    """This machine does not allow network namespaces, or has no command to make them."""


class Networks:
    """Machines as a test sees them; a context manager that leaves nothing behind.

    A machine is a namespace with a link to a bridge. Who is on one bridge can talk to each other; there are as many
    bridges as machines, so that any split can be made. Nothing is told to either side when a link is cut, as if a
    switch had died: connections stay open, and what is sent is lost, until it is sent again after the heal.

    What these networks cannot do is to lose some of what is sent, or to delay it: that needs a queueing discipline of
    the kernel (netem), which not every machine has. Links are cut in both directions at once; one direction alone is
    cut on the way to the bridge (:meth:`mute`).

    Args:
        names: Of the machines.

    Raises:
        NoNetworksError: There can be none, when the block is entered.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        # Tests that run at the same time must not meet, and the names of namespaces are those of the whole machine.
        self._prefix = f"sparkjet-{secrets.token_hex(4)}"
        self._stack = ExitStack()
        self._muted: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._make(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def address(self, name: str) -> str:
        """The address of a machine."""
        return f"{_RANGE}.{self._names.index(name) + 1}"

    def command(self, name: str) -> tuple[str, ...]:
        """The beginning of a program's command line on a machine; the program has the id of the process."""
        return ("ip", "netns", "exec", self._namespace(name))

    def split(self, *groups: Collection[str]) -> None:
        """Cut the machines of different groups from each other; who is in none of them is alone."""
        bridge = {name: number for number, group in enumerate(groups) for name in group}
        alone = [name for name in self._names if name not in bridge]
        bridge |= {name: number for number, name in enumerate(alone, len(groups))}
        self._change(f"link set {self._end(name)} master bridge{number}" for name, number in bridge.items())

    def part(self, *names: str) -> None:
        """Cut some machines from each other that all the others can still talk to."""
        self._change(f"link set {self._end(name)} type bridge_slave isolated on" for name in names)

    def mute(self, name: str, to: str) -> None:
        """Lose what a machine sends to another one; it still hears that one, which is then never answered."""
        neighbour = f"neigh replace {self.address(to)} lladdr {_NOBODY} dev {_PORT} nud permanent"
        _ip("-n", self._namespace(name), *neighbour.split())
        self._muted.add(name)

    def heal(self) -> None:
        """Let all talk to each other again."""
        for name in self._muted:
            _ip("-n", self._namespace(name), "neigh", "flush", "dev", _PORT, "nud", "permanent")
        self._muted.clear()
        self._change(f"link set {self._end(name)} type bridge_slave isolated off" for name in self._names)
        self.split(self._names)

    def _make(self, stack: ExitStack) -> None:
        self._add("hub", stack)
        for number, name in enumerate(self._names):
            namespace = self._add(name, stack)
            self._change(
                [
                    f"link add bridge{number} type bridge",
                    f"link set bridge{number} up",
                    f"link add {self._end(name)} type veth peer name {_PORT} netns {namespace}",
                    f"link set {self._end(name)} up",
                ]
            )
            for command in (
                "link set lo up",
                f"addr add {self.address(name)}/24 dev {_PORT}",
                f"link set {_PORT} up",
            ):
                _ip("-n", namespace, *command.split())
        self.split(self._names)

    def _add(self, name: str, stack: ExitStack) -> str:
        namespace = self._namespace(name)
        _ip("netns", "add", namespace)
        # Its links go with it; not what still runs there, which whoever has started it has to end.
        stack.callback(_ip, "netns", "delete", namespace)
        return namespace

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _end(self, name: str) -> str:
        return f"port{self._names.index(name)}"

    def _change(self, commands: Iterable[str]) -> None:
        """Change links at the bridges, in one process: a split is to be there at once."""
        _ip("-n", self._namespace("hub"), "-batch", "-", lines=commands)


def _ip(*arguments: str, lines: Iterable[str] = ()) -> None:
    told = "".join(f"{line}\n" for line in lines)
    try:
        found = subprocess.run(["ip", *arguments], input=told, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoNetworksError("there is no command ip: install iproute2.") from error
    if found.returncode != 0:
        needs = "root, CAP_SYS_ADMIN and CAP_NET_ADMIN"
        raise NoNetworksError(f"ip {' '.join(arguments)} has failed, which needs {needs}: {found.stderr.strip()}")
