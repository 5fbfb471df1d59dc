"""Comparing: a query with its newest record, stage by stage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkjet.aggregates.widening import Widening, conversion, parsed, widening
from sparkjet.engine.changed_query import Change, Consequence, MovedKey, StageUpgrade, Upgrade
from sparkjet.engine.changed_windows import changed_shape, shown
from sparkjet.engine.moved_sources import moved_sources
from sparkjet.plan.aggregation import Aggregation
from sparkjet.plan.reads import of_input
from sparkjet.spark_line import LINE_NAME
from sparkjet.time import clamp
from sparkjet.windows import SessionWindow

if TYPE_CHECKING:
    from sparkjet.engine.moved_sources import MovedSources
    from sparkjet.plan.plan import Plan, PlannedStage
    from sparkjet.snapshots.record import Record

_SESSIONS = "session window"
_OF_AGGREGATIONS = ("keys", "aggregates", "accumulators", "lacking", _SESSIONS)
_READ_AGAIN = (
    "rows have to be read again: by sj.fork from a pin from before them, or with another checkpointLocation and the "
    "source's starting options"
)
_ANOTHER_NAME = f"under another name it counts as added; otherwise {_READ_AGAIN}"
_ROUNDED = "values such as 0.1 stay rounded to float: 0.10000000149011612"


def compared(plan: Plan, record: Record) -> Upgrade:
    """The differences between a query and a record, whatever happens to them; changes nothing."""
    saved, now = record.fingerprint, plan.fingerprint
    planned = {stage.name: stage for stage in plan.stages}
    changes: list[Change] = []
    upgrades: dict[str, StageUpgrade] = {}
    moved, of_sources = moved_sources(plan, record)
    if record.epoch == 0:
        # Nothing has been read yet: there is no state to change.
        return Upgrade(saved, now, plan.unsaid, tuple(of_sources), {}, plan.shown, moved)
    changes += of_sources
    inputs, kept = saved.get("inputs", {}), now["inputs"]
    if moved is not None:
        inputs = {prefix: inputs[of] for prefix, of in moved.inputs.items() if of in inputs}
        kept = {prefix: kept[prefix] for prefix, of in moved.inputs.items() if of is not None}
    if moved is not None or not of_sources:
        changes += _parts("query", inputs, kept, "event time of input ")
    for name in [*{**saved, **now}]:
        if name == "inputs":
            continue
        stage = planned.get(name)
        if name not in saved or stage is None:
            there, gone = ("new", "none") if name not in saved else ("kept", "none")
            why = "it would lack the rows that were read before" if name not in saved else "its state would be lost"
            before, after = (gone, there) if name not in saved else (there, gone)
            changes.append(Change(name, "stage", before, after, Consequence.REFUSED, f"{why}; {_READ_AGAIN}"))
            continue
        rest = _parts(name, _others(saved[name]), _others(now[name]), "")
        if isinstance(stage.stage, Aggregation) and "aggregates" in saved[name]:
            compared_inputs = _inputs_of(plan, stage.stage, record, name, moved)
            found = _Aggregation(stage, stage.stage, record, compared_inputs, is_read=_is_read(plan, name))
            changes += [*rest, *found.changes]
            if found.upgrade is not None:
                upgrades[name] = found.upgrade
        else:
            changes += [*rest, *_parts(name, saved[name], now[name], "", only=_OF_AGGREGATIONS)]
            both = [what for what in plan.unsaid if what.startswith(f"{name} ") and what in record.unsaid]
            changes += _parts(name, _of(record.unsaid, both, name), _of(plan.unsaid, both, name), "")
    return Upgrade(saved, now, plan.unsaid, tuple(changes), upgrades, plan.shown, moved)


def lacking_of(plan: Plan, record: Record, upgrade: Upgrade) -> dict[str, tuple[int, ...]]:
    """Numbers of the aggregates that lack rows from now on, by stage."""
    kept = {
        stage.name: tuple(record.fingerprint.get(stage.name, {}).get("lacking", ()))
        for stage in plan.stages
        if isinstance(stage.stage, Aggregation)
    }
    found = {**kept, **{name: each.lacking for name, each in upgrade.stages.items()}}
    return {name: lacking for name, lacking in found.items() if lacking}


class _Aggregation:
    """The differences of one aggregation; its ``upgrade`` is None if the saved rows stay as they are."""

    def __init__(
        self,
        planned: PlannedStage,
        stage: Aggregation,
        record: Record,
        inputs: Sequence[tuple[int, int]],
        *,
        is_read: bool,
    ) -> None:
        self._name = planned.name
        self._inputs = inputs
        self._stage = stage
        self._saved: dict[str, Any] = record.fingerprint[planned.name]
        self._now: dict[str, Any] = stage.fingerprint
        self._unsaid = record.unsaid
        self._state = record.stages.get(planned.name)
        self._is_read = is_read
        self.changes: list[Change] = []
        keys = self._keys()
        aggregates = self._aggregates()
        self._window()
        longer = self._gap()
        self.upgrade = self._upgrade(keys, aggregates, longer)

    @property
    def _has_rows(self) -> bool:
        return self._state is not None and bool(self._state.deltas)

    def _add(self, what: str, before: str, now: str, consequence: Consequence, note: str = "") -> None:
        self.changes.append(Change(self._name, what, before, now, consequence, note))

    def _keys(self) -> list[MovedKey]:
        saved, now, moved = self._saved["keys"], self._now["keys"], list[MovedKey]()
        numbers = {name: number for number, name in enumerate(saved)}
        for name, kind in now.items():
            if name not in saved:
                note = f"saved rows do not say which they are of; {_READ_AGAIN}"
                self._add(f"key {name}", "none", kind, Consequence.REFUSED, note)
                continue
            moved.append(MovedKey(numbers[name], saved[name], kind))
            differing = self._told(f"key {name}", self._stage.reads.keys[name], is_cast=kind != saved[name])
            found = _widening(saved[name], kind)
            if differing is not None:
                self._add(f"key {name}", *differing, Consequence.REFUSED, f"another meaning; {_READ_AGAIN}")
            elif found is None:
                self._add(f"key {name}", saved[name], kind, Consequence.REFUSED, f"not wider; {_READ_AGAIN}")
            elif kind != saved[name]:
                note = _ROUNDED if found is Widening.ROUNDED else ""
                self._add(f"key {name}", saved[name], kind, Consequence.CAST, note)
        for name, kind in saved.items():
            if name not in now:
                self._merge(name, kind)
        kept = [name for name in saved if name in now]
        if kept != [name for name in now if name in saved]:
            self._add("keys", ", ".join(saved), ", ".join(now), Consequence.FREE)
        return moved or [MovedKey(0 if not saved else None, "int", "int")]

    def _merge(self, name: str, kind: str) -> None:
        window, closed = self._stage.grouping.window, None if self._state is None else self._state.closed
        if not isinstance(window, SessionWindow) or not self._has_rows or closed is None:
            self._add(f"key {name}", kind, "none", Consequence.MERGED)
        elif self._is_read or window.max_duration is not None:
            note = "another stage reads these results" if self._is_read else "a longest duration is counted from there"
            note = f"the beginning of a session may be gone with a closed one, and {note}; {_READ_AGAIN}"
            self._add(f"key {name}", kind, "none", Consequence.REFUSED, note)
        else:
            note = f"sessions that start before {shown(closed)} are withheld, as closed ones may be a part of them"
            self._add(f"key {name}", kind, "none", Consequence.MERGED, note)

    def _aggregates(self) -> list[tuple[str, int | None]]:
        saved, found = list(self._saved["aggregates"]), list[tuple[str, int | None]]()
        left = list(range(len(saved)))
        for number, aggregate in enumerate(self._stage.aggregates):
            same = (each for each in left if self._same(each, number, saved[each]))
            before = next(same, None)
            found.append((aggregate.computes, before))
            if before is None:
                self._added(number)
            else:
                left.remove(before)
                self._kept(number, before)
        for number in left:
            self._add(f"aggregate {saved[number]}", "kept", "none", Consequence.DROPPED)
        kept = [before for _, before in found if before is not None]
        if kept != sorted(kept):
            now = ", ".join(computes for computes, _ in found)
            self._add("aggregates", ", ".join(saved), now, Consequence.FREE)
        return found

    def _same(self, before: int, number: int, computes: str) -> bool:
        """Whether a saved aggregate is one of the query, by its text and by what both runs know of the rest."""
        aggregate = self._stage.aggregates[number]
        if aggregate.computes != computes:
            return False
        prefix = f"{self._name} aggregate {before + 1}, {computes}, "
        said = {what: self._unsaid[f"{prefix}{what}"] for what in aggregate.unsaid if f"{prefix}{what}" in self._unsaid}
        return all(_plain(aggregate.unsaid[what]) == _plain(value) for what, value in said.items())

    def _added(self, number: int) -> None:
        aggregate = self._stage.aggregates[number]
        what = f"aggregate {aggregate.computes}"
        if not self._has_rows:
            self._add(what, "none", "new", Consequence.FREE)
        elif self._is_read:
            note = f"another stage reads these results, and would not see that rows are lacking; {_READ_AGAIN}"
            self._add(what, "none", "new", Consequence.REFUSED, note)
        elif aggregate.operation.scan is not None:
            note = f"its function would be called for what has no rows of it; {_READ_AGAIN}"
            self._add(what, "none", "new", Consequence.REFUSED, note)
        else:
            self._add(what, "none", "new", Consequence.LACKING)

    def _kept(self, number: int, before: int) -> None:
        computes = self._stage.aggregates[number].computes
        what, types = f"aggregate {computes}", list[tuple[str, str]]()
        for column in sorted(self._stage.reads.of_aggregates[number]):
            texts, kind = self._stage.reads.columns[column]
            said = self._unsaid.get(f"{self._name} column {column}")
            if said is not None and said[-1] != kind:
                types.append((said[-1], kind))
            told = self._told(f"column {column}", texts, is_cast=said is not None and said[-1] != kind)
            if told is not None:
                self._add(f"{what} of {column}", *told, Consequence.REFUSED, f"another meaning; {_ANOTHER_NAME}")
                return
        old, new = self.fields(self._saved, before), self.fields(self._now, number)
        if old == new and (not types or computes.startswith("count(")):
            return
        shown = types or sorted((old.get(each, "none"), new.get(each, "none")) for each in {**old, **new})
        one, other = (", ".join(dict.fromkeys(each)) for each in zip(*shown, strict=True))
        kinds = [_widening(*each) for each in types]
        found = None if None in kinds else conversion(computes, old, new)
        if found is None:
            narrower = "not wider" if None in kinds else "no rule says what it has seen in the other type"
            self._add(what, one, other, Consequence.REFUSED, f"{narrower}; {_ANOTHER_NAME}")
        else:
            is_rounded = Widening.ROUNDED in (*kinds, found[1])
            self._add(what, one, other, Consequence.CAST, _ROUNDED if is_rounded else "")

    def _window(self) -> None:
        shapes = changed_shape(self._stage, self._state)
        if shapes is not None:
            before, now, note = shapes
            self._add("window", before, now, Consequence.FREE, note)

    def _gap(self) -> int:
        """The number of microseconds by which the gap of sessions is longer; 0 if it is not, or if that is refused."""
        saved, now = self._saved.get(_SESSIONS), self._now.get(_SESSIONS)
        if saved == now:
            return 0
        longer, closed = _longer(saved, now), None if self._state is None else self._state.closed
        consequence, note = Consequence.REFUSED, f"another meaning; {_READ_AGAIN}"
        if longer is not None and longer < 0:
            note = f"what is one session cannot be taken apart; {_READ_AGAIN}"
        elif longer is not None and closed is None:
            consequence, note = Consequence.MERGED, ""
        elif longer is not None and self._is_read:
            note = f"what is open may have been one with what has closed, and another stage reads it; {_READ_AGAIN}"
        elif longer is not None and closed is not None:
            since = shown(clamp(closed + longer))
            note = f"sessions that start before {since} are withheld, as closed ones may be a part of them"
            consequence = Consequence.MERGED
        self._add(_SESSIONS, _gap_of(saved), _gap_of(now), consequence, note)
        return longer if longer is not None and consequence is Consequence.MERGED else 0

    def _told(self, what: str, texts: Sequence[str | None], *, is_cast: bool) -> tuple[str, str] | None:
        """How something was computed and is computed now, if they differ by more than a cast where the type differs."""
        first = self._unsaid.get(f"{self._name} {what}")
        for number, before in self._inputs:
            said = self._unsaid.get(f"{self._name} {what}{of_input(before)}", first)
            text = texts[number]
            # Another version line of Spark may write the same expression differently.
            if said is None or said[0] != LINE_NAME or said[1] is None or text is None or said[1] == text:
                continue
            if not (is_cast and text.startswith(f"CAST({said[1]} AS ")):
                return str(said[1]), text
        return None

    @staticmethod
    def fields(fingerprint: Mapping[str, Any], number: int) -> dict[str, str]:
        """The fields of an aggregate's accumulator with their types."""
        prefix = f"acc{number}_"
        flat: Mapping[str, str] = fingerprint["accumulators"]
        return {name.removeprefix(prefix): kind for name, kind in flat.items() if name.startswith(prefix)}

    def _upgrade(
        self, keys: Sequence[MovedKey], aggregates: Sequence[tuple[str, int | None]], longer: int
    ) -> StageUpgrade | None:
        saved = self._saved
        lacked = tuple(saved.get("lacking", ()))
        lacking = tuple(
            number
            for number, (_, before) in enumerate(aggregates)
            if self._has_rows and (before is None or before in lacked)
        )
        if any(change.consequence is Consequence.REFUSED for change in self.changes):
            return None
        count = max(1, len(saved["keys"]))
        upgrade = StageUpgrade(
            old_keys=count,
            keys=tuple(keys),
            aggregates=tuple(aggregates),
            old_aggregates=len(saved["aggregates"]),
            old_fields=saved["accumulators"],
            old_lacking=lacked,
            lacking=lacking,
            merges=len(keys) < count or keys[0].number is None,
            longer=longer,
        )
        same_keys = [(each.number, each.before) for each in keys] == [(n, each.now) for n, each in enumerate(keys)]
        same = [before for _, before in aggregates] == list(range(len(saved["aggregates"]))) and lacking == lacked
        fields = {name: kind for name, kind in saved["accumulators"].items() if not self._counts(name)}
        now = {name: kind for name, kind in self._now["accumulators"].items() if not self._counts(name)}
        same_keys = same_keys and len(keys) == count and not longer
        return None if same_keys and same and fields == now else upgrade

    @staticmethod
    def _counts(name: str) -> bool:
        """Whether a flat column counts rows that an aggregate has not seen."""
        return name.endswith("_lacked")


