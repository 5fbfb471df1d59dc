"""Connections to members: authenticated calls with a deadline, and the errors that members refuse them with."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from sparkjet_grid.access import Access
from sparkjet_grid.background import in_background
from sparkjet_grid.contents import Digest
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import AnalysisError, ForbiddenError, GridError, MalformedError, UnreachableError
from sparkjet_grid.log import logger
from sparkjet_grid.messages import (
    ERRORS,
    MOST,
    Get,
    Held,
    HeldNow,
    Part,
    Piece,
    Ping,
    Put,
    Refusal,
    Request,
    decoded,
    encoded,
)

T = TypeVar("T")
To = TypeVar("To")
Sized = TypeVar("Sized", bound="_Sized")

GROUP = 32 << 20
"""Bytes of the entries of one call, unless one entry alone has more."""
ANSWERS_WITHIN = 10.0
"""Seconds that a call without record batches may take."""
_CHANNEL = [
    # The environment's proxy is for other networks.
    ("grpc.enable_http_proxy", 0),
    # Otherwise it takes seconds to find a member that has just started.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Data that is not acknowledged for so long (Linux: TCP_USER_TIMEOUT) ends the connection. Otherwise connections
    # that were open when the network was cut stay stuck for up to as long again after it has healed, while the kernel
    # backs off, and a member that is started at an old address cannot be reached.
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC has the one only with the other: so rare that servers, which do not expect such pings, tolerate them.
    ("grpc.keepalive_time_ms", 600_000),
]


class Connections:
    """Connections to members by their URIs, opened on demand. Thread-safe.

    Args:
        access: Token and certificates.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._read: dict[str, Any] = {}
        self._headers: list[tuple[bytes, bytes]] | None = None
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    def to(self, uri: str) -> Any:
        """The Flight client of a member."""
        with self._lock:
            if uri not in self._clients:
                options = self._newest("certificates", self._access.client_options)
                try:
                    self._clients[uri] = fl.FlightClient(uri, generic_options=_CHANNEL, **options)
                except (pa.ArrowException, fl.FlightError, ValueError) as error:
                    raise AnalysisError(f'"{uri}" is not an address of a member: {_short(error)}') from error
            return self._clients[uri]

    def options(self, seconds: float = ANSWERS_WITHIN) -> Any:
        """The options of a call."""
        headers = self._headers or self._newest("token", self._access.headers)
        return fl.FlightCallOptions(timeout=seconds, headers=headers)

    def prepare(self) -> None:
        """Read token and certificates now: members keep running without the files, and with this token."""
        self._newest("certificates", self._access.client_options)
        # Members expect the token they were started with. If the file changed and one used the new token, the others
        # would refuse it, and nothing would be copied.
        self._headers = self._access.headers()

    def _newest(self, what: str, read: Callable[[], T]) -> T:
        """The content of the files now, or their last content if they can no longer be read.

        A missing file must not stop what works without it.
        """
        try:
            found = read()
        except AnalysisError as error:
            if what not in self._read:
                raise
            last: T
            last, is_told = self._read[what]
            if not is_told:
                logger.warning("The %s that was read before is used: %s", what, error)
                self._read[what] = last, True
            return last
        self._read[what] = found, False
        return found

    def ask(self, uri: str, request: Request, answer: type[T], seconds: float = ANSWERS_WITHIN) -> T:
        """The answer of a member to a request."""
        answers = list(self.answers(uri, request, answer, seconds))
        if len(answers) != 1:
            raise UnreachableError(f"{uri} answered {len(answers)} times instead of once.")
        return answers[0]

    def answers(self, uri: str, request: Request, answer: type[T], seconds: float = ANSWERS_WITHIN) -> Iterator[T]:
        """The answer of a member in several messages."""
        with refusals(uri):
            action = fl.Action(type(request).__name__, encoded(request))
            for result in self.to(uri).do_action(action, self.options(seconds)):
                yield decoded(result.body, answer)

    def nudge(self, uri: str) -> None:
        """Send a member a ping without waiting: if it has given up the connection, pending calls end at once.

        After a network cut, one side's kernel may give up a connection without notice: the other side, with nothing to
        send that could be refused, would wait for an answer until the deadline of the call.
        """
        in_background(lambda: self.ask(uri, Ping(), str), f"grid-nudge-{uri}")

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()


@contextmanager
def refusals(uri: str) -> Iterator[None]:
    """Raise the error that a member has refused a call with, or one that says why it cannot be reached."""
    try:
        yield
    except fl.FlightUnauthenticatedError as error:
        raise ForbiddenError(
            f"{uri} refuses the token, or its absence. Members and clients need the same one: --token-file, or the "
            "environment."
        ) from error
    except (fl.FlightError, pa.ArrowException, OSError) as error:
        raise _refused(uri, error) from error


