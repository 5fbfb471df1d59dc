"""The data source ``sparkjet-state``: asks the driver, which has the session that state is read and computed with.

Spark plans a source of Python's in a process without a session, where neither HDFS nor an aggregate's result is to be
had. So the driver reads the operator when the source is planned, and the rows travel with the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparkjet.connectors.state.options import EPOCH, PATH, SOURCE_NAME, SOURCE_OPTIONS
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.options import Options

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_ERRORS = {each.condition: each for each in (AnalysisError, RecoveryError)}


class StateDataSource(DataSource):
    """The state of an operator; see docs/guide/reading-state.md.

    Attributes:
        address: Where the driver answers; of the class that is registered.
    """

    address: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        """The name in ``read.format(…)``."""
        return SOURCE_NAME

    def schema(self) -> StructType:
        """The columns of the operator."""
        [found] = _asked(self.address, self._request(rows=False))
        return StructType.fromJson(json.loads(found))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A read of one record: the newest one when it is planned, or the pinned one."""
        return StateSourceReader(self.address, {**self._request(rows=True), "schema": schema.simpleString()})

    def _request(self, *, rows: bool) -> dict[str, Any]:
        options = Options(dict(self.options))
        options.only(SOURCE_OPTIONS, SOURCE_NAME)
        if PATH not in options:
            raise AnalysisError(f'path: format("{SOURCE_NAME}") needs the home of a query, as in load("/data/query").')
        return {"rows": rows, **options.among(SOURCE_OPTIONS), "epoch": options[EPOCH]}


class StatePart(InputPartition):
    """Some of the rows, as a stream of Arrow's."""

    def __init__(self, content: bytes) -> None:
        super().__init__(None)
        self.content = content


class StateSourceReader(DataSourceReader):
    """Reads an operator; planned once, on the driver's machine.

    Args:
        address: Where the driver answers.
        request: What it is asked for.
    """

    def __init__(self, address: str, request: dict[str, Any]) -> None:
        self._address, self._request = address, request

    def partitions(self) -> Sequence[InputPartition]:
        """The rows, in parts for tasks."""
        return [StatePart(content) for content in _asked(self._address, self._request)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the rows of its part."""
        assert isinstance(partition, StatePart)  # noqa: S101 - as planned
        with pa.ipc.open_stream(partition.content) as stream:
            yield from stream


def _asked(address: str, request: dict[str, Any]) -> list[bytes]:
    """The driver's answer: how many parts, and these; or its error."""
    try:
        connection: Connection[Any, Any] = Client(address, "AF_UNIX")
    except OSError as error:
        message = (
            f'format("{SOURCE_NAME}"): the session that sj.register_sources was called with does not answer: {error}.'
        )
        raise AnalysisError(message) from error
    with connection:
        connection.send_bytes(json.dumps(request).encode())
        head = json.loads(connection.recv_bytes())
        if "error" in head:
            raise _ERRORS.get(head["condition"], RecoveryError)(head["error"])
        return [connection.recv_bytes() for _ in range(head["parts"])]
