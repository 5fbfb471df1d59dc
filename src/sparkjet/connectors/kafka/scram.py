"""SCRAM, the client's side (RFC 5802): the password never leaves this process, and the server is verified too."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST, MOST = 4096, 10_000_000
"""Bounds of the iterations that a server may ask for: fewer are unsafe, more would take hours."""
_START = "n,,"


class ScramError(Exception):
    """The server violated the protocol, or does not know the password."""


@dataclass
class Scram:
    """One exchange: :meth:`first`, :meth:`final` with the server's answer, :meth:`verify` with its last one.

    Attributes:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        username: The user's name.
        password: Never shown.
        nonce: The client's nonce; random unless a test sets one.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def first(self) -> bytes:
        """The client's first message."""
        return f"{_START}{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The proof that answers the server's challenge."""
        try:
            given = _fields(challenge)
            nonce, salt, rounds = given["r"], base64.b64decode(given["s"]), int(given["i"])
        except (KeyError, ValueError) as error:
            raise ScramError("the challenge is incomplete or not text") from error
        if not nonce.startswith(self.nonce) or nonce == self.nonce or not FEWEST <= rounds <= MOST:
            raise ScramError("the challenge is not for this client")
        hash_ = HASHES[self.mechanism]
        salted = hashlib.pbkdf2_hmac(hash_, self.password.encode(), salt, rounds)
        key = hmac.digest(salted, b"Client Key", hash_)
        without_proof = f"c={base64.b64encode(_START.encode()).decode()},r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(hash_, key).digest(), signed, hash_)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_), signed, hash_)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        """Check the server's own proof."""
        try:
            proof = base64.b64decode(_fields(answer).get("v", ""))
        except ValueError:
            proof = b""
        if not hmac.compare_digest(proof, self._expected):
            raise ScramError("the server could not prove that it knows the password")

    @property
    def _bare(self) -> str:
        name = self.username.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"


def _fields(message: bytes) -> dict[str, str]:
    parts = message.decode().split(",")
    return {name: value for name, _, value in (part.partition("=") for part in parts)}
