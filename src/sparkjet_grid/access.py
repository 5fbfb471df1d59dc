"""Access to a grid: the token that every call carries, and the certificates of both sides."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from sparkjet_grid.errors import AnalysisError

TOKEN_VARIABLE = "SPARKJET_GRID_TOKEN"  # noqa: S105 - a name
_SHORTEST = 16
_HEADER = "authorization"
_ADDRESS = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^][:/@\s]+)):(?P<port>[0-9]{1,5})")
_OF_PORT = errno.EADDRINUSE, errno.EACCES


@dataclass(frozen=True)
class Access:
    """Names the files with a grid's secrets, never the secrets themselves, so it can be logged and sent to executors.

    Attributes:
        token_file: Contains the token; without one it is in the environment, as ``SPARKJET_GRID_TOKEN``.
        certificate: PEM file with this side's certificate; without one there is no TLS.
        key: PEM file with its key.
        authorities: PEM file with the authorities that sign the certificates of all members and clients.
    """

    token_file: str | None = None
    certificate: str | None = None
    key: str | None = None
    authorities: str | None = None

    def __post_init__(self) -> None:
        files = self.certificate, self.key, self.authorities
        if any(files) and not all(files):
            raise AnalysisError(
                "--tls-certificate, --tls-key and --tls-authorities belong together: a grid trusts a member or client "
                "by its certificate, on both sides. Name all three, or none."
            )

    @property
    def is_encrypted(self) -> bool:
        """Whether connections are over TLS."""
        return self.certificate is not None

    def uri(self, host: str, port: int) -> str:
        """The URI of a member, as Arrow Flight takes it."""
        shown = f"[{host}]" if ":" in host else host
        return f"{'grpc+tls' if self.is_encrypted else 'grpc'}://{shown}:{port}"

    def uri_of(self, address: str) -> str:
        """The URI of an address as users write it, ``host:port``."""
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found["port"]) not in range(1, 65536):
            raise AnalysisError(f'"{address}" is not host:port of a member, as 10.0.0.1:5710 and [::1]:5710 are.')
        return self.uri(found["six"] or found["host"], int(found["port"]))

    def token(self) -> str:
        """The token, read each time, as it may have been replaced."""
        if self.token_file is not None:
            token, where = _content(self.token_file, "--token-file").decode("ascii", "replace").strip(), self.token_file
        else:
            token, where = os.environ.get(TOKEN_VARIABLE, ""), f"the environment variable {TOKEN_VARIABLE}"
        if len(token) < _SHORTEST or not (token.isascii() and token.isprintable()):
            raise AnalysisError(
                f"--token-file: {where} has no token of at least {_SHORTEST} printable characters. Every call to a "
                "grid carries one, the same on all members and clients: put one into a file that only you can read "
                "(umask 077; openssl rand -hex 32 > FILE), and name it with --token-file."
            )
        return token

    def client_options(self) -> dict[str, Any]:
        """Arguments of a Flight client, besides its address."""
        if not self.is_encrypted:
            return {}
        return {
            "tls_root_certs": _content(self.authorities, "--tls-authorities"),
            "cert_chain": _content(self.certificate, "--tls-certificate"),
            "private_key": _content(self.key, "--tls-key"),
        }

    def server_options(self) -> dict[str, Any]:
        """Arguments of a Flight server, besides its address."""
        options: dict[str, Any] = {"middleware": {"token": _TokenCheck(self.token())}}
        if self.is_encrypted:
            pair = _content(self.certificate, "--tls-certificate"), _content(self.key, "--tls-key")
            options |= {
                "tls_certificates": [pair],
                "verify_client": True,
                "root_certificates": _content(self.authorities, "--tls-authorities"),
            }
        return options

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that every call carries."""
        return [(_HEADER.encode(), f"Bearer {self.token()}".encode())]

    def check_bind(self, host: str) -> None:
        """Refuse an address at which others could read what is sent."""
        if not (self.is_encrypted or is_loopback(host)):
            raise AnalysisError(
                f"--bind: {host} can be reached from other machines, where token and data would be sent in the clear. "
                "Add --tls-certificate, --tls-key and --tls-authorities, or bind to 127.0.0.1."
            )


class _TokenCheck(fl.ServerMiddlewareFactory):  # type: ignore[misc] # pyarrow has no types
    """Refuses calls without the token before any of their data is read."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> None:  # noqa: ARG002 - Flight's signature
        """Check the token of one call."""
        found = headers.get(_HEADER, [])
        values = [value.encode() if isinstance(value, str) else value for value in found]
        # In constant time, so that how long a refusal takes does not tell how much of a guess is right.
        if len(values) != 1 or not hmac.compare_digest(values[0], self._expected):
            raise fl.FlightUnauthenticatedError("the token is missing or wrong.")


def create_token(file: Path) -> None:
    """Write a new token to a file that only its owner can read; does nothing if the file exists."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(secrets.token_hex(32))


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _content(file: str | None, option: str) -> bytes:
    try:
        return Path(file or "").read_bytes()
    except OSError as error:
        raise AnalysisError(f'{option}: "{file}" cannot be read: {error.strerror}.') from error


def addresses(host: str, option: str) -> set[str]:
    """The IP addresses of a host."""
    return {str(found[4][0]) for found in _resolved(host, 0, option)}


def check_free(host: str, port: int, host_option: str, port_option: str) -> None:
    """Refuse an address at which this process cannot listen, as servers do not say so, or not why."""
    family, kind, _, _, address = _resolved(host, port, host_option)[0]
    with socket.socket(family, kind) as probe:
        # As servers do: connections of an earlier one may still be closing.
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
    """A free port of this machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _resolved(host: str, port: int, option: str) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value] # narrower there
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a name"
        raise AnalysisError(
            f'{option}: "{host}" is not an address of a machine, nor a name of one: {reason}.'
        ) from error
