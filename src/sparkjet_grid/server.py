"""The server of a member: Arrow Flight, with every call checked before it has an effect, and answers to requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sparkjet_grid.access import Access
from sparkjet_grid.cluster_state import ClusterState
from sparkjet_grid.connections import answered
from sparkjet_grid.contents import Content
from sparkjet_grid.control import Control
from sparkjet_grid.copying import Copying
from sparkjet_grid.entries import Entries
from sparkjet_grid.errors import GridError, MalformedError, MovedError, StorageError, UnreachableError
from sparkjet_grid.finding import rows_of
from sparkjet_grid.log import logger
from sparkjet_grid.messages import (
    MOST,
    REQUESTS,
    FindRows,
    FoundRows,
    Get,
    GetContacts,
    GetLastSlot,
    GetSlot,
    GetSlots,
    GetState,
    GetStatus,
    Held,
    HeldNow,
    LastSlot,
    Listed,
    ListEntries,
    LooksGone,
    Part,
    Piece,
    Ping,
    Put,
    PutSlot,
    Reform,
    Remove,
    RemoveSlots,
    Request,
    SlotToken,
    Status,
    Unheld,
    Verify,
    decoded,
    encoded,
)
from sparkjet_grid.pings import is_refused
from sparkjet_grid.receiving import Receiving
from sparkjet_grid.view import View

Answer = Callable[[Any], Iterator[Any]]
_NEWER_WITHIN = 5.0


class Server(fl.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """The Flight server of one member.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        access: Token and certificates.
        receive: Begins a call that puts entries.
        find: Finds the entries of a call that gets them.
        answers: The answers to requests, by their types.
        entered: Called with the peer of each call.
    """

    def __init__(
        self,
        host: str,
        port: int,
        access: Access,
        receive: Callable[[Put, pa.Schema], Receiving],
        find: Callable[[Get], list[Content | None]],
        answers: dict[type[Request], Answer],
        entered: Callable[[str], None],
    ) -> None:
        self._receive, self._find, self._answers, self._entered = receive, find, answers, entered
        # Last, as it listens from here on: no call may find it incomplete.
        super().__init__(access.uri(host, port), **access.server_options())

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Receive entries."""
        with self._refusing(context):
            call = decoded(descriptor.command, Put)
            with self._receive(call, reader.schema) as receiving:
                for chunk in reader:
                    receiving.take(_batch(chunk.data), decoded(chunk.app_metadata, Part))
                held = receiving.finish()
            writer.write(pa.py_buffer(encoded(HeldNow(held))))

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Send entries of one schema."""
        with self._refusing(context):
            contents = self._find(decoded(ticket.ticket, Get))
            schema = next((content.schema for content in contents if content is not None), pa.schema([]))
            return fl.GeneratorStream(schema, _pieces(contents, schema))

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Answer a request."""
        with self._refusing(context):
            kind = REQUESTS.get(action.type)
            if kind is None:
                raise MalformedError(f"there is no request {action.type[:100]!r}.")
            for answer in self._answers[kind](decoded(action.body, kind)):
                yield encoded(answer)

    @contextmanager
    def _refusing(self, context: Any) -> Iterator[None]:
        """Answers with the error that is raised, and with no other details of this process."""
        try:
            self._entered(context.peer())
            yield
        except GridError as error:
            raise answered(error) from None
        except StorageError as error:
            # From the control plane, which may have done what it did not confirm.
            raise answered(UnreachableError(str(error))) from None
        except pa.ArrowInvalid as error:
            raise answered(MalformedError(f"Arrow cannot read it: {str(error)[:200]}")) from None
        except (fl.FlightError, pa.ArrowException):
            # The caller is gone, or its deadline has passed.
            raise
        except Exception:
            logger.exception("A call to this member has failed.")
            raise answered(GridError("the member has failed; its log says why.")) from None


def _pieces(contents: list[Content | None], schema: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Any]]:
    for position, content in enumerate(contents):
        if content is not None and content.schema.equals(schema, check_metadata=True):
            piece = pa.py_buffer(encoded(Piece(position)))
            for batch in content.batches:
                yield batch, piece


def _batch(batch: pa.RecordBatch | None) -> pa.RecordBatch:
    if batch is None:
        raise MalformedError("there is a message without a record batch.")
    return batch


