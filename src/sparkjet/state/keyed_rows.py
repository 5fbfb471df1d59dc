"""Rows of a keyed store: their columns, and the queries on them, as DataFrames over any of its segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from sparkjet.catalyst.columns import CompiledColumns
from sparkjet.catalyst.constants import constant
from sparkjet.state.segments import HASHES
from sparkjet.time import MAX

if TYPE_CHECKING:
    from pyspark.sql import Column

KEY_HASH = HASHES[0]
"""A hash of the keys as a long, never null; rows are partitioned and looked up by it."""
VERSION = "version"
"""Counts the epochs that have written rows; only the newest version of a key is valid."""
DUE = "due"
"""The time of a row: once the watermark has passed it, the row is dead, and need not be removed."""
DELETED = "deleted"
"""Whether a row marks its key as deleted."""
NEWEST = "newest"
"""The newest version of a row's key."""
NEVER = MAX
"""The ``due`` of rows that only a newer version replaces."""
WANTED, FRESH = "wanted", "fresh"


@dataclass(frozen=True)
class Touched:
    """The rows of a keyed store that an epoch touches, from which an operator builds its new rows.

    Attributes:
        arrived: The rows that have arrived, None if there are none.
        stored: The live rows of their keys, and of keys that have due rows; None if there are none.
        watermark: The new watermark; in a kept plan, a placeholder for it, as for the version.
        version: The version of the epoch's rows.
        constants: Further numbers that the operator has asked for; in a kept plan, placeholders for them.
    """

    arrived: DataFrame | None
    stored: DataFrame | None
    watermark: int
    version: int
    constants: Sequence[int] = ()


class KeyedRows:
    """Builds DataFrames of the rows of a :class:`sparkjet.state.KeyedStore`, on the driver; it holds no rows.

    Args:
        keys: Names of the key columns, at least one.
        payload: Names of the other columns.
        versioned: Whether a key's new rows replace its old ones.
        deletable: Whether keys can be deleted.
    """

    def __init__(self, keys: Sequence[str], payload: Sequence[str], *, versioned: bool, deletable: bool) -> None:
        self._keys = tuple(keys)
        self._versioned = versioned
        self._deletable = deletable
        version, deleted = [VERSION] * versioned, [DELETED] * deletable
        self.columns = CompiledColumns([KEY_HASH, *self._keys, *version, *payload, DUE, *deleted])
        """The columns of a stored row."""
        self._hashes = {
            fresh: CompiledColumns([F.col(KEY_HASH).alias(WANTED), F.lit(fresh).alias(FRESH)])
            for fresh in (False, True)
        }
        self._found = F.col(KEY_HASH) == F.col(WANTED)
        self._newest_version = F.max(VERSION).over(Window.partitionBy(KEY_HASH, *self._keys)) if versioned else None

    def hashed(self, rows: DataFrame) -> DataFrame:
        """Rows with the hash of their keys."""
        # Strings that are equal under a collation may differ in their bytes, and would get different hashes.
        plain = [key for key in self._keys if "collate" not in rows.schema[key].dataType.simpleString()]
        return rows.withColumn(KEY_HASH, F.xxhash64(*plain) if plain else F.lit(0).cast("long"))

    def stamped(self, rows: DataFrame, version: int, *marks: Column) -> DataFrame:
        """The columns of a stored row, under a version, and the marks."""
        if self._versioned:
            rows = rows.withColumn(VERSION, F.expr(constant(version, KEY_HASH)))
        return self.columns.select(rows, *marks)

    def touched(
        self,
        frames: Mapping[str, DataFrame],
        watermark: int,
        version: int,
        closed: int | None,
        *constants: int,
        whole: bool,
        single: bool,
    ) -> Touched:
        """The rows that an epoch touches, from ``arrived`` rows, ``stored`` ones, and ``due`` ones, as far as given."""
        arrived, stored = frames.get("arrived"), frames.get("stored")
        if stored is not None and whole:
            stored = self.live(stored, closed, single=single).withColumn(FRESH, F.lit(True))
        elif stored is not None:
            hashes = [] if arrived is None else [self._hashes[True].select(arrived)]
            if "due" in frames:
                due = frames["due"].where(f"{is_due(watermark)} AND {_is_live(closed)}")
                hashes.append(self._hashes[False].select(due))
            stored = self._wanted(stored, hashes, closed)
        return Touched(arrived, stored, watermark, version, constants)

    def live(
        self, rows: DataFrame, closed: int | None, *, and_deleted: bool = False, single: bool = False
    ) -> DataFrame:
        """The live rows among all stored rows."""
        return self._newest(rows.where(_is_live(closed)), and_deleted=and_deleted, single=single)

    def merged(
        self, rows: DataFrame, closed: int | None, *, marks: Mapping[str, Column], and_deleted: bool
    ) -> DataFrame:
        """The live rows of merged segments, with the marks of an epoch's rows.

        Deleted rows hide rows of older segments. A different schema would be compiled to different code.
        """
        return self.columns.select(self.live(rows, closed, and_deleted=and_deleted)).withColumns(dict(marks))

    def summary(self, *own: str, last: str, kept: str, due: str) -> CompiledColumns:
        """The number, lowest ``due``, highest ``last`` and number of deletions of the kept rows; then ``own``."""
        standard = [f"count_if({kept})", f"min(CASE WHEN {kept} THEN {due} END)"]
        standard.append(f"max(CASE WHEN {kept} THEN `{last}` END)")
        if self._deletable:
            standard.append(f"count_if({kept} AND {DELETED})")
        return CompiledColumns(F.expr(text) for text in (*standard, *own))

    def _wanted(self, rows: DataFrame, hashes: Sequence[DataFrame], closed: int | None) -> DataFrame:
        """The live stored rows that have a wanted hash, with whether any row of that hash arrived."""
        wanted = reduce(DataFrame.union, hashes).groupBy(WANTED).agg(F.max(FRESH).alias(FRESH))
        # Not as a semi-join: Spark would push it below the union, and join once per segment.
        return self._newest(rows.where(_is_live(closed)).join(wanted.hint("shuffle_hash"), self._found))

    def _newest(self, rows: DataFrame, *, and_deleted: bool = False, single: bool = False) -> DataFrame:
        if self._newest_version is not None and not single:
            rows = rows.withColumn(NEWEST, self._newest_version).where(f"{VERSION} = {NEWEST}")
        return rows.where(f"NOT {DELETED}") if self._deletable and not and_deleted else rows


def is_due(watermark: int) -> str:
    """An SQL condition for whether a row is due before a watermark."""
    return f"{DUE} < {constant(watermark, DUE)}"


def _is_live(closed: int | None) -> str:
    return "true" if closed is None else f"{DUE} >= {constant(closed, DUE)}"
