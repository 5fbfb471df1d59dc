"""The parts of random queries: inputs, steps without state, windows, aggregations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from tests.differential.cases import Diverting, Input, Judge, Step
from tests.differential.columns import FAMILIES, TWINS, aggregates, keys, plain_step, some_type
from tests.differential.diverting import diverting
from tests.differential.marks import Mark
from tests.differential.rows import UNITS
from tests.differential.values import TYPE

SECOND = 1_000_000
ENDLESS = 1 << 60
"""Longer than any session, in microseconds."""
OWN_NAMES = (("start", "row_count", "key0"), ("end", "frame", "acc0_count"), ("acc0_value", "list", "best"))
"""Names of what operators keep beside the user's columns, by place."""


def _micros(microseconds: int) -> str:
    return f'"{microseconds} microseconds"'


def _by_hand(gap: str, longest: int) -> str:
    """Sessions that Spark has not, or has wrong: for its batch, by window functions."""
    columns = f'{{"gap": F.expr("{gap}"), "key": F.struct(F.lit(0){{columns}})}}'
    return f'.withColumns({columns}).transform(longest, {longest}).groupBy("session_window"{{keys}}).agg({{parts}})'


def _case(cases: Mapping[str, str | None], other: str, value: str) -> str:
    whens = [f"WHEN {when} THEN {'NULL' if then is None else value.format(then)}" for when, then in cases.items()]
    return f"CASE {' '.join(whens)} ELSE {value.format(other)} END"


