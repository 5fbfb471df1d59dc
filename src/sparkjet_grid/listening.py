"""Listening: whether this machine can listen at an address, and what is wrong with it if not, before a server tries."""

from __future__ import annotations

import errno
import socket

from sparkjet_grid.errors import AnalysisError

_OF_PORT = errno.EADDRINUSE, errno.EACCES


def addresses(host: str, option: str) -> set[str]:
    """The addresses of a host."""
    return {str(found[4][0]) for found in _resolved(host, 0, option)}


def check_free(host: str, port: int, host_option: str, port_option: str) -> None:
    """Refuse an address at which this process cannot listen: servers do not say so, or not why."""
    family, kind, _, _, address = _resolved(host, port, host_option)[0]
    with socket.socket(family, kind) as probe:
        # As servers do: connections of one that has ended may still be about to close.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            option, way_out = (
                (port_option, "Name another port, or 0 for any that is free.")
                if error.errno in _OF_PORT
                else (host_option, "Name an address of this machine.")
            )
            message = f"{option}: this member cannot listen at {host}, port {port}: {error.strerror}. {way_out}"
            raise AnalysisError(message) from error


def free_port(host: str) -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _resolved(host: str, port: int, option: str) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value] # narrower there
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name"
        message = f'{option}: "{host}" is no address of a machine, and no name of one: {reason}.'
        raise AnalysisError(message) from error
