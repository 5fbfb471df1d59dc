"""Moved sources: which sources of a query are those of its newest record, if some were added, removed or moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from sparkjet.engine.changed_query import Change, Consequence
from sparkjet.engine.changed_windows import shown
from sparkjet.engine.spark_checkpoint import ends_of, with_sources
from sparkjet.time import MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots.record import Record
    from sparkjet.time import InputsState

T = TypeVar("T")
SOURCES = "sources"
"""The key in a record's ``unsaid`` for the list of sources."""
_UNTOLD = (
    "how far each of them has been read is unknown. Change back, give each stream a name with alias(…) and start "
    "the query once, and then make the change"
)


class KnownSource(NamedTuple):
    """A Spark source, as listed in a record.

    Attributes:
        prefix: Prefix of its input, with which its substreams' names begin.
        name: The name given by ``readStream.name``; empty without one.
        reads: Its format and what it reads; empty if the record does not say.
    """

    prefix: str
    name: str
    reads: str

    @property
    def alias(self) -> str:
        """The prefix without the numbers that unions give to unnamed streams."""
        return "/".join(part for part in self.prefix.split("/") if part and not part.isdecimal())

    @property
    def what(self) -> str:
        """The place that it reads, if that distinguishes it from others: the format alone does not."""
        return self.reads if " " in self.reads else ""

    def __str__(self) -> str:
        return " ".join(each for each in (self.name or self.prefix, self.reads and f"({self.reads})") if each)


@dataclass(frozen=True)
class MovedSources:
    """The mapping from the sources of a record to those of the query.

    Attributes:
        numbers: Each source's number in the record; None for an added one.
        inputs: For each input, by its prefix, the prefix in the record; None for an added one.
        before: The sources of the record.
        now: The sources of the query.
        fingerprint: Fingerprint of the query's inputs.
        fresh: The watermarks of a query with these inputs that has not begun yet.
    """

    numbers: tuple[int | None, ...]
    inputs: Mapping[str, str | None]
    before: Sequence[KnownSource]
    now: Sequence[KnownSource]
    fingerprint: Mapping[str, object]
    fresh: InputsState

    def of(self, record: Record) -> Record:
        """The record with the query's sources instead of its own; its stages stay as they were."""
        moved = [
            (_key(each, number), None if before is None else (_key(self.before[before], before), before))
            for number, (each, before) in enumerate(zip(self.now, self.numbers, strict=True))
        ]
        return msgspec.structs.replace(
            record,
            spark=None if record.spark is None else with_sources(record.spark, moved),
            watermarks=record.watermarks.among(self.inputs, self.fresh),
            queues=_moved(record.queues, moved),
            heard=_moved(record.heard, moved),
            # Along with what they belong to: everything that is derived from this record fits together.
            fingerprint={**record.fingerprint, "inputs": dict(self.fingerprint)},
            unsaid={**record.unsaid, SOURCES: [[*each] for each in self.now]},
        )


def _moved(found: Mapping[str, T], moved: Sequence[tuple[str, tuple[str, int] | None]]) -> dict[str, T]:
    """The entries of a record by source, under the present keys of the sources."""
    return {now: found[before[0]] for now, before in moved if before is not None and before[0] in found}


def moved_sources(plan: Plan, record: Record) -> tuple[MovedSources | None, list[Change]]:
    """The changes to a record's sources; None if they are the query's, in its order."""
    now, before = [KnownSource(*each) for each in plan.described_sources], recorded_sources(record)
    offsets = None if record.spark is None else len(ends_of(record.spark))
    is_listed = not plan.inputs or {each.prefix for each in now} == {each.prefix for each in plan.inputs}
    if before is None or offsets not in {None, len(before)} or not is_listed:
        # Homes that tests keep, some of Spark 4.0, do not list their sources; or a source is read twice.
        is_same = offsets in {None, len(now)} if before is None else _prefixes(before) == _prefixes(now)
        return None, [] if is_same else [_refused("sources", str(offsets), str(len(now)), _UNTOLD)]
    numbers = matched(before, now)
    if numbers is None:
        return None, [_refused("sources", _listed(before), _listed(now), _UNTOLD)]
    inputs = _inputs(plan, before, now, numbers)
    if inputs is None:
        note = "the streams of a union have been put together in another way. Give them the withWatermark that they had"
        return None, [_refused("sources", _listed(before), _listed(now), note)]
    if numbers == [*range(len(before))] and all(prefix == of for prefix, of in inputs.items()):
        return None, []
    moved = MovedSources(tuple(numbers), inputs, before, now, plan.fingerprint["inputs"], plan.tracker().snapshot())
    return moved, list(_changes(plan, record, moved))


def recorded_sources(record: Record) -> list[KnownSource] | None:
    """The sources whose offsets a record has, in order; None if it does not say which they are."""
    listed = record.unsaid.get(SOURCES)
    if listed is not None:
        return [KnownSource(*each) for each in listed]
    inputs = record.fingerprint.get("inputs", {})
    return [KnownSource(prefix, "", "") for prefix in inputs] or None


