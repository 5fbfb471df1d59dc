"""Random queries: a seed becomes a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.differential.cases import Case, Judge, Part, Step, quoted
from tests.differential.columns import keys, traits
from tests.differential.maker import Maker
from tests.differential.rows import WITHIN, arrivals

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu")
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def windows_case(make: Maker) -> Case:
    """Windows that close, of one stream or of the union of two."""
    make.late = make.chance(0.3)
    each = make.start(make.input())
    inputs, meet = [each], None
    if make.chance(0.25):
        plain = make.start(replace(each, before=()), share=0)
        inputs, meet = [plain, replace(plain, by=make.chance(0.3))], Step("union", ".union(b)")
    branches = _branches(make, make.windows, (1, 1, 1, 2))
    return Case(make.seed, "append", "UTC", tuple(inputs), branches, (), meet, late=make.late)


def _branches(
    make: Maker, one: Callable[[], tuple[Step, ...]], numbers: tuple[int, ...]
) -> tuple[tuple[Step, ...], ...]:
    columns = dict(make.columns)
    found = []
    for _ in range(make.rng.choice(numbers)):
        make.columns = dict(columns)
        found.append(one())
    return tuple(found)


def rolling_case(make: Maker) -> Case:
    """Aggregates that are never final."""
    mode = make.rng.choice(["update", "complete"])
    make.marked = make.chance(0.5)
    make.windows_roll = not make.marked or mode == "complete"
    each = make.start(make.input())
    if not make.marked:
        each = replace(each, lag=None, by=False)
    return Case(make.seed, mode, "UTC", (each,), _branches(make, make.rolling, (1, 1, 1, 2)), ())


def duplicates_case(make: Maker) -> Case:
    """Rows whose key has come before are dropped; what is compared is the same for each of them."""
    make.late = make.chance(0.3)
    each = make.start(make.input())
    before = make.plain(0.3)
    names = {name: ddl for name, ddl in make.columns.items() if name != "ts"}
    grouped = keys(make.rng, names, 3)
    if make.chance(0.3):
        make.late = False
        grouped = grouped or ("sub",)
        step = Step("dropDuplicates", ".select({keys}).dropDuplicates([{names}])", keys=grouped)
        if make.chance(0.3):
            step = Step("distinct", ".select({keys}).distinct()", keys=grouped)
        if make.chance(0.5):
            each = replace(each, lag=None, by=False)
        return Case(make.seed, "append", "UTC", (each,), ((*before, step),), ())
    if make.chance(0.3):
        make.late, grouped = False, grouped or ("sub",)
        texts = [f".{name}([{{names}}]).select({{keys}})" for name in (WITHIN, "dropDuplicates")]
        step = Step(WITHIN, *texts, keys=grouped, judge=Judge())
        return Case(make.seed, "append", "UTC", (each,), ((*before, step),), ())
    text = '.dropDuplicates(["ts"{more}]).select("ts"{keys})'
    step = Step("dropDuplicates by time", text, keys=grouped, judge=Judge())
    make.columns = {"ts": "timestamp"} | {name: names[name] for name in grouped}
    behind = (make.windowed(),) if make.chance(0.4) else ()
    return Case(make.seed, "append", "UTC", (each,), ((*before, step, *behind),), (), late=make.late)


def join_case(make: Maker) -> Case:
    """Two streams whose event times are close, and windows over them or none."""
    right = make.start(make.input("_b", _with_key(make)))
    others = dict(make.columns)
    left = make.start(make.input(columns=_with_key(make, right.columns[0])))
    left, right = replace(left, before=()), replace(right, before=())
    make.columns = {"ts": "timestamp", "sub": "string", "n": "bigint"} | dict(left.columns)
    others = {"ts_b": "timestamp", "sub_b": "string", "n_b": "bigint"} | {f"{n}_b": ddl for n, ddl in right.columns}
    how = make.rng.choice(HOWS)
    same = make.rng.choice(["", "<=>", "AND n < n_b", "AND sub <=> sub_b"])
    low, high = (make.seconds(make.rng.choice([0, 1, 6, 20])) for _ in range(2))
    pair = quoted(left.columns[0][0]), quoted(f"{right.columns[0][0]}_b")
    same = f"{pair[0]} <=> {pair[1]}" if same == "<=>" else f"{pair[0]} = {pair[1]} {same}".strip()
    bound = f"ts_b BETWEEN ts - INTERVAL {low} AND ts + INTERVAL {high}"
    meet = Step(f"join {how}", f'.join(b, F.expr("{same} AND {bound}"), "{how}")', judge=Judge())
    if "semi" not in how and "anti" not in how:
        make.columns |= others
    steps = list(make.plain(0.3))
    if make.chance(0.4):
        steps.append(make.windowed())
    late = make.chance(0.3)
    return Case(make.seed, "append", "UTC", (left, right), (tuple(steps),), (), meet, late=late)


def _with_key(make: Maker, key: tuple[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    columns = make.input().columns
    while key is None and "key" not in traits("", columns[0][1]):
        columns = make.input().columns
    return (key or columns[0], *columns[1:])


def windowless_case(make: Maker) -> Case:
    """Rows of a stream as they are."""
    each = make.start(make.input())
    if make.chance(0.6):
        each = replace(each, lag=None, by=False)
    return Case(make.seed, "append", "UTC", (each,), _branches(make, lambda: make.plain(0.7), (1, 1, 2)), ())


def timers_case(make: Maker) -> Case:
    """A state function that counts by windows of its own, which timers close; or that counts all rows so far."""
    each = make.start(replace(make.input(columns=(("c0", make.rng.choice(["string", "int", "date"])),))))
    ddl = each.columns[0][1]
    part = Part("n_rows", "", 'F.count("*")', "bigint")
    if make.chance(0.3):
        arguments = f'counted, "c0 {ddl}, n_rows long", "n long", "update", "NoTimeout"'
        stream = f'.select("c0").groupBy("c0").applyInPandasWithState({arguments})'
        step = Step("applyInPandasWithState", stream, ".groupBy({keys}).agg({parts})", ("c0",), (part,))
        return Case(make.seed, "update", "UTC", (replace(each, before=()),), ((step,),), ())
    size = make.rng.choice([1, 10, 60]) * make.unit
    method = make.rng.choice(["transformWithState", "transformWithStateInPandas"])
    # Not the time itself: those of pandas end in 1677 and 2262, in Spark's own functions too.
    at = '.selectExpr("c0", "unix_micros(ts) AS at")'
    stream = (
        f'{at}.groupBy("c0").{method}({method}Counts({size}), "c0 {ddl}, end long, n_rows long", "append", "EventTime")'
    )
    window = f'F.window("ts", "{size} microseconds")'
    batch = f'.groupBy({window}{{keys}}).agg({{parts}}).selectExpr("c0", "unix_micros(window.end) AS end", "n_rows")'
    step = Step(method, stream, batch, ("c0",), (part,), Judge())
    late = make.chance(0.3)
    return Case(make.seed, "append", "UTC", (replace(each, before=()),), ((step,),), (), late=late)


def window_join_case(make: Maker) -> Case:
    """Two results of the same window, joined."""
    make.late = make.chance(0.3)
    each = make.start(make.input())
    columns = dict(make.columns)
    by, judge = make.window()
    grouped = keys(make.rng, {name: ddl for name, ddl in columns.items() if name != "ts"})
    sides = []
    for side in ("left", "right"):
        make.columns = dict(columns)
        filtered = make.rng.choice(["", '.where("n > 1")', '.where("n % 2 = 0")'])
        aggregate = make.rng.choice(['F.count("*")', 'F.max("n")', 'F.min("sub")'])
        sides.append(f'rows{filtered}.groupBy({by}{{keys}}).agg({aggregate}.alias("{side}"))')
    how = make.rng.choice(HOWS)
    text = f'.transform(lambda rows: {sides[0]}.join({sides[1]}, ["window"{{more}}], "{how}"))'
    step = Step(f"window join {how}", text, keys=grouped, judge=judge)
    return Case(make.seed, "append", "UTC", (each,), ((step,),), (), late=make.late)


SHAPES: tuple[tuple[Callable[[Maker], Case], int], ...] = (
    (windows_case, 7),
    (rolling_case, 5),
    (duplicates_case, 2),
    (join_case, 4),
    (window_join_case, 2),
    (windowless_case, 1),
    (timers_case, 2),
)


def random_case(seed: int) -> Case:
    """The case of a seed."""
    make = Maker(seed)
    shapes = [shape for shape, weight in SHAPES for _ in range(weight)]
    case = make.rng.choice(shapes)(make)
    zone = make.rng.choice(ZONES) if make.chance(0.3) else "UTC"
    options: list[tuple[str, object]] = [("statePartitions", make.rng.choice([1, 2, 3]))]
    if make.chance(0.2):
        options.append(("overlapEpochs", True))
    case = arrivals(make.rng, replace(case, zone=zone, options=tuple(options)), make.unit)
    # In one batch no row is late, and no timer fires.
    other = (
        "stream" if case.late or "transformWithState" in case.definitions() else make.rng.choice(["stream", "batch"])
    )
    return replace(case, through=other) if make.chance(0.25) else case