def _refused(uri: str, error: BaseException) -> GridError:
    told = getattr(error, "extra_info", b"")
    if told:
        try:
            refusal = decoded(told, Refusal)
        except MalformedError:
            return UnreachableError(f"{uri} does not answer like a member of a grid: {_short(error)}")
        return ERRORS.get(refusal.kind, GridError)(f"{uri}: {refusal.text}")
    return UnreachableError(f"{uri} does not answer: {_short(error)}")


def answered(error: GridError) -> Any:
    """Encode an error, for a member to answer with."""
    kind = next((name for name, known in ERRORS.items() if isinstance(error, known)), GridError.__name__)
    return fl.FlightServerError(str(error)[:500], extra_info=encoded(Refusal(kind, str(error)[:2000])))


def _short(error: BaseException) -> str:
    """The first sentence of an error; the rest repeats it in gRPC's words."""
    return str(error).partition(". Detail:")[0].partition(". gRPC client")[0][:300].rstrip(".") + "."


class Sending:
    """A call that puts entries on a member.

    It runs in the background, so that a caller need not wait for a member that has left meanwhile.

    Args:
        connections: To members.
        uri: Of the member.
        call: The first message of the call.
        schema: Of all entries.
    """

    def __init__(self, connections: Connections, uri: str, call: Put, schema: pa.Schema) -> None:
        self._connections, self._uri, self._call, self._schema = connections, uri, call, schema
        self._entries: queue.SimpleQueue[tuple[Part, Sequence[pa.RecordBatch]] | None] = queue.SimpleQueue()
        self.answer = in_background(self._sent, f"grid-to-{uri}")
        """The entries as the member holds them, or the error."""

    def send(self, part: Part, batches: Sequence[pa.RecordBatch]) -> None:
        """Send an entry; returns at once."""
        self._entries.put((part, batches))

    def finish(self) -> None:
        """End the call: there are no more entries."""
        self._entries.put(None)

    def _sent(self) -> list[Held]:
        with refusals(self._uri):
            descriptor = fl.FlightDescriptor.for_command(encoded(self._call))
            client, options = self._connections.to(self._uri), self._connections.options(self._call.seconds)
            writer, reader = client.do_put(descriptor, self._schema, options)
            # Closing raises the member's refusal, which says more than that writing has failed.
            with writer:
                self._write(writer)
                writer.done_writing()
                answer = reader.read()
            if answer is None:
                raise UnreachableError(f"{self._uri} has ended the call without an answer.")
            return decoded(answer, HeldNow).held

    def _write(self, writer: Any) -> None:
        while (entry := self._entries.get()) is not None:
            part, batches = entry
            metadata = pa.py_buffer(encoded(part))
            for batch in batches:
                writer.write_with_metadata(batch, metadata)


class Fetched(NamedTuple):
    """An entry as it was received."""

    key: Key
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    digest: Digest


def fetched(
    connections: Connections, uri: str, keys: Sequence[Key], seconds: float, sender: str = ""
) -> Iterator[Fetched]:
    """Fetch entries from a member, as they arrive; those that it does not hold are left out."""
    left = list(keys)
    while left:
        came: set[Key] = set()
        for each in _of_one_schema(connections, uri, Get(left, sender), seconds):
            came.add(each.key)
            yield each
        left = [key for key in left if key not in came] if came else []


def _of_one_schema(connections: Connections, uri: str, call: Get, seconds: float) -> Iterator[Fetched]:
    entry: Fetched | None = None
    with refusals(uri):
        reader = connections.to(uri).do_get(fl.Ticket(encoded(call)), connections.options(seconds))
        schema = reader.schema
        for chunk in reader:
            position = decoded(chunk.app_metadata, Piece).position
            if position >= len(call.keys):
                raise MalformedError(f"{uri} sent something that it was not asked for.")
            key = call.keys[position]
            if entry is not None and entry.key != key:
                yield entry
                entry = None
            entry = entry or Fetched(key, schema, [], Digest())
            entry.batches.append(chunk.data)
            entry.digest.add(chunk.data)
    if entry is not None:
        yield entry


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


def grouped(entries: Iterable[tuple[To, Sized]]) -> list[tuple[To, list[Sized]]]:
    """Group entries into calls of limited size by their destination, the first call to each destination first.

    Limited, as a call that fails is repeated as a whole.
    """
    groups: dict[To, list[list[Sized]]] = {}
    sizes: dict[To, int] = {}
    for to, entry in entries:
        found, size = groups.setdefault(to, []), entry.size
        if not found or sizes[to] + size > GROUP or len(found[-1]) == MOST:
            found.append([])
            sizes[to] = 0
        found[-1].append(entry)
        sizes[to] += size
    numbered = [(number, to, group) for to, found in groups.items() for number, group in enumerate(found)]
    return [(to, group) for _, to, group in sorted(numbered, key=lambda each: each[0])]