def matched(before: Sequence[KnownSource], now: Sequence[KnownSource]) -> list[int | None] | None:
    """Each source's number before, None for an added one; None instead of the list if that cannot be determined.

    They are matched by the names that the user gave; without names, by what they read; if that has changed too, by
    position.

    >>> clicks, views = KnownSource("clicks/", "", "json /clicks"), KnownSource("views/", "", "json /views")
    >>> matched([clicks, views], [views, clicks._replace(prefix="1/clicks/")]), matched([clicks, views], [views])
    ([1, 0], [1])
    """
    found: dict[int, int] = {}
    for told in _TOLD:
        pairs = _pairs(before, now, found, told)
        if len({old for _, old in pairs}) < len(pairs) or len({new for new, _ in pairs}) < len(pairs):
            # The name and what is read contradict each other: offsets of the one are not those of the other.
            return None
        found |= dict(pairs)
    if len(before) == len(now):
        left = [place for place in range(len(now)) if place not in found and place not in found.values()]
        found |= {place: place for place in left if before[place].alias == now[place].alias}
    gone = [each for number, each in enumerate(before) if number not in found.values()]
    came = [each for number, each in enumerate(now) if number not in found]
    if any(not _are_apart(one, other) for one in gone for other in came):
        return None
    return [found.get(number) for number in range(len(now))]


def _pairs(
    before: Sequence[KnownSource],
    now: Sequence[KnownSource],
    found: Mapping[int, int],
    told: Iterable[Callable[[KnownSource], object]],
) -> set[tuple[int, int]]:
    """The new and old numbers of sources that one of these keys matches, if no other source has the same value."""
    pairs = set()
    for key in told:
        olds = [(key(each), n) for n, each in enumerate(before) if n not in found.values() and key(each)]
        news = [(key(each), n) for n, each in enumerate(now) if n not in found and key(each)]
        values = [value for value, _ in olds], [value for value, _ in news]
        pairs |= {
            (new, old)
            for value, new in news
            for same, old in olds
            if same == value and values[0].count(value) == values[1].count(value) == 1
        }
    return pairs


_TOLD: Sequence[Sequence[Callable[[KnownSource], object]]] = (
    [lambda each: each.name],
    [lambda each: each.alias and each.what and (each.alias, each.what)],
    [lambda each: each.alias, lambda each: each.what],
)
"""Keys that identify sources, the most certain first; keys at the same level must not contradict each other."""


def _are_apart(one: KnownSource, other: KnownSource) -> bool:
    """Whether two sources that nothing shows to be the same are known to be different."""
    return bool((one.alias and other.alias and one.alias != other.alias) or (one.name and other.name))


def _inputs(
    plan: Plan, before: Sequence[KnownSource], now: Sequence[KnownSource], numbers: Sequence[int | None]
) -> dict[str, str | None] | None:
    """Each input's prefix before; None if one input's sources belonged to several, or the other way around."""
    found: dict[str, str | None] = {each.prefix: None for each in plan.inputs}
    for each, number in zip(now, numbers, strict=True):
        if number is None or not found:
            continue
        prefix = before[number].prefix
        if found[each.prefix] not in {None, prefix}:
            return None
        found[each.prefix] = prefix
    kept = [prefix for prefix in found.values() if prefix is not None]
    return found if len(kept) == len(set(kept)) else None


def _changes(plan: Plan, record: Record, moved: MovedSources) -> Iterable[Change]:
    before, now, numbers = moved.before, moved.now, moved.numbers
    kept = [number for number in numbers if number is not None]
    refused = ""
    if len(plan.sources.all) > 1:
        refused = "the query joins streams, and a side of a join cannot become another one"
    elif record.history is not None:
        refused = "the query has begun with a history, which ends where the streams begin that it had then"
    for number, each in enumerate(before):
        if number not in kept:
            note = refused or _retired(plan, record, moved, number)
            yield Change("query", f"source {each}", "read", "none", _unless(refused, Consequence.RETIRED), note)
    for each, before_it in zip(now, numbers, strict=True):
        if before_it is None:
            note = refused or _added(plan, record)
            yield Change("query", f"source {each}", "none", "new", _unless(refused, Consequence.ADDED), note)
    for prefix, of in moved.inputs.items():
        if of is not None and of != prefix:
            yield Change("query", "input", of or "all", prefix or "all", Consequence.FREE)
    if kept != sorted(kept):
        yield Change("query", "sources", _listed(before), _listed(now), Consequence.FREE)


def _retired(plan: Plan, record: Record, moved: MovedSources, number: int) -> str:
    source = moved.before[number]
    notes = ["its offsets are dropped: added again, it is read from where its options say"]
    if plan.inputs and source.prefix not in moved.inputs.values():
        notes.insert(0, "no window waits for it now")
    elif plan.inputs and any(each.watermark.by for each in plan.inputs):
        notes.insert(0, "its substreams are waited for until query.retireSubstream, or their timeout")
    if _key(source, number) in record.queues:
        notes.append("messages that it has not acknowledged come again to whoever receives from there")
    return "; ".join(notes)


def _added(plan: Plan, record: Record) -> str:
    watermark = record.watermarks.coalescer.emitted
    if not plan.inputs or watermark == MIN:
        return ""
    return f"its rows from before {shown(watermark)} are late, and the watermark waits for its first ones"


def _refused(what: str, before: str, now: str, note: str) -> Change:
    return Change("query", what, before, now, Consequence.REFUSED, note)


def _unless(refused: str, consequence: Consequence) -> Consequence:
    return Consequence.REFUSED if refused else consequence


def _key(source: KnownSource, number: int) -> str:
    """The key of a source in Spark's checkpoint."""
    return source.name or str(number)


def _prefixes(sources: Iterable[KnownSource]) -> list[str]:
    return [each.prefix for each in sources]


def _listed(sources: Iterable[KnownSource]) -> str:
    return ", ".join(map(str, sources))