def _inputs_of(
    plan: Plan, stage: Aggregation, record: Record, name: str, moved: MovedSources | None
) -> list[tuple[int, int]]:
    """The inputs of a union for which the columns read can be compared, each with the number that it had."""
    count = stage.reads.inputs
    # Written out only if there are several.
    known = record.unsaid.get(f"{name} inputs", 1)
    if moved is None or len(moved.now) != count or len(plan.sources.all) > 1:
        return [(number, number) for number in range(min(count, known))]
    numbers = enumerate(moved.numbers)
    return [(number, before) for number, before in numbers if before is not None and before < known]


def _gap_of(sessions: Any) -> str:
    """A gap with its longest session, as text."""
    if sessions is None:
        return "none"
    gap, longest = (f"{each / 1_000_000:g} seconds" if isinstance(each, int) else each for each in sessions)
    return f"a gap of {gap}" + (f", at most {longest}" if longest else "")


def _longer(saved: Any, now: Any) -> int | None:
    """How much longer a gap is than another one; None if more has changed, or pieces are cut from the beginning."""
    if saved is None or now is None or not (isinstance(saved[0], int) and isinstance(now[0], int)):
        return None
    return now[0] - saved[0] if saved[1] is None and now[1] is None else None


def _is_read(plan: Plan, name: str) -> bool:
    return any(feed.parent is not None and feed.parent.name == name for stage in plan.stages for feed in stage.feeds)


def _others(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {part: value for part, value in parts.items() if part not in _OF_AGGREGATIONS}


def _of(unsaid: Mapping[str, Any], names: Sequence[str], stage: str) -> dict[str, Any]:
    return {name.removeprefix(f"{stage} "): unsaid[name] for name in names}


def _parts(
    stage: str, saved: Mapping[str, Any], now: Mapping[str, Any], prefix: str, only: Sequence[str] | None = None
) -> list[Change]:
    """Parts that must not differ."""
    names = [part for part in {**saved, **now} if only is None or part in only]
    return [
        Change(
            stage,
            f"{prefix}{part}" if part else prefix.strip(),
            _shown(saved.get(part)),
            _shown(now.get(part)),
            Consequence.REFUSED,
            f"another meaning; {_READ_AGAIN}",
        )
        for part in names
        if _plain(saved.get(part)) != _plain(now.get(part))
    ]


def _widening(before: str, now: str) -> Widening | None:
    if before == now:
        return Widening.EXACT
    one, other = parsed(before), parsed(now)
    return None if one is None or other is None else widening(one, other)


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _plain(value: object) -> str:
    return json.dumps(value)
