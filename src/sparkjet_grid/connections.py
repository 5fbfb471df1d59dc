"""Connections to members: calls with the token and a deadline, whose refusals are raised as what they are."""

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
"""Seconds for a call without record batches."""
_CHANNEL = [
    # The proxy of the environment is for the world outside.
    ("grpc.enable_http_proxy", 0),
    # A member that has just started would otherwise be found after seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # What is sent and not received for so long (Linux: TCP_USER_TIMEOUT) ends the connection. Without it a network that
    # was cut stays cut for up to as long again for connections that were open, while the kernel waits to send again; a
    # member that is started at an old address could not be reached.
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC takes the one only with the other: a ping so seldom that servers, which are not told of it, do not mind.
    ("grpc.keepalive_time_ms", 600_000),
]


class Connections:
    """Connections to members by their addresses, made when they are needed. Thread-safe.

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
        """Options of a call."""
        headers = self._headers or self._newest("token", self._access.headers)
        return fl.FlightCallOptions(timeout=seconds, headers=headers)

    def prepare(self) -> None:
        """Read token and certificates now, for members: they go on without the files, and with this token."""
        self._newest("certificates", self._access.client_options)
        # What the servers of all of them expect for as long as they run. With what is in the file later each would be
        # refused by the others: nothing would be copied any more.
        self._headers = self._access.headers()

    def _newest(self, what: str, read: Callable[[], T]) -> T:
        """What is in the files now; where they cannot be read any more, what was in them before.

        A file that is gone for a moment, or for good, must not end what works without it.
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
        """What a member answers."""
        answers = list(self.answers(uri, request, answer, seconds))
        if len(answers) != 1:
            raise UnreachableError(f"{uri} has answered {len(answers)} times instead of once.")
        return answers[0]

    def answers(self, uri: str, request: Request, answer: type[T], seconds: float = ANSWERS_WITHIN) -> Iterator[T]:
        """Like :meth:`ask`, for an answer in several pieces."""
        with refusals(uri):
            action = fl.Action(type(request).__name__, encoded(request))
            for result in self.to(uri).do_action(action, self.options(seconds)):
                yield decoded(result.body, answer)

    def nudge(self, uri: str) -> None:
        """Send a member something, and do not wait: calls end at once if it has given up the connection they are on.

        After a cut the kernel of one side may give up a connection without a word: the other side would wait for an
        answer until the deadline of the call, as it has nothing to send that could be refused.
        """
        in_background(lambda: self.ask(uri, Ping(), str), f"grid-nudge-{uri}")

    def close(self) -> None:
        """Close all; a call after that opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()


@contextmanager
def refusals(uri: str) -> Iterator[None]:
    """Raises what a member has refused, or why it cannot be reached, as an error of this package."""
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
    """An error as a member answers with it."""
    kind = next((name for name, known in ERRORS.items() if isinstance(error, known)), GridError.__name__)
    return fl.FlightServerError(str(error)[:500], extra_info=encoded(Refusal(kind, str(error)[:2000])))


def _short(error: BaseException) -> str:
    """The first sentence: what follows repeats it with gRPC's own words."""
    return str(error).partition(". Detail:")[0].partition(". gRPC client")[0][:300].rstrip(".") + "."


class Sending:
    """One call that puts entries to a member.

    In the background, so that whoever waits for the answer need not wait for a member that has left meanwhile.

    Args:
        connections: To members.
        uri: Of the member.
        call: What begins the call.
        schema: Of all entries.
    """

    def __init__(self, connections: Connections, uri: str, call: Put, schema: pa.Schema) -> None:
        self._connections, self._uri, self._call, self._schema = connections, uri, call, schema
        self._entries: queue.SimpleQueue[tuple[Part, Sequence[pa.RecordBatch]] | None] = queue.SimpleQueue()
        self.answer = in_background(self._sent, f"grid-to-{uri}")
        """The entries as the member holds them now, or why it does not."""

    def send(self, part: Part, batches: Sequence[pa.RecordBatch]) -> None:
        """Send one entry; returns at once."""
        self._entries.put((part, batches))

    def finish(self) -> None:
        """There are no more entries."""
        self._entries.put(None)

    def _sent(self) -> list[Held]:
        with refusals(self._uri):
            descriptor = fl.FlightDescriptor.for_command(encoded(self._call))
            client, options = self._connections.to(self._uri), self._connections.options(self._call.seconds)
            writer, reader = client.do_put(descriptor, self._schema, options)
            # Closing raises what the member has refused; what it says counts more than that writing has failed.
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
    """An entry as it came."""

    key: Key
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    digest: Digest


def fetched(
    connections: Connections, uri: str, keys: Sequence[Key], seconds: float, sender: str = ""
) -> Iterator[Fetched]:
    """The entries that a member holds of some, as they come; what it does not hold is left out."""
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
                raise MalformedError(f"{uri} has sent what it was not asked for.")
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
    """Entries in groups that one call can carry in time, each with where it goes: first groups first, then second ones.

    A call that fails is repeated as a whole.
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
