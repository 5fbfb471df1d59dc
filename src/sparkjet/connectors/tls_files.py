"""TLS of connections to brokers of queues: the files that their options name."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.options import CA_FILE, CERT_FILE, KEY_FILE, TLS

if TYPE_CHECKING:
    from sparkjet.options import Options

_FILES = (CA_FILE, CERT_FILE, KEY_FILE)


@dataclass(frozen=True)
class TlsFiles:
    """TLS files in PEM format, by path: objects made from them cannot be sent to another process.

    Attributes:
        authorities: Authorities to trust; the system's by default.
        certificate: The client's certificate.
        key: Its key, if that is in another file.
    """

    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None

    @staticmethod
    def of(options: Options) -> TlsFiles | None:
        """The files in the options of a connection; None without TLS.

        Raises:
            AnalysisError: A file cannot be used, or is named without TLS.
        """
        if options[TLS]:
            found = TlsFiles(*(options[each] for each in _FILES))
            try:
                found.context()
            except OSError as error:
                raise AnalysisError(f"option: caFile, certFile or keyFile cannot be used: {error}") from error
            return found
        for option in _FILES:
            if options[option]:
                raise AnalysisError(f'option: {option.name} is for TLS: set option("tls", True), or leave it out.')
        return None

    def context(self) -> ssl.SSLContext:
        """The context for wrapping a socket."""
        context = ssl.create_default_context(cafile=self.authorities)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context
