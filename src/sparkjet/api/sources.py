"""``register_sources``: sparkjet's sources in a session, and the driver's answers to one of them."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
import threading
import weakref
from multiprocessing.connection import Client, Listener
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.connectors import formats
from sparkjet.connectors.state.options import SOURCE_NAME
from sparkjet.engine.state_reader import StateReader
from sparkjet.errors import AnalysisError, SparkjetError, refuse_connect
from sparkjet.known_types import known
from sparkjet.query_log import logger
from sparkjet.sources import alignment
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

_PART_BYTES = 4 << 20
"""Approximate number of bytes that travel with a task."""
_MOST_BYTES = 512 << 20
"""Maximum number of bytes of an operator that the driver holds at once."""


def register_sources(spark: SparkSession) -> None:
    """Register sparkjet's sources with a session, for ``spark.readStream.format("sparkjet-kafka")`` and others.

    Runs on the driver, connects to no server, and may be called again. The executors get sparkjet itself from the
    driver; they need pyarrow, and for Kafka confluent-kafka. A source whose extra is not installed says so in ``load``.

    >>> import sparkjet as sj
    >>> sj.register_sources(spark)
    """
    refuse_connect("register_sources", spark)
    formats.register_sources(spark, lambda source: _bound(source, spark))


def _bound(source: type[DataSource], spark: SparkSession) -> type[DataSource]:
    """The source with the address that it asks, or the directory in which the engine leaves files for it.

    Not passed in the workers' environment: Spark would start separate processes for everything registered afterwards.
    """
    if source.name() == SOURCE_NAME:
        return type(source.__name__, (source,), {"address": _answering(spark)})
    if hasattr(source, "place"):
        return type(source.__name__, (source,), {"place": alignment.place()})
    return source


class _Request(msgspec.Struct):
    """A request from a source."""

    rows: bool
    path: str
    schema: str | None = None
    operatorId: str | None = None
    pin: str | None = None
    epoch: int | None = None
    joinSide: str | None = None


_REQUEST = msgspec.json.Decoder(known(_Request))
_ANSWERING: weakref.WeakKeyDictionary[SparkSession, str] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()
_PATIENCE = 5


def _answering(spark: SparkSession) -> str:
    """The address at which a session's requests are answered, in a directory that only this user may enter."""
    with _LOCK:
        if spark not in _ANSWERING:
            place = tempfile.mkdtemp(prefix="sparkjet-")
            address, ended = f"{place}/state", threading.Event()
            arguments = Listener(address, "AF_UNIX"), weakref.ref(spark), ended
            thread = threading.Thread(target=_answer_all, args=arguments, name="sparkjet-state", daemon=True)
            thread.start()
            weakref.finalize(spark, _end, place, address, ended, thread)
            _ANSWERING[spark] = address
        return _ANSWERING[spark]


def _end(place: str, address: str, ended: threading.Event, thread: threading.Thread) -> None:
    ended.set()
    # A thread that waits for a connection notices the end only by getting one.
    with contextlib.suppress(OSError):
        Client(address, "AF_UNIX").close()
    thread.join(_PATIENCE)
    shutil.rmtree(place, ignore_errors=True)


def _answer_all(listener: Listener, session: weakref.ref[SparkSession], ended: threading.Event) -> None:
    with listener:
        while not ended.is_set():
            try:
                with listener.accept() as connection:
                    _answer(connection, session())
            except (OSError, EOFError):
                # The process that asked has gone, or this is the end.
                logger.debug("sparkjet-state: a request has been given up", exc_info=True)


def _answer(connection: Connection[Any, Any], spark: SparkSession | None) -> None:
    request = connection.recv_bytes()
    try:
        if spark is None:
            return
        parts = _parts(_REQUEST.decode(request), spark)
    except Exception as error:  # noqa: BLE001 - whoever asked raises it
        condition = error.condition if isinstance(error, SparkjetError) else ""
        text = str(error).removeprefix(f"[{condition}] ") or repr(error)
        connection.send_bytes(json.dumps({"condition": condition, "error": text}).encode())
        return
    connection.send_bytes(json.dumps({"parts": len(parts)}).encode())
    for part in parts:
        connection.send_bytes(part)


def _parts(request: _Request, spark: SparkSession) -> list[bytes]:
    reader = StateReader(directory_at(request.path, "path", lambda: spark), request.pin, request.epoch)
    if not request.rows:
        return [reader.empty(spark, request.operatorId, request.joinSide).schema.json().encode()]
    rows = reader.rows(spark, request.operatorId, request.joinSide)
    found = rows.schema.simpleString()
    if found != request.schema:
        # Because of schema(…), or as the query was changed since the rows were requested.
        message = (
            f'format("{SOURCE_NAME}"): the columns are {found}, but the given schema is {request.schema}. Leave '
            "schema(…) out, and load it again."
        )
        raise AnalysisError(message)
    return _as_arrow(rows)


def _as_arrow(rows: DataFrame) -> list[bytes]:
    import pyarrow as pa  # noqa: PLC0415 - for this source only

    table = rows.toArrow()
    if table.nbytes > _MOST_BYTES:
        message = (
            f'format("{SOURCE_NAME}"): the rows take {table.nbytes >> 20} MB, but pass through the driver, which '
            f"takes {_MOST_BYTES >> 20} MB at most. sj.read_state(home, …) gives the same rows, and leaves them on "
            "executors."
        )
        raise AnalysisError(message)
    each = max(1, table.num_rows * _PART_BYTES // max(1, table.nbytes))
    parts = []
    for start in range(0, max(1, table.num_rows), each):
        content = io.BytesIO()
        with pa.ipc.new_stream(content, table.schema) as stream:
            stream.write_table(table.slice(start, each))
        parts.append(content.getvalue())
    return parts
