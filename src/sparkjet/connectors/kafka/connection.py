"""A connection to one broker: TLS, authentication, one request at a time."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import Self

from sparkjet.connectors.kafka import requests
from sparkjet.connectors.kafka.scram import Scram, ScramError
from sparkjet.connectors.kafka.wire import Decoder, Encoder, WireError

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.access import Access
    from sparkjet.connectors.kafka.requests import Node, Request

T = TypeVar("T")
_ANSWER_WITHIN = 15.0
"""Seconds to wait for a connection or an answer."""
_LONGEST = 256 << 20
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


class BrokerError(Exception):
    """A broker could not be reached or did not answer correctly; the message contains no secret."""


class RefusedError(BrokerError):
    """Authentication or TLS failed: a retry changes nothing."""


class Connection:
    """A connection to one broker; a context manager that closes it."""

    def __init__(self, node: Node, access: Access) -> None:
        """Connects and authenticates."""
        self._name = f"{node.host}:{node.port}"
        self._number = 0
        try:
            self._socket = socket.create_connection((node.host, node.port), _ANSWER_WITHIN)
        except OSError as error:
            raise BrokerError(f"{self._name} cannot be reached: {error.strerror or error}") from error
        except UnicodeError as error:
            # A broker may advertise such a name.
            raise BrokerError(f"{self._name} cannot be reached, as that is not a valid host name") from error
        try:
            # Small requests, each waited for: delaying them (Nagle) would cost 40 ms apiece.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if access.uses_tls:
                self._encrypt(node, access)
            if access.uses_sasl:
                self._authenticate(access)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._socket.close()

    def ask(self, request: Request[T]) -> T:
        """Send a request and wait for its answer."""
        self._number += 1
        header = Encoder().int16(request.key).int16(request.version).int32(self._number).string("sparkjet")
        if request.is_flexible:
            header.no_tags()
        sent = header.raw(request.body).encoded()
        try:
            self._socket.sendall(struct.pack(">i", len(sent)) + sent)
            answer = self._answer()
            if request.is_flexible:
                answer.skip_tags()
            return request.parse(answer)
        except OSError as error:
            raise BrokerError(f"{self._name} has not answered {request.name}: {error.strerror or error}") from error
        except WireError as error:
            raise BrokerError(f"{self._name} did not answer {request.name} in Kafka's protocol: {error}") from error

    def _answer(self) -> Decoder:
        (length,) = struct.unpack(">i", self._received(4))
        if not 0 < length <= _LONGEST:
            raise WireError(f"an answer of {length} bytes")
        answer = Decoder(self._received(length))
        if answer.int32() != self._number:
            raise WireError("the answer to another request")
        return answer

    def _received(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self._socket.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("connection closed")
            parts += part
        return bytes(parts)

    def _encrypt(self, node: Node, access: Access) -> None:
        try:
            self._socket = access.tls().wrap_socket(self._socket, server_hostname=node.host)
        except _HUNG_UP as error:
            # TLS errors by class, but they also occur when a broker stops, so a retry may succeed.
            message = f"{self._name}: no TLS connection, as the broker closed it. Does it listen with TLS?"
            raise BrokerError(message) from error
        except ssl.SSLError as error:
            message = f"{self._name}: no TLS connection ({error.reason or error}). Check kafka.ssl.ca.location."
            raise RefusedError(message) from error
        except OSError as error:
            message = f"{self._name}: no TLS connection ({error.strerror or error}). Does it listen with TLS?"
            raise BrokerError(message) from error

    def _authenticate(self, access: Access) -> None:
        error, offered = self.ask(requests.sasl_handshake(access.mechanism))
        if error:
            raise RefusedError(f"{self._name} does not offer kafka.sasl.mechanism={access.mechanism}, but {offered}")
        user, password = access.properties["sasl.username"], access.properties["sasl.password"]
        if access.mechanism == "PLAIN":
            self._exchange(f"\0{user}\0{password}".encode())
            return
        scram = Scram(access.mechanism, user, password)
        try:
            scram.verify(self._exchange(scram.final(self._exchange(scram.first()))))
        except ScramError as failed:
            raise RefusedError(f"{self._name}: authentication failed, as {failed}") from failed

    def _exchange(self, sent: bytes) -> bytes:
        error, answer = self.ask(requests.sasl_authenticate(sent))
        if error:
            message = f"{self._name}: authentication failed. Check kafka.sasl.username and kafka.sasl.password"
            raise RefusedError(message)
        return answer
