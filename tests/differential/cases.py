"""A case: a query as small data, its rows and epochs; and the program that it renders to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.differential.marks import Mark
from tests.differential.values import TYPE

SESSIONS = ("session", "session, dynamic gap", "session, maxDuration", "session, touching")


@dataclass(frozen=True)
class Part:
    """One of the columns that a step computes: an aggregate, mostly."""

    name: str
    stream: str
    batch: str
    type: str | None = None
    """Its type, where the steps behind need it."""


@dataclass(frozen=True)
class Judge:
    """By what a step calls a row late: the start of its frame, or with a frame of a microsecond its very time.

    Attributes:
        frame: Length of a frame.
        offset: Where a frame starts.
        slide: How far apart windows end; 0 for as far as frames.
        end: Where one ends.
    """

    frame: int = 1
    offset: int = 0
    slide: int = 0
    end: int = 0

    def floor(self, time: int) -> int:
        """Start of the frame of a time."""
        return time - (time - self.offset) % self.frame

    def is_late(self, time: int, mark: int) -> bool:
        """Whether the first window of a time's frame has closed."""
        closed = mark - (mark - self.end) % self.slide if self.slide else self.floor(mark)
        return self.floor(time) < closed


@dataclass(frozen=True)
class Step:
    """A call on rows.

    ``{keys}`` stands for its keys as columns, behind a comma; ``{names}`` and ``{more}`` for their names, without and
    behind a comma; ``{columns}`` for Columns, behind a comma; ``{parts}`` for its parts.
    """

    operator: str
    stream: str
    batch: str = ""
    keys: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    judge: Judge | None = None

    def text(self, *, batch: bool) -> str:
        """The call, for a stream or for Spark's batch."""
        keys = "".join(f", {_quoted(quoted(key))}" for key in self.keys)
        names = "".join(f", {_quoted(key)}" for key in self.keys)
        parts = [f'{part.batch if batch else part.stream}.alias("{part.name}")' for part in self.parts]
        text = self.batch or self.stream if batch else self.stream
        return (
            text.replace("{names}", names[2:])
            .replace("{more}", names)
            .replace("({keys}", f"({keys[2:]}")
            .replace("{columns}", "".join(f", F.col({_quoted(quoted(key))})" for key in self.keys))
            .replace("{keys}", keys)
            .replace("{parts}", ", ".join(parts))
        )


@dataclass(frozen=True)
class Input:
    """A stream: what its columns are, what is done before the watermark, and the watermark."""

    columns: tuple[tuple[str, str], ...]
    """Names and types of the columns beside event time, substream and a small number."""
    suffix: str = ""
    mark: Mark | None = None
    """None without a watermark."""
    before: tuple[Step, ...] = ()
    known: tuple[int, ...] = ()
    """Places of the columns that are NOT NULL."""
    timed: bool = False
    """Whether a row says when it has arrived, in its own column."""

    @property
    def by(self) -> bool:
        """Whether the watermark is by substream."""
        return self.mark is not None and self.mark.by

    def reading(self) -> str:
        """Texts become values."""
        end = self.suffix
        head = [f"timestamp_micros(t) AS ts{end}", f"sub AS sub{end}", f"n AS n{end}"]
        head += [f"timestamp_micros(p) AS arrived{end}"] if self.timed else []
        values = [f"{self._value(place)} AS {quoted(name + end)}" for place, (name, _) in enumerate(self.columns)]
        return f".selectExpr({', '.join(map(_quoted, [*head, *values]))})"

    def _value(self, place: int) -> str:
        kind = TYPE[self.columns[place][1]]
        value = kind.of(f"v{place}")
        return f"coalesce({value}, {kind.of(repr(kind.texts[0]))})" if place in self.known else value

    @property
    def schema(self) -> str:
        """Columns of the source."""
        names = ["t long, sub string, n long", *(["p long"] if self.timed else [])]
        return ", ".join([*names, *(f"v{place} string" for place in range(len(self.columns)))])


@dataclass(frozen=True)
class Event:
    """A row: its event time in microseconds, its substream, a small number, and texts of its other values."""

    time: int | None
    substream: str
    number: int | None
    values: tuple[str | None, ...]
    arrived: int | None = None
    """Processing time of its epoch, where the input is timed."""

    def record(self) -> tuple[int | str | None, ...]:
        """The row of the source."""
        arrived = () if self.arrived is None else (self.arrived,)
        return (self.time, self.substream, self.number, *arrived, *self.values)


@dataclass(frozen=True)
class Epoch:
    """Rows of each input that arrive together, and what happens with or after them."""

    rows: tuple[tuple[Event, ...], ...]
    then: str = ""
    """``restart``, ``stop``, or the phase at whose end the query crashes."""
    pause: int = 0
    """Microseconds of processing time that pass before the rows arrive."""