class Answering:
    """Answers the requests to one member, in the threads of its server.

    Args:
        control: The control plane.
        view: Of the member.
        entries: Of the member.
        copying: Of the member.
    """

    def __init__(self, control: Control, view: View, entries: Entries, copying: Copying) -> None:
        self._control, self._view, self._entries, self._copying = control, view, entries, copying
        self._got, self._counting = 0, threading.Lock()

    def answers(self) -> dict[type[Request], Answer]:
        """The answers to each type of request."""
        control = self._control
        return {
            GetState: self._checked(self._state),
            # Also on a member that is cut off: an operator has to see it, and may re-form the survivors.
            GetStatus: lambda _: iter([self._status()]),
            Reform: lambda each: iter([self._reform(each)]),
            Ping: lambda _: iter([self._view.me]),
            LooksGone: self._checked(self._looks_gone),
            ListEntries: self._listed,
            Verify: self._checked(self._unheld),
            FindRows: self._found,
            Remove: self._checked(self._removed),
            PutSlot: self._checked(lambda each: control.put_slot(each.name, each.token, each.version)),
            GetSlot: self._checked(lambda each: SlotToken(control.slot(each.name))),
            GetLastSlot: self._checked(self._last_slot),
            GetSlots: self._checked(lambda each: control.slots(each.directory)),
            RemoveSlots: self._checked(self._removed_slots),
            GetContacts: self._checked(lambda _: control.contacts()),
        }

    def find(self, call: Get) -> list[Content | None]:
        """The entries for a call that gets some."""
        self._view.check()
        found = [self._entries.get(key) for key in call.keys]
        if not call.sender:
            with self._counting:
                self._got += sum(content is not None for content in found)
        return found

    def _checked(self, answer: Callable[[Any], Any]) -> Answer:
        def answered(request: Any) -> Iterator[Any]:
            self._view.check()
            yield answer(request)

        return answered

    def _state(self, request: GetState) -> ClusterState:
        self._view.wait(lambda: self._view.state.version > request.newer_than, request.seconds)
        return self._view.state

    def _status(self) -> Status:
        view, entries = self._view, self._entries
        copying = sum(map(len, self._copying.wanted().values()))
        voters, frozen = self._control.voters(), not view.is_confirmed()
        return Status(
            view.me, entries.used, entries.limit, len(entries), copying, voters, self._got, frozen, view.state
        )

    def _looks_gone(self, request: LooksGone) -> bool:
        others = [member for member in self._view.state.members if member.id != self._view.me]
        return any(is_refused(member) for member in others if member.id == request.member)

    def _listed(self, request: ListEntries) -> Iterator[Listed]:
        view = self._view
        with view.changes:
            rows = request.rows.items()
            if not view.wait(lambda: all(view.row(each).version >= version for each, version in rows), _NEWER_WITHIN):
                raise MovedError("this member has not heard of versions of rows that the caller knows.")
            view.check()
            for partition in request.rows:
                view.primary_row(partition)
            found = self._entries.listed(request.rows, request.prefix)
        held = [Held(key.partition, key.name, each.rows, each.size, each.digest) for key, each in found]
        for start in range(0, len(held), MOST):
            yield Listed(held[start : start + MOST])

    def _found(self, request: FindRows) -> Iterator[FoundRows]:
        # Whether this is a replica does not matter: entries never change, and a version says which ones count.
        self._view.check()
        yield from rows_of(self._entries, request)

    def _unheld(self, request: Verify) -> Unheld:
        contents = ((held, self._entries.get(held.key)) for held in request.held)
        return Unheld([held.key for held, each in contents if each is None or each.digest != held.digest])

    def _last_slot(self, request: GetLastSlot) -> LastSlot:
        found = self._control.last_slot(request.directory)
        return LastSlot(None) if found is None else LastSlot(*found)

    def _removed_slots(self, request: RemoveSlots) -> int:
        self._control.remove_slots(request.names)
        return len(request.names)

    def _removed(self, request: Remove) -> int:
        self._copying.remove(request.keys, request.prefix)
        return self._view.state.version

    def _reform(self, request: Reform) -> ClusterState:
        if self._view.is_confirmed():
            raise GridError("this member has its majority, which removes dead members itself.")
        return self._control.reform(request.survivors)