class Maker:
    """Makes the parts of one case."""

    def __init__(self, seed: int) -> None:
        """Everything follows from the seed."""
        self.rng = Random(seed)
        # For what came later: a seed stays the case that it was.
        self.beside = Random(f"beside {seed}")
        self.seed = seed
        self.unit = self.rng.choice(UNITS)
        self.late = self.marked = self.windows_roll = self.diverts = False
        self.window_name = "window"
        self.columns: dict[str, str | None] = {}

    def chance(self, share: float) -> bool:
        """Whether something is so."""
        return self.rng.random() < share

    def input(self, suffix: str = "", columns: tuple[tuple[str, str], ...] | None = None) -> Input:
        """A stream with one to three columns of any types."""
        if columns is None:
            numbers = range(self.rng.randint(1, 3))
            columns = tuple((self.name(number), some_type(self.rng)) for number in numbers)
        kinds = enumerate(ddl for _, ddl in columns)
        known = tuple(place for place, ddl in kinds if TYPE[ddl].read.startswith("CAST") and self.chance(0.1))
        return Input(columns, suffix, Mark(by=self.chance(0.3)), known=known)

    def name(self, number: int) -> str:
        """The name of a column; some need quotes, some are what sparkjet calls its own."""
        if self.chance(0.8):
            return f"c{number}"
        endings = [" x", ".y", "`z", "'", "é", "A"]
        return self.rng.choice([*OWN_NAMES[number], *(f"c{number}{ending}" for ending in endings)])

    def start(self, each: Input, share: float = 0.3) -> Input:
        """Its columns, and steps before the watermark."""
        end = each.suffix
        self.columns = {f"ts{end}": "timestamp", f"sub{end}": "string", f"n{end}": "bigint"}
        self.columns |= {name + end: ddl for name, ddl in each.columns}
        # Rows that are dropped before the watermark do not move it.
        return replace(each, before=self.plain(0 if self.late else share, before=True))

    def plain(self, share: float = 0.5, *, before: bool = False) -> tuple[Step, ...]:
        """Up to two steps without state, before or behind the watermark."""
        found = []
        for _ in range(2):
            step = self._plain(before=before) if self.chance(share) else None
            found += [step] if step else []
        return tuple(found)

    def _plain(self, *, before: bool) -> Step | None:
        return plain_step(self.rng, self.columns, before=before, calm=self.diverts)

    def diverting(self, *inputs: Input) -> Diverting | None:
        """Steps that raise for some rows, now and then; behind them only some others may stand."""
        self.diverts = self.chance(0.15)
        if not self.diverts:
            return None
        timed = len(inputs) == 1 and inputs[0].mark is not None
        return diverting(self.rng, self.columns, timed=timed, filters=not self.late)

    def seconds(self, units: int) -> str:
        """A duration in SQL."""
        return f"{units * self.unit // SECOND} seconds" if self.unit >= SECOND else f"{units * self.unit} microseconds"

    def window(self) -> tuple[str, Judge]:
        """A tumbling or sliding window over the event time."""
        size, slide = self.rng.choice([(10, 10), (24, 6), (40, 10), (7, 3), (1, 1), (60, 60), (12, 9)])
        start = self.rng.randrange(slide) if self.chance(0.2) else 0
        slides = f', "{self.seconds(slide)}"' if slide != size or start else ""
        starts = f', "{self.seconds(start)}"' if start else ""
        divisor = next(d for d in range(slide, 0, -1) if size % d == 0 and slide % d == 0)
        judge = Judge(*(each * self.unit for each in (divisor, start, slide, start + size)))
        return f'F.window("ts", "{self.seconds(size)}"{slides}{starts})', judge

    def windowed(self) -> Step:
        """An aggregation by window."""
        self.window_name, by, operator, gap, columns = "window", "", "", "", dict(self.columns)
        if self.chance(0.35):
            self.window_name = "session_window"
            by, operator, gap = self.session()
            judge = Judge()
            if self.chance(0.25):
                return self._cut(by, gap)
            if operator == "session" and self.beside.random() < 0.4:
                return self._touching()
        else:
            by, judge = self.window()
            operator = "sliding" if by.count(",") > 1 else "tumbling"
        family = self.beside.choice(FAMILIES) if operator == "sliding" and self.beside.random() < 0.7 else ()
        step = self._aggregated(operator, by, "ts", judge, family)
        collated = any("collate" in (columns[name] or "") for name in step.keys)
        return replace(step, batch=_by_hand(gap, ENDLESS)) if gap and collated else step

    def _cut(self, by: str, gap: str) -> Step:
        """Sessions that are cut into pieces, which Spark has not."""
        longest = self.rng.choice([2, 7, 30]) * self.unit
        step = self._aggregated("session, maxDuration", f"sj.{by[2:-1]}, {_micros(longest)})", "ts", Judge())
        return replace(step, batch=_by_hand(gap, longest))

    def _touching(self) -> Step:
        """Sessions whose gap events may be apart exactly, where Spark would merge them."""
        gap = f"{self.beside.choice([2, 3, 8]) * self.unit} microseconds"
        step = self._aggregated("session, touching", f'F.session_window("ts", "{gap}")', "ts", Judge())
        return replace(step, batch=_by_hand(f"INTERVAL {gap}", ENDLESS))

    def session(self) -> tuple[str, str, str]:
        """A session window, whose gap no two events are apart exactly: Spark would merge them; and the gap in SQL."""
        half = max(1, self.unit // 2)
        gap = f"{self.rng.choice([3, 8, 20]) * self.unit + half} microseconds"
        if self.chance(0.4):
            other = f"{2 * self.unit + half} microseconds"
            cases = {"n > 2": gap}
            if not self.late and self.beside.random() < 0.5:
                # Rows that have none are in no session. Late ones among them are not counted as late.
                cases["n < 0"] = self.beside.choice(["0 seconds", "-1 seconds", None])
            sql, text = (_case(cases, other, value) for value in ("INTERVAL {}", "'{}'"))
            return f'F.session_window("ts", F.expr("{text}"))', "session, dynamic gap", sql
        return f'F.session_window("ts", "{gap}")', "session", f"INTERVAL {gap}"

    def _aggregated(
        self, operator: str, by: str, time: str | None, judge: Judge | None, only: Sequence[str] = ()
    ) -> Step:
        grouped = keys(self.rng, {name: ddl for name, ddl in self.columns.items() if not name.startswith("ts")})
        only = only or (TWINS if self.beside.random() < 0.1 else ())
        parts = aggregates(self.rng, self.columns, time, calm=self.diverts, only=only)
        # Not twice one name, which is refused.
        grouped = tuple(name for name in grouped if name not in {part.name for part in parts})
        self.columns = {name: self.columns[name] for name in grouped} | {part.name: part.type for part in parts}
        return Step(operator, f".groupBy({by}{{keys}}).agg({{parts}})", keys=grouped, parts=parts, judge=judge)

    def chained(self) -> Step:
        """A window over the windows before."""
        size, slide = self.rng.choice([(60, 60), (30, 30), (60, 30), (1000, 1000)])
        name = self.window_name
        lengths = f'"{self.seconds(size)}", "{self.seconds(slide)}"'
        step = self._aggregated("chained windows", f'F.window("{name}", {lengths})', None, None)
        self.window_name = "window"
        if name == "window":
            return step
        by = f'F.window(F.expr("{name}.end - INTERVAL 0.000001 SECONDS"), {lengths})'
        return replace(step, batch=f".groupBy({by}{{keys}}).agg({{parts}})")

    def windows(self) -> tuple[Step, ...]:
        """Windows, some over windows."""
        steps = [*self.plain(0.3), self.windowed(), *self.plain(0.3)]
        for _ in range(2):
            if self.chance(0.35) and any(self.columns.values()):
                steps += [self.chained(), *self.plain(0.2)]
        return tuple(steps)

    def rolling(self) -> tuple[Step, ...]:
        """Aggregates that are never final."""
        before = self.plain(0.3)
        time = "ts" if self.marked else None
        if self.windows_roll and self.chance(0.4):
            by, _ = self.window()
            step = self._aggregated("rolling windows", by, time, None)
        else:
            step = self._aggregated("rolling", "", time, None)
            step = replace(step, stream=".groupBy({keys}).agg({parts})")
        return (*before, step, *self.plain(0.2))
