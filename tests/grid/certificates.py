"""Certificates for tests: of an authority, and of members and clients that it trusts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates; all its files are below one folder.

    Attributes:
        folder: The folder, which exists.
    """

    folder: Path

    @property
    def certificate(self) -> Path:
        """Its own certificate."""
        if not (self.folder / "ca.pem").exists():
            self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                          "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")  # fmt: skip
        return self.folder / "ca.pem"

    def signed(self, name: str) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1, and its key."""
        assert self.certificate.exists()
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                      "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
        (self.folder / "extensions").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                      "-out", f"{name}.pem", "-days", "2", "-extfile", "extensions")  # fmt: skip
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)
