"""Certificates for tests, made by the command line of OpenSSL."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """Signs certificates.

    Args:
        folder: For its files; it must not exist.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        subject = ["-subj", f"/CN={folder.name}", "-addext", "basicConstraints=critical,CA:TRUE"]
        _openssl("req", "-x509", *_NEW, "-days", "2", *subject, "-keyout", self._key, "-out", self.certificate)

    def signed(self, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
        """A certificate for an address, and its key."""
        certificate, key, request = (self._folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        _openssl("req", *_NEW, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions = self._folder / "extensions"
        extensions.write_text(f"subjectAltName=IP:{address},DNS:localhost\n", encoding="ascii")
        signer: list[str | Path] = ["-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"]
        _openssl("x509", "-req", "-in", request, *signer, "-days", "2", "-extfile", extensions, "-out", certificate)
        return certificate, key


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*args: str | Path) -> None:
    subprocess.run(["openssl", *args], check=True, capture_output=True)
