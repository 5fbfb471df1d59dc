"""Random queries: a seed becomes a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.differential.cases import Case, Input, Judge, Part, Step, quoted, stateful
from tests.differential.columns import keys, traits
from tests.differential.maker import Maker
from tests.differential.marks import POLICY_CALLS, THROTTLES, Mark
from tests.differential.outlets import ANY_MODE, OUTLETS
from tests.differential.rows import BASES, PAUSE, SECOND, SKIPPED, WITHIN, arrivals
from tests.differential.values import TYPE

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu")
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
SELDOM_INNER = (*HOWS, *HOWS[1:])
"""An inner join is part of each of the others."""
METHODS = ("transformWithState", "transformWithStateInPandas")
NO_LATE_ROWS = ("window join", "transformWithState", "EventTimeTimeout")
"""Of what the results of other steps are, or what delivers no late rows."""
ROWS = Part("n_rows", "", 'F.count("*")', "bigint")


def windows_case(make: Maker) -> Case:
    """Windows that close, of one stream or of the union of two; beside them now and then results of other kinds."""
    make.late = make.chance(0.3)
    inputs, meet = _united(make, make.start(make.input()))
    failing = make.diverting(*inputs)

    def one() -> tuple[Step, ...]:
        kind = make.rng.random()
        if kind < 0.15:
            return _by_time(make)
        return make.plain(0.7) if kind < 0.25 else make.windows()

    branches = _branches(make, one, (1, 2, 2, 3))
    return Case(make.seed, "append", "UTC", inputs, branches, (), meet, late=make.late, diverting=failing)


def _united(make: Maker, each: Input) -> tuple[tuple[Input, ...], Step | None]:
    """A stream, or the union of two with the same columns."""
    if not make.chance(0.25):
        return (each,), None
    plain = make.start(replace(each, before=()), share=0)
    mark = None if each.mark is None else Mark(by=make.chance(0.3))
    method = make.rng.choice(["union", "union", "unionAll", "unionByName"])
    return (plain, replace(plain, mark=mark)), Step("union", f".{method}(b)")


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
        each = replace(each, mark=None)
    inputs, meet = _united(make, each)
    failing = make.diverting(*inputs)
    branches = _branches(make, make.rolling, (1, 2, 2, 3))
    return Case(make.seed, mode, "UTC", inputs, branches, (), meet, diverting=failing)


def duplicates_case(make: Maker) -> Case:
    """Rows whose key has come before are dropped; what is compared is the same for each of them."""
    make.late = make.chance(0.3)
    inputs, meet = _united(make, make.start(make.input()))
    before = make.plain(0.3)
    names = {name: ddl for name, ddl in make.columns.items() if name != "ts"}
    grouped = keys(make.rng, names, 3)
    if make.chance(0.4):
        make.late = False
        grouped = grouped or ("sub",)
        step = Step("dropDuplicates", ".select({keys}).dropDuplicates([{names}])", keys=grouped)
        if make.chance(0.5):
            step = Step("distinct", ".select({keys}).distinct()", keys=grouped)
        if make.chance(0.5):
            inputs = tuple(replace(each, mark=None) for each in inputs)
        return Case(make.seed, "append", "UTC", inputs, ((*before, step),), (), meet)
    if make.chance(0.3):
        make.late, grouped = False, grouped or ("sub",)
        texts = [f".{name}([{{names}}]).select({{keys}})" for name in (WITHIN, "dropDuplicates")]
        step = Step(WITHIN, *texts, keys=grouped, judge=Judge())
        return Case(make.seed, "append", "UTC", inputs, ((*before, step),), (), meet)
    steps = (*before, *_by_time(make, grouped))
    return Case(make.seed, "append", "UTC", inputs, (steps,), (), meet, late=make.late)


def _by_time(make: Maker, grouped: tuple[str, ...] | None = None) -> tuple[Step, ...]:
    names = {name: ddl for name, ddl in make.columns.items() if name != "ts"}
    grouped = keys(make.rng, names, 3) if grouped is None else grouped
    text = '.dropDuplicates(["ts"{more}]).select("ts"{keys})'
    step = Step("dropDuplicates by time", text, keys=grouped, judge=Judge())
    make.columns = {"ts": "timestamp"} | {name: names[name] for name in grouped}
    return (step, make.windowed()) if make.chance(0.4) else (step,)


def join_case(make: Maker) -> Case:
    """Two streams whose event times are close, and windows over them or none."""
    right = make.start(make.input("_b", _with_key(make)))
    others = dict(make.columns)
    left = make.start(make.input(columns=_with_key(make, right.columns[0])))
    left, right = replace(left, before=()), replace(right, before=())
    make.columns = {"ts": "timestamp", "sub": "string", "n": "bigint"} | dict(left.columns)
    others = {"ts_b": "timestamp", "sub_b": "string", "n_b": "bigint"} | {f"{n}_b": ddl for n, ddl in right.columns}
    how = make.rng.choice(SELDOM_INNER)
    same = make.rng.choice(["", "<=>", "AND n < n_b", "AND sub <=> sub_b"])
    # With a long one and a short one, rows of one side are needed after all their partners can have come.
    low, high = (make.seconds(make.rng.choice([0, 1, 6, 20, 20])) for _ in range(2))
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
        each = replace(each, mark=None)
    inputs, meet = _united(make, each)
    failing = make.diverting(*inputs)
    branches = _branches(make, lambda: make.plain(0.7), (1, 1, 2))
    return Case(make.seed, "append", "UTC", inputs, branches, (), meet, diverting=failing)


def early_case(make: Maker) -> Case:
    """Windows that are emitted whenever they change."""
    make.late = make.chance(0.3)
    each = make.start(make.input())
    failing = make.diverting(each)
    steps = (*make.plain(0.3), make.windowed())
    options = (("isEarly", True),) if make.chance(0.5) else ()
    case = Case(make.seed, "update", "UTC", (each,), (steps,), (), late=make.late, early=True, options=options)
    return replace(case, diverting=failing)


def timers_case(make: Maker) -> Case:
    """A state function that counts by windows of its own, which timers close."""
    each = _one_key(make)
    ddl, size = each.columns[0][1], make.rng.choice([1, 10, 60]) * make.unit
    # Not the time itself: those of pandas end in 1677 and 2262, in Spark's own functions too.
    output = f'"c0 {ddl}, end long, n_rows long"'
    window = f'F.window("ts", "{size} microseconds")'
    counts = f'.groupBy({window}{{keys}}).agg({{parts}}).selectExpr("c0", "unix_micros(window.end) AS end", "n_rows")'
    late = make.chance(0.3)
    if make.chance(0.25):
        end = f"unix_micros(ts) - pmod(unix_micros(ts), {size}) + {size} AS end"
        stream = f'.selectExpr("c0", "{end}").groupBy("c0", "end").applyInPandasWithState(due, {output}, "n long", '
        step = Step("EventTimeTimeout", f'{stream}"append", "EventTimeTimeout")', counts, ("c0",), (ROWS,), Judge())
        return Case(make.seed, "append", "UTC", (each,), ((step,),), (), late=late)
    method = make.rng.choice(METHODS)
    more = f'{method}Counts({size}), {output}, "append", "EventTime"'
    name = method
    if make.chance(0.4):
        name = f"{method}, initial state"
        texts = [None, *TYPE[ddl].texts[:2]]
        times = [base + make.rng.randint(-8, 20) * make.unit for base in BASES.values()]
        rows = ", ".join(repr((make.rng.choice(texts), make.rng.choice(times))) for _ in range(3))
        more += f', initialState=earlier("{ddl}", {rows}).groupBy("c0")'
        before = f'earlier("{ddl}", {rows}).selectExpr("c0", "timestamp_micros(at) AS ts")'
        counts = f'.select("c0", "ts").unionAll({before}){counts}'
    stream = f'.selectExpr("c0", "unix_micros(ts) AS at").groupBy("c0").{method}({more})'
    step = Step(name, stream, counts, ("c0",), (ROWS,), Judge())
    return Case(make.seed, "append", "UTC", (each,), ((step,),), (), late=late)


def _one_key(make: Maker) -> Input:
    return replace(make.start(make.input(columns=(("c0", make.rng.choice(["string", "int", "date"])),))), before=())


def forgetting_case(make: Maker) -> Case:
    """A state function that counts all rows so far, or those that have come in some processing time."""
    each = _one_key(make)
    ddl = each.columns[0][1]
    if make.chance(0.2):
        arguments = f'counted, "c0 {ddl}, n_rows long", "n long", "update", "NoTimeout"'
        stream = f'.select("c0").groupBy("c0").applyInPandasWithState({arguments})'
        step = Step("applyInPandasWithState", stream, ".groupBy({keys}).agg({parts})", ("c0",), (ROWS,))
        return Case(make.seed, "update", "UTC", (each,), ((step,),), ())
    make.unit = max(make.unit, SECOND)
    # No two epochs are that far apart exactly.
    ttl = make.rng.choice([10, 20, 50]) * make.unit + make.unit // 2
    each = replace(each, mark=None, timed=True)
    sessions = f'.groupBy(F.session_window("arrived", "{ttl} microseconds"){{keys}}).agg({{parts}})'
    if make.chance(0.25):
        stream = f'.selectExpr("c0", "{ttl // 1000} AS patience").groupBy("c0").applyInPandasWithState(silent, '
        stream += f'"c0 {ddl}, n_rows long", "n long", "append", "ProcessingTimeTimeout")'
        step = Step("ProcessingTimeTimeout", stream, f'{sessions}.select("c0", "n_rows")', ("c0",), (ROWS,))
        return Case(make.seed, "append", "UTC", (each,), ((step,),), ())
    kind, method = make.rng.choice(["value", "list", "map"]), make.rng.choice(METHODS)
    output = f'"c0 {ddl}, sub string, n_rows long"'
    stream = f'.select("c0", "sub").groupBy("c0").{method}({method}Fresh("{kind}", {ttl // 1000}), {output}, '
    newest = f'{sessions}.groupBy({{keys}}).agg(F.max_by("n_rows", "session_window").alias("n_rows"))'
    if kind == "list":
        now = 'rows.crossJoin(rows.agg(F.max("arrived").alias("now")))'
        fresh = f'.where("unix_micros(now) - unix_micros(arrived) < {ttl}")'
        newest = f".transform(lambda rows: {now}){fresh}.groupBy({{keys}}).agg({{parts}})"
    sub = "sub" if kind == "map" else "CAST(NULL AS STRING) AS sub"
    step = Step(
        f"TTL of a {kind}",
        f'{stream}"update", "ProcessingTime")',
        f'{newest}.selectExpr("c0", "{sub}", "n_rows")',
        ("c0", "sub") if kind == "map" else ("c0",),
        (ROWS,),
    )
    return Case(make.seed, "update", "UTC", (each,), ((step,),), ())


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
    how = make.rng.choice(SELDOM_INNER)
    text = f'.transform(lambda rows: {sides[0]}.join({sides[1]}, ["window"{{more}}], "{how}"))'
    step = Step(f"window join {how}", text, keys=grouped, judge=judge)
    return Case(make.seed, "append", "UTC", (each,), ((step,),), (), late=make.late)


SHAPES: tuple[tuple[Callable[[Maker], Case], int], ...] = (
    (windows_case, 7),
    (early_case, 2),
    (rolling_case, 4),
    (duplicates_case, 3),
    (join_case, 4),
    (window_join_case, 3),
    (windowless_case, 1),
    (timers_case, 3),
    (forgetting_case, 2),
)


def random_case(seed: int) -> Case:
    """The case of a seed."""
    make = Maker(seed)
    shapes = [shape for shape, weight in SHAPES for _ in range(weight)]
    case = make.rng.choice(shapes)(make)
    case = replace(case, inputs=tuple(_with_policy(make, case, each) for each in case.inputs))
    zone = make.rng.choice(ZONES) if make.chance(0.3) else "UTC"
    options = [*case.options, ("statePartitions", make.rng.choice([1, 2, 3]))]
    if make.chance(0.2):
        options.append(("overlapEpochs", True))
    # Without, few rows are all written anew, and a join forgets those of an epoch at once.
    many = make.beside.random() < 0.5
    case = replace(case, zone=zone, options=tuple(options), many=many, dropped=_delivered(make, case))
    case = arrivals(make.rng, case, make.unit, make.beside)
    if case.clocked or not make.chance(0.25):
        return case
    # In one batch no row is late or early, and no timer fires.
    timers = any(step.operator.startswith(("transform", "Event")) for branch in case.branches for step in branch)
    through = "stream" if case.late or case.early or timers else make.rng.choice(["stream", "batch"])
    sinks = list(OUTLETS) if case.mode == "append" else ANY_MODE
    case = replace(case, dropped=None)
    if through == "batch":
        return replace(case, through=through)
    sink = make.rng.choice(sinks)
    if sink == "orc" and any(time in SKIPPED for time in (e.time for e in case.events()) if time is not None):
        sink = "parquet"
    return replace(case, through=through, sink=sink, home=make.rng.choice(["path", "path", "grid"]))


def _delivered(make: Maker, case: Case) -> int | None:
    """A branch whose late rows are one more result, now and then."""
    firsts = [branch[stateful(branch) : stateful(branch) + 1] for branch in case.branches]
    judging = [number for number, first in enumerate(firsts) if any(step.judge and step.parts for step in first)]
    is_one = judging and case.mode == "append" and (case.meet is None or case.meet.judge is None)
    timers = any(step.operator.startswith(NO_LATE_ROWS) for branch in case.branches for step in branch)
    share = 0.5 if case.late else 0.1
    return make.beside.choice(judging) if is_one and not timers and make.beside.random() < share else None


def _with_policy(make: Maker, case: Case, each: Input) -> Input:
    """An input whose watermark follows the clock, or is throttled: where rows may be late."""
    if each.mark is None:
        return each
    throttle = make.rng.choice(["none", "none", "frame", "step"] if case.late else ["usual"] * 4 + list(THROTTLES))
    mark = replace(each.mark, throttle=throttle, step=make.rng.choice([3, 10]) * make.unit)
    # Another input does not wait for one that has no substreams yet.
    mark = replace(mark, listed=len(case.inputs) > 1 or make.beside.random() < 0.7)
    if not case.late or len(case.inputs) > 1 or make.chance(0.5):
        return replace(each, mark=mark)
    policy = make.rng.choice(["lag", *POLICY_CALLS])
    # The delay is over whenever the clock goes on.
    mark = replace(mark, policy=policy, other=make.rng.choice([5, 7, PAUSE // 2]) * make.unit)
    timeouts = {"idle": [10, 20, 40], "gone": [25, 50], "discover": [10, 40]}
    chosen = {name: make.rng.choice(times) * make.unit for name, times in timeouts.items() if make.chance(0.35)}
    return replace(each, mark=replace(mark, **chosen))
