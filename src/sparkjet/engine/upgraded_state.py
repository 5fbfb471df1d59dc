"""Upgraded state: the saved rows of an aggregation converted to those of the changed one, as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.widening import conversion, parsed, widened
from sparkjet.time import MAX
from sparkjet.windows.accumulators import LACKED, ROW_COUNT, field_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from sparkjet.engine.changed_query import StageUpgrade
    from sparkjet.windows import Accumulators


def upgraded(rows: DataFrame, upgrade: StageUpgrade, accumulators: Accumulators, keys: Sequence[str]) -> DataFrame:
    """Saved rows with the keys and accumulators of the changed aggregation; their other columns stay.

    Rows of several merged keys are not combined yet.

    Args:
        rows: The saved rows, with only the newest of each key.
        upgrade: What has changed.
        accumulators: Accumulators of the changed aggregation.
        keys: Names of its keys.
    """
    if upgrade.longer:
        end = F.when(F.col("end") > MAX - upgrade.longer, MAX).otherwise(F.col("end") + upgrade.longer)
        rows = rows.withColumn("end", end)
    old = {*upgrade.old_fields, *(f"key{number}" for number in range(upgrade.old_keys))}
    others = [name for name in rows.columns if name not in old]
    return rows.select(*_keys(upgrade, keys), *others, *_fields(upgrade, accumulators))


def _keys(upgrade: StageUpgrade, names: Sequence[str]) -> list[Column]:
    return [
        F.lit(0).alias(name)
        if key.number is None
        else _cast(F.col(f"key{key.number}"), key.before, key.now).alias(name)
        for key, name in zip(upgrade.keys, names, strict=True)
    ]


def _fields(upgrade: StageUpgrade, accumulators: Accumulators) -> list[Column]:
    empty, found = accumulators.empty(), [F.col(ROW_COUNT)]
    for number, (computes, before) in enumerate(upgrade.aggregates):
        names = [name for name in accumulators.fields if name.startswith(f"acc{number}_")]
        if before is None:
            found += [empty[name].alias(name) for name in names]
            continue
        prefix = f"acc{before}_"
        old = {name.removeprefix(prefix): kind for name, kind in upgrade.old_fields.items() if name.startswith(prefix)}
        new = {name.removeprefix(f"acc{number}_"): accumulators.shape[name] for name in names}
        saved: Mapping[str, Column] = {field: F.col(f"{prefix}{field}") for field in old}
        if old != new:
            way = conversion(computes, old, new)
            assert way is not None  # noqa: S101 - else the start is refused
            saved = way[0](saved)
        found += [
            saved[field].cast(accumulators.types[field_name(number, field)]).alias(f"acc{number}_{field}")
            for field in new
        ]
    first = len(upgrade.aggregates)
    for place, number in enumerate(upgrade.lacking):
        before = upgrade.aggregates[number][1]
        # An added aggregate has seen none of these rows.
        lacked = ROW_COUNT if before is None else _lacked_before(upgrade, before)
        found.append(F.col(lacked).alias(field_name(first + place, LACKED)))
    return found


def _lacked_before(upgrade: StageUpgrade, number: int) -> str:
    return field_name(upgrade.old_aggregates + upgrade.old_lacking.index(number), LACKED)


def _cast(value: Column, before: str, now: str) -> Column:
    one, other = parsed(before), parsed(now)
    if before == now or one is None or other is None:
        return value
    return widened(value, one, other)
