"""A schema registry: its schemas by number or by subject, in Confluent's protocol, which others speak too."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from sparkjet.errors import SourceError

_ATTEMPT, _PAUSE = 10.0, 0.5
"""Seconds for one request, and between two."""
_NOT_THERE = {40401, 40402, 40403}
"""Codes with which a registry itself says that it has no such subject, version or schema."""
_REFUSED = {
    401: "Check schemaRegistry.username and schemaRegistry.password, or schemaRegistry.token",
    403: "This user may not read it",
}
_MANY, _FAULT = 429, 500
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class NoSchemaError(Exception):
    """The registry has answered that it has no such schema."""


@dataclass(frozen=True)
class Registered:
    """A schema of a registry.

    Attributes:
        text: The schema.
        kind: AVRO, PROTOBUF or JSON.
        number: Its number.
        references: Schemas that it names, by the names that it has for them, each after those that it needs.
    """

    text: str
    kind: str
    number: int
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Registry:
    """How to reach a registry; travels to the executors.

    Attributes:
        url: Its address.
        patience: Seconds to wait for it.
        username: The user, with a password; never shown, nor are the fields after it.
        password: The password.
        token: A bearer's token instead.
        ca_file: PEM file of the authorities to trust; empty for the system's.
    """

    url: str
    patience: float
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca_file: str = ""

    def schema(self, number: int, kind: str = "") -> Registered:
        """A schema by its number; one that was once found is kept by the process, as it never changes.

        Args:
            number: Its number.
            kind: Its form, where the registry has several: ``serialized`` for descriptors of Protobuf.

        Raises:
            NoSchemaError: There is none.
            SourceError: The registry has not answered in time, or refuses.
        """
        return _kept(self, number, kind)

    def version(self, subject: str, version: str = "latest", kind: str = "") -> Registered:
        """The schema of a subject.

        Raises:
            NoSchemaError: There is none.
            SourceError: The registry has not answered in time, or refuses.
        """
        return self.fetched(f"/subjects/{quote(subject, safe='')}/versions/{quote(version)}", kind)

    def fetched(self, path: str, kind: str, number: int | None = None) -> Registered:
        """The schema at a path, asked for now; its number is in the answer, or known.

        Raises:
            NoSchemaError: There is none.
            SourceError: The registry has not answered in time, or refuses.
        """
        found = self._get(path, kind)
        references: dict[str, str] = {}
        try:
            number = int(found["id"]) if number is None else number
            text, some = found["schema"], [*(found.get("references") or ())]
            given = [(str(each["name"]), str(each["subject"]), str(each["version"])) for each in some]
        except (LookupError, TypeError, ValueError, AttributeError):
            text, given = None, []
        if not isinstance(text, str) or number is None:
            raise self._away(path, "its answer has no schema. Is this the address of a schema registry?")
        for name, subject, version in given:
            # A schema stays what it is when one that it refers to was deleted, which registries do softly at first.
            at = f"/subjects/{quote(subject, safe='')}/versions/{quote(version)}?deleted=true"
            referred = self.fetched(at, kind)
            references |= dict(referred.references)
            references[name] = referred.text
        return Registered(text, found.get("schemaType", "AVRO"), number, tuple(references.items()))

    def _get(self, path: str, kind: str) -> Any:
        """The answer to a request, which is repeated while the registry is away."""
        deadline = time.monotonic() + self.patience
        pause = threading.Event()
        while True:
            try:
                return self._asked(path + (f"{'&' if '?' in path else '?'}format={kind}" if kind else ""))
            except urllib.error.HTTPError as error:
                with error:
                    body = error.read()
                code = _code(body)
                if error.code == http.client.NOT_FOUND and code in _NOT_THERE:
                    message = f"{self.url} has no {path}"
                    raise NoSchemaError(message) from None
                wrong = f"it answers {error.code} {error.reason}"
                if error.code not in {_MANY, http.client.REQUEST_TIMEOUT} and error.code < _FAULT:
                    hint = _REFUSED.get(error.code, "Is this the address of a schema registry?")
                    raise self._away(path, f"{wrong}. {hint}") from None
            except urllib.error.URLError as error:
                wrong = str(error.reason)
                if isinstance(error.reason, ssl.SSLCertVerificationError):
                    raise self._away(path, f"{wrong}. Check schemaRegistry.caFile") from None
            except (OSError, http.client.HTTPException) as error:
                wrong = str(error) or type(error).__name__
            except ValueError:
                # Not its JSON: a proxy before it has its own error, say.
                wrong = "its answer is not JSON"
            if time.monotonic() > deadline:
                hint = f"Waited for {self.patience:g} seconds (kafkaConsumer.pollTimeoutMs)"
                raise self._away(path, f"{wrong}. {hint}")
            pause.wait(min(_PAUSE, self.patience))

    def _asked(self, path: str) -> Any:
        context = ssl.create_default_context(cafile=self.ca_file or None) if self.url.startswith("https:") else None
        # Only http and https get here: the option is checked.
        request = urllib.request.Request(self.url.rstrip("/") + path, headers={"Accept": _ACCEPT})  # noqa: S310 - see above
        # Unredirected: whoever a registry sends us to must not get it.
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        elif self.username:
            pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {pair}")
        with urllib.request.urlopen(request, timeout=_ATTEMPT, context=context) as answer:  # noqa: S310 - see above
            return json.loads(answer.read())

    def _away(self, path: str, why: str) -> SourceError:
        return SourceError(
            f"sparkjet-kafka: the schema registry {self.url} cannot be asked for {path}: {why}. No record was "
            "skipped: the next start reads them again."
        )


@lru_cache(maxsize=10_000)
def _kept(registry: Registry, number: int, kind: str) -> Registered:
    # As the object itself has no memory: each task unpickles one of its own.
    return registry.fetched(f"/schemas/ids/{number}", kind, number)


def _code(body: bytes) -> int | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found.get("error_code") if isinstance(found, dict) else None
