"""A worker without Spark: epochs of rows into record batches, and the state that comes back into the next epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from sparkjet.spark_line import arrow_type
from sparkjet.stateful.functions.frames import Frames, ReturnedFrames
from sparkjet.stateful.functions.group_state_calls import GroupStateCalls
from sparkjet.stateful.functions.groups import INPUT, STORED
from sparkjet.stateful.functions.handle import Handle
from sparkjet.stateful.functions.processor_calls import ProcessorCalls
from sparkjet.stateful.functions.rows import ReturnedRows, Rows
from sparkjet.stateful.functions.worker import NEVER, Worker

MILLISECOND = 1_000


def schema(**fields: Any) -> StructType:
    """A schema by keywords."""
    return StructType([StructField(name, kind) for name, kind in fields.items()])


class WorkerRun:
    """One partition of a query with a user's function, epoch by epoch; times are in milliseconds.

    Attributes:
        versions: What is stored of each key, the oldest first.
        chunk: Rows of a record batch.
        longest: Rows of a key that are passed at once.
    """

    def __init__(
        self, calls: Callable[[], Any], payload: StructType, rows: StructType, key: Callable[[Any], Any], by: str
    ) -> None:
        self._calls, self._rows, self._key, self._by = calls, rows, key, by
        due = [StructField("due", LongType()), StructField("latest", LongType())]
        self._stored = StructType([*due, *payload.fields])
        self.versions: dict[Any, list[dict[str, Any]]] = {}
        self._closed: int | None = None
        self.chunk, self.longest = 3, 4

    def epoch(
        self, rows: Iterable[Sequence[Any]] = (), *, now: int = 0, before: int = 0, watermark: int = 0, by: str = ""
    ) -> list[dict[str, Any]]:
        """Run an epoch; what the function returned, as dicts."""
        reached = {"": -(2**63) + 1, "clock": now * MILLISECOND, "watermark": watermark * MILLISECOND}[by]
        live = self.held
        # As the store does it: the keys of rows whose time has come are touched, and then those rows are dead.
        by_key: dict[Any, list[Sequence[Any]]] = {
            key: []
            for key, rows in self.versions.items()
            if any(self._is_live(row) and row["due"] < reached for row in rows)
        }
        self._closed = reached
        for row in rows:
            by_key.setdefault(self._key(row), []).append(row)
        table: list[dict[str, Any]] = []
        times = {"now": now, "before": before, "watermark": watermark}
        for key, found in by_key.items():
            of_key = [{"kind": STORED, "stored": live[key]}] if key in live else []
            of_key += [{"kind": INPUT, "input": dict(zip(self._rows.names, row, strict=True))} for row in found]
            for position, each in enumerate(of_key, 1):
                stamps = {name: at * MILLISECOND for name, at in times.items()} | {"reached": reached}
                table.append({"key_hash": hash(key), "key0": key, "position": position, **each, **stamps})
        emitted = []
        for batch in Worker(self._calls(), ["key0"], self.longest).run(self._batches(table)):
            for row in batch.to_pylist():
                if row["emitted"] is not None:
                    emitted.append(row["emitted"])
                else:
                    self.versions.setdefault(row["kept"].pop("key0"), []).append(row["kept"])
        return emitted

    @property
    def held(self) -> Mapping[Any, dict[str, Any]]:
        """The row that the store finds: the newest of a key's that are not dead."""
        found = {key: [row for row in rows if self._is_live(row)] for key, rows in self.versions.items()}
        return {key: rows[-1] for key, rows in found.items() if rows and not rows[-1]["gone"]}

    def _is_live(self, row: dict[str, Any]) -> bool:
        return self._closed is None or row["due"] >= self._closed

    def _batches(self, table: list[dict[str, Any]]) -> Iterable[pa.RecordBatch]:
        key = self._rows[self._by].dataType
        columns = {"key_hash": LongType(), "key0": key, "kind": LongType(), "stored": self._stored, "input": self._rows}
        columns |= dict.fromkeys(("position", "now", "before", "watermark", "reached"), LongType())
        types = pa.schema([(name, arrow_type(each)) for name, each in columns.items()])
        for start in range(0, len(table), self.chunk):
            yield pa.RecordBatch.from_pylist(table[start : start + self.chunk], types)


def group_run(
    function: Callable[..., Any],
    rows: StructType,
    output: StructType,
    state: StructType,
    timeout: str,
    by: str = "k",
) -> WorkerRun:
    """A run of ``applyInPandasWithState``."""

    def calls() -> GroupStateCalls:
        keys = Frames(schema(key0=rows[by].dataType), "UTC")
        returned = ReturnedFrames(output, "UTC", by_name=True)
        return GroupStateCalls(function, timeout, state, Frames(rows, "UTC"), keys, returned, watermark=True)

    payload = schema(state=state, timeout=LongType())
    return WorkerRun(calls, payload, rows, lambda row: row[rows.names.index(by)], by)


def processor_run(
    processor: Callable[[], Any], rows: StructType, output: StructType, mode: str, *, pandas: bool, by: str = "k"
) -> WorkerRun:
    """A run of ``transformWithState``, or of the same with pandas."""
    handle = Handle(mode, {})
    processor().init(handle)
    names = list(handle.variables)

    def calls() -> ProcessorCalls:
        if pandas:
            returned = ReturnedFrames(output, "UTC", by_name=True)
            return ProcessorCalls(processor(), mode, {}, names, Frames(rows, "UTC"), returned)
        return ProcessorCalls(processor(), mode, {}, names, Rows(rows), ReturnedRows(output))

    columns = {f"state{i}": each.type for i, each in enumerate(handle.variables.values())}
    payload = schema(**columns, timers=ArrayType(LongType()))
    return WorkerRun(calls, payload, rows, lambda row: row[rows.names.index(by)], by)


__all__ = ["NEVER", "WorkerRun", "group_run", "processor_run", "schema"]