@dataclass(frozen=True)
class Try:
    """A step that raises for some rows.

    Attributes:
        fails: Of which rows it does, in SQL that does not.
        place: What a dead letter says at first of where the row has failed.
        stream: The call on a stream.
        batch: The same for the other rows.
    """

    fails: str
    place: str
    stream: str
    batch: str


@dataclass(frozen=True)
class Diverting:
    """The steps after ``divert``: before the watermark or after it."""

    tries: tuple[Try, ...]
    early: bool = False

    def call(self) -> str:
        """The calls on a stream."""
        return "".join([".divert(errors=True)", *(each.stream for each in self.tries)])

    def batch(self) -> str:
        """The arguments of ``tried``."""
        return "".join(f", ({_quoted(e.fails)}, {_quoted(e.place)}, lambda rows: rows{e.batch})" for e in self.tries)


@dataclass(frozen=True)
class Case:
    """A query with its input."""

    seed: int
    mode: str
    zone: str
    inputs: tuple[Input, ...]
    branches: tuple[tuple[Step, ...], ...]
    epochs: tuple[Epoch, ...]
    meet: Step | None = None
    """How two inputs become one."""
    late: bool = False
    """Whether rows may be late, and the oracle leaves them out."""
    options: tuple[tuple[str, object], ...] = ()
    through: str = "driver"
    """How the query runs: in a ``driver``, as a real ``stream`` of files, or in one ``batch``."""
    sink: str = "collected"
    """Where the results of a real stream go."""
    home: str = "path"
    """Where its snapshots are: in a ``path`` or a ``grid``."""
    start: int = 0
    """The clock's first time, in microseconds."""
    early: bool = False
    """Whether windows are emitted before they are final."""
    diverting: Diverting | None = None
    """Steps that raise for some rows, whose dead letters are one more result."""
    many: bool = False
    """Whether state is handled as if there were many rows."""
    dropped: int | None = None
    """The branch whose late rows are the last result."""

    @property
    def results(self) -> int:
        """How many results there are, with dead letters and late rows."""
        return len(self.branches) + (self.diverting is not None) + (self.dropped is not None)

    def operators(self) -> list[str]:
        """The query's features, for the coverage."""
        steps = [step for branch in self.branches for step in branch] + [s for i in self.inputs for s in i.before]
        found = [step.operator for step in steps] + ([self.meet.operator] if self.meet else [])
        found += ["several results"] if len(self.branches) > 1 else []
        found += ["windowless"] if any(all(s.judge is None and not s.parts for s in b) for b in self.branches) else []
        found += ["late rows"] if self.late else []
        found += ["by substream"] if any(each.by for each in self.inputs) else []
        found += ["null event time"] if any(e.time is None for e in self.events()) else []
        found += {"batch": ["in one batch"], "stream": ["real stream", f"sink {self.sink}", f"home {self.home}"]}.get(
            self.through, []
        )
        found += [f"early results{', marked' if dict(self.options).get('isEarly') else ''}"] if self.early else []
        found += ["NOT NULL column"] if any(each.known for each in self.inputs) else []
        found += [name for each in self.inputs if each.mark for name in each.mark.operators()]
        found += [f"dead letters{' before the watermark' * self.diverting.early}"] if self.diverting else []
        found += ["as if many rows"] if self.many else []
        found += ["late rows delivered"] if self.dropped is not None else []
        found += ["clock"] if any(epoch.pause for epoch in self.epochs) else []
        found += [f"then {epoch.then}" for epoch in self.epochs if epoch.then and self.through == "driver"]
        return [*found, f"mode {self.mode}"]

    @property
    def clocked(self) -> bool:
        """Whether processing time matters."""
        return any(each.timed or (each.mark is not None and each.mark.clocked) for each in self.inputs)

    @property
    def has_an_end(self) -> bool:
        """Whether something of the query waits for the end of the input."""
        steps = [step.operator for branch in self.branches for step in branch] + [
            self.meet.operator if self.meet else ""
        ]
        waiting = {"tumbling", "sliding", *SESSIONS}
        outer = {f"join {how}" for how in ("left", "right", "full", "left_anti")}
        timers = any(step.startswith(("transformWithState", "window join", "EventTimeTimeout")) for step in steps)
        return (self.mode == "append" or self.early) and (timers or not (waiting | outer).isdisjoint(steps))

    def aggregates(self) -> list[str]:
        """The aggregate functions of the query."""
        # Without their place.
        return [part.name[:-1] for branch in self.branches for step in branch for part in step.parts]

    def types(self) -> list[str]:
        """The types of the columns."""
        return [ddl for each in self.inputs for _, ddl in each.columns]

    def events(self) -> list[Event]:
        """All rows."""
        return [event for epoch in self.epochs for rows in epoch.rows for event in rows]

    def substreams(self, number: int) -> list[str]:
        """Substreams of an input."""
        return sorted({event.substream for epoch in self.epochs for event in epoch.rows[number]})

    def definitions(self) -> str:
        """The functions ``query`` and ``batch`` and what they need."""
        names = "ab"[: len(self.inputs)]
        lines = [*_HEAD, ""]
        for batch in (False, True):
            lines.append(f"def {'batch' if batch else 'query'}({', '.join(names)}):")
            for number, (name, each) in enumerate(zip(names, self.inputs, strict=True)):
                lines.append(f"    {name} = {name}{each.reading()}{_calls(each.before, batch=batch)}")
                if self.diverting and self.diverting.early and not batch:
                    lines.append(f"    {name} = {name}{self.diverting.call()}")
                if each.mark is not None and not batch:
                    lines.append(f"    {name} = {name}{each.mark.call(each.suffix, self.substreams(number))}")
            met = self.meet.text(batch=batch) if self.meet else ""
            lines.append(f"    rows = a{met}")
            if self.diverting and batch:
                lines.append(f"    rows, dead = tried(rows{self.diverting.batch()})")
            elif self.diverting and not self.diverting.early:
                lines.append(f"    rows = rows{self.diverting.call()}")
            found = []
            for number, branch in enumerate(self.branches):
                cut = stateful(branch)
                if not batch:
                    lines.append(f"    first{number} = rows{_calls(branch[: cut + 1], batch=False)}")
                    found.append(f"first{number}{_calls(branch[cut + 1 :], batch=False)}")
                    continue
                lines.append(f"    before{number} = rows{_calls(branch[:cut], batch=True)}")
                lines.append(f"    found{number} = before{number}{_calls(branch[cut : cut + 1], batch=True)}")
                after = f"lambda frame: frame{_calls(branch[cut + 1 :], batch=True)}"
                found.append(f"(before{number}, found{number}, {after})")
            found += self._beside(batch=batch)
            lines += [f"    return [{', '.join(found)}]", ""]
        return "\n".join(lines)

    def _beside(self, *, batch: bool) -> list[str]:
        """Dead letters, and late rows."""
        found = []
        if self.diverting:
            found.append("(dead, dead, lambda frame: frame)" if batch else "letters(rows.deadLetters)")
        if self.dropped is not None:
            late = f"late(before{self.dropped})"
            found.append(f"({late}, {late}, lambda frame: frame)" if batch else f"dropped(first{self.dropped})")
        return found

    def script(self) -> str:
        """A program that shows both results."""
        shown = [
            ([[event.record() for event in rows] for rows in epoch.rows], epoch.pause, epoch.then)
            for epoch in self.epochs
        ]
        options = "".join(f", {name}={value!r}" for name, value in (*self.options, ("outputMode", self.mode)))
        options += f", clock=ManualClock({self.start})" if self.start else ""
        data = [f"    {each!r}," for each in shown]
        return "\n".join(
            [
                f"# seed {self.seed}",
                self.definitions(),
                f"SCHEMAS = {[each.schema for each in self.inputs]!r}",
                "EPOCHS = [",
                *data,
                "]",
                _MAIN.replace("{options}", options).replace("{zone}", self.zone).replace("{many}", _MANY * self.many),
            ]
        )


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return name if re.fullmatch(r"\w+", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def stateful(branch: tuple[Step, ...]) -> int:
    """Place of the first step that has state, or the number of steps."""
    return next((i for i, step in enumerate(branch) if step.judge or step.parts), len(branch))


def _calls(steps: tuple[Step, ...], *, batch: bool) -> str:
    return "".join(step.text(batch=batch) for step in steps)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_HEAD = (
    "import sparkjet as sj",
    "from pyspark.sql import SparkSession, functions as F",
    "from sparkjet import EpochPhase, ManualClock, functions as J",
    "from sparkjet.testing import StreamDriver",
    "from tests.differential.functions import *",
)
_MANY = """from tests.differential.thresholds import lowered
as_if_many = lowered()
as_if_many.__enter__()
"""
_MAIN = """spark = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "{zone}").getOrCreate()
{many}driver = StreamDriver(spark, query, SCHEMAS{options})
for rows, pause, then in EPOCHS:
    if pause:
        driver.engine.join()
        driver.advance(pause)
    if then.isupper():
        with driver.crash(at=EpochPhase[then]):
            driver.process(*rows)
        driver.restart()
        driver.process()
        continue
    driver.process(*rows)
    if then == "stop":
        driver.stop()
    if then:
        driver.restart()
driver.close_windows()
united = [sum((rows[i] for rows, _, _ in EPOCHS), []) for i in range(len(SCHEMAS))]
frames = [spark.createDataFrame(rows, schema) for rows, schema in zip(united, SCHEMAS)]
for number, (_, expected, after) in enumerate(batch(*frames)):
    print(number, "found", *driver.results(number), sep="\\n  ")
    print(number, "Spark's batch", *after(expected).collect(), sep="\\n  ")
"""
