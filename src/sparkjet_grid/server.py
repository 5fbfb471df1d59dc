"""The server of a member: Arrow Flight, of which every call is checked before it does anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sparkjet_grid.access import Access
from sparkjet_grid.connections import answered
from sparkjet_grid.contents import Content
from sparkjet_grid.errors import GridError, MalformedError, StorageError, UnreachableError
from sparkjet_grid.log import logger
from sparkjet_grid.messages import Get, HeldNow, Message, Part, Piece, Put, decoded, encoded
from sparkjet_grid.receiving import Receiving
from sparkjet_grid.requests import REQUESTS

Answer = Callable[[Any], Iterator[Any]]


class Server(fl.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """Serves one member.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        access: Token and certificates.
        receive: Begins to take what one call puts.
        find: Finds an entry for one call that gets it.
        answers: What is answered to requests, by their types.
        entered: Told of each call from where it has come.
    """

    def __init__(
        self,
        host: str,
        port: int,
        access: Access,
        receive: Callable[[Put, pa.Schema], Receiving],
        find: Callable[[Get], list[Content | None]],
        answers: dict[type[Message], Answer],
        entered: Callable[[str], None],
    ) -> None:
        self._receive, self._find, self._answers, self._entered = receive, find, answers, entered
        # Nobody must reach a server that has no answers yet: it listens from here on.
        super().__init__(access.uri(host, port), **access.server_options())

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take entries."""
        with self._refusing(context):
            call = decoded(descriptor.command, Put)
            with self._receive(call, reader.schema) as receiving:
                for chunk in reader:
                    receiving.take(_batch(chunk.data), decoded(chunk.app_metadata, Part))
                held = receiving.finish()
            writer.write(pa.py_buffer(encoded(HeldNow(held))))

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Give entries of one schema."""
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
        """Answers with what is raised, and nothing of this process beside it."""
        try:
            self._entered(context.peer())
            yield
        except GridError as error:
            raise answered(error) from None
        except StorageError as error:
            # Of the control plane, which may have done what it did not confirm.
            raise answered(UnreachableError(str(error))) from None
        except pa.ArrowInvalid as error:
            raise answered(MalformedError(f"Arrow cannot read it: {str(error)[:200]}")) from None
        except (fl.FlightError, pa.ArrowException):
            # The caller is gone, or its deadline is over.
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
