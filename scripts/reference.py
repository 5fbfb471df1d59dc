"""The generated part of the site's reference: Markdown of what the code declares, for the markers in docs/reference.

A page has a line `<!-- generated: NAME -->`, which `site/conf.py` replaces by `GENERATED[NAME]()`. Nothing of
it is committed, so that it cannot go stale; `tests/site` checks that no public name, option, metric, error or command
lacks its entry.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import sparkjet
import sparkjet_grid
from scripts.progress_table import metrics_table, progress_table, reasons_table
from sparkjet import _names
from sparkjet.cli.commands import PROGRAM, app
from sparkjet.connectors.formats import SINKS, SOURCES
from sparkjet.options import OUTPUT_OPTIONS, QUERY_OPTIONS, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sparkjet.connectors.format import SinkFormat, SourceFormat

DOCS = Path(__file__).parents[1] / "docs"
MARKER = re.compile(r"^<!-- generated: ([\w.-]+) -->$", re.MULTILINE)

NAMES: Mapping[str, Sequence[str]] = {
    "queries": (
        "stream",
        "backfill",
        "written",
        "start",
        "replay_dead_letters",
        "Stream",
        "StreamingQuery",
        "EpochPhase",
        "EpochInfo",
    ),
    "forks": ("fork", "Fork", "Replayed", "diff", "Diff", "switch", "Switch"),
    "erasures": ("erase", "Erased", "ErasedPlace"),
    "windows": ("window", "session_window"),
    "reading": (
        *("read_files", "read_state", "register_sources", "StaticTable", "read_once", "read_every_epoch"),
        *("complete_until", "Completeness"),
    ),
    "aggregates": ("Aggregate", "AggregateOperation", "python_aggregate"),
    "watermarks": (
        *("limiting_lag", "limiting_lag_and_delay", "limiting_lag_and_lull", "limiting_timestamp_and_wall_clock_lag"),
        *("limiting_real_time_lag", "with_fixed_lag", "carried", "WatermarkPolicy", "PolicySettings"),
        *("emit_by_frame", "emit_by_min_step", "no_throttling", "Throttle"),
    ),
    "clocks": ("Clock", "SystemClock", "ManualClock"),
    "errors": (
        *("SparkjetError", "AnalysisError", "ChangedQueryError", "CopiedHomeError", "ExpectationError"),
        *(
            "FailuresError",
            "FencedError",
            "LostTransactionError",
            "RecoveryError",
            "RefusedRowsError",
            "SinkError",
            "SourceError",
            "StateLimitError",
            "StorageError",
        ),
        "UnsettledError",
    ),
}
"""The names of ``sparkjet``, by the section in which they stand."""

RETURNED: Sequence[str] = (
    *("sparkjet.api.grouped.GroupedStream", "sparkjet.api.grouped.KeyedStream", "sparkjet.api.grouped.WindowedStream"),
    *("sparkjet.api.grouped.RollingStream", "sparkjet.api.grouped.LateStream", "sparkjet.api.diverted.DeadLetters"),
    *("sparkjet.api.aggregate_rows.GroupedResults", "sparkjet.api.result_rows.ResultRows"),
    "sparkjet.api.writer.StreamWriter",
)
"""Classes that users hold and never name."""

MODULES: Sequence[str] = (
    *("sparkjet.functions", "sparkjet.testing", "sparkjet.sinks", "sparkjet.sources", "sparkjet.monitoring"),
    "sparkjet.time",
)
"""Modules whose ``__all__`` is public; constants stand in the text of their module's page."""

OTHERS: Mapping[str, Sequence[str]] = {
    "testing": (
        "sparkjet.testing.sink_contract.SinkContract",
        "sparkjet.testing.source_contract.SourceContract",
        "sparkjet.testing.acknowledging_contract.AcknowledgingContract",
        "sparkjet.testing.policy_contract.PolicyContract",
        "sparkjet.testing.throttle_contract.ThrottleContract",
        "sparkjet.testing.store_contract.StoreContract",
        "sparkjet.testing.directory_contract.DirectoryContract",
    ),
    "tools": (
        *("sparkjet.tools.replay.Arrival", "sparkjet.tools.replay.replay"),
        "sparkjet.tools.plotting.plot_watermark",
        *("sparkjet.tools.lag.lag_for", "sparkjet.tools.lag.LagReport", "sparkjet.tools.lag.Loss"),
        "sparkjet.tools.plotting.plot_losses",
    ),
    "grid": ("sparkjet_grid.map_reader.Map", "sparkjet_grid.journal_reader.Journal"),
}
"""What pages of the guide import from modules without a list of public names."""


def format_options() -> dict[str, Sequence[Option[Any]]]:
    """The options of each format; those of tables are those of files."""
    formats: Mapping[str, SinkFormat | SourceFormat] = {**SINKS, **SOURCES}
    return {name: () if name == "table" else each.options for name, each in formats.items()}


def found(path: str) -> Any:
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def errors() -> Iterator[type[BaseException]]:
    """All classes of ours that have a condition."""
    packages = ((each.__path__, f"{each.__name__}.") for each in (sparkjet, sparkjet_grid))
    for module in chain.from_iterable(pkgutil.walk_packages(*each) for each in packages):
        if module.name == "sparkjet.__main__" or "_contract" in module.name:
            continue
        for name, each in vars(importlib.import_module(module.name)).items():
            ours = isinstance(each, type) and issubclass(each, BaseException) and each.__module__ == module.name
            if ours and "condition" in vars(each) and not name.startswith("_"):
                yield each


def commands() -> dict[str, Any]:
    """Every command of the command line, by its words."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words, command
        for name, each in (inner or {}).items():
            yield from below(f"{words} {name}", each)

    return dict(below(PROGRAM, typer.main.get_command(app)))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; what would end a cell, or begin a tag or an emphasis, is escaped outside of code."""
    lines = [head, ["---"] * len(head), *(map(_escaped, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(cell: str) -> str:
    return cell if cell.startswith("`") else re.sub(r"[|<*_]", r"\\\g<0>", cell)


def _options(options: Sequence[Option[Any]]) -> str:
    rows = [(f"`{each.name}`", each.takes, f"`{each.default}`" * bool(each.default), each.meaning) for each in options]
    return _table(("option", "value", "default", "meaning"), rows)


def _described(path: str) -> str:
    """The directive that documents a class, a function or a value; without a docstring the build fails."""
    thing = found(path)
    plain = isinstance(thing, type) or inspect.isroutine(thing)
    if not (inspect.getdoc(thing) if plain else value_doc(path)):
        raise LookupError(f"{path} has no docstring, and so no entry in the reference.")
    if isinstance(thing, type):
        # What Exceptions and tuples inherit is Python's.
        inherits = (
            ""
            if issubclass(thing, BaseException | tuple)
            else "\n   :inherited-members: Protocol, object, ABC, Generic"
        )
        return f".. autoclass:: {path}\n   :members:{inherits}\n"
    if inspect.isroutine(thing):
        return f".. autofunction:: {path}\n"
    return f".. py:data:: {path}\n\n   {value_doc(path)}\n"


def value_doc(path: str) -> str:
    """The docstring below a value, in the module that a package imports it from."""
    module, _, name = path.rpartition(".")
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for node, below in itertools.pairwise([*tree.body, ast.Pass()]):
        if isinstance(node, ast.ImportFrom) and name in {each.name for each in node.names}:
            return value_doc(f"{node.module}.{name}")
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if name in {each.id for each in targets if isinstance(each, ast.Name)}:
            doc = below.value if isinstance(below, ast.Expr) else None
            return " ".join(str(doc.value).split()) if isinstance(doc, ast.Constant) else ""
    return ""


def _api(paths: Sequence[str], module: str | None = None) -> str:
    head = [] if module is None else [f".. py:module:: {module}\n"]
    return "\n".join(["```{eval-rst}", *head, *(_described(each) for each in paths), "```"])


def _section(section: str) -> Callable[[], str]:
    return lambda: _api([f"sparkjet.{name}" for name in NAMES[section]])


def _module(name: str, others: Sequence[str] = ()) -> Callable[[], str]:
    def text() -> str:
        already = {*_names.__all__} if name == "sparkjet.time" else {"register_sources"}
        listed = [f"{name}.{each}" for each in importlib.import_module(name).__all__ if each not in already]
        return _api([*listed, *others], module=name)

    return text


def conditions() -> dict[str, type[BaseException]]:
    """Each condition with its class; two classes of the grid have those of the classes of sparkjet that they extend."""
    ours = sorted(errors(), key=lambda each: (each.condition, each.__module__.startswith("sparkjet_grid")))  # type: ignore[attr-defined]
    found: dict[str, type[BaseException]] = {}
    for each in ours:
        found.setdefault(each.condition, each)  # type: ignore[attr-defined]
    return found


def _conditions() -> str:
    rows = [(f"`{name}`", f"`{each.__name__}`", _first(each)) for name, each in conditions().items()]
    return _table(("condition", "class", "what it says"), rows)


def _first(thing: object) -> str:
    """The first paragraph of a docstring, with its roles as plain code."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def _command(words: str, command: Any) -> str:
    """A command with what it takes, as ``--help`` says it."""
    own = [each for each in command.params if each.name != "help"]
    taken = [each for each in own if each.param_type_name == "argument"]
    options = [each for each in own if each not in taken]
    rows = [(f"`{_usage(each)}`", getattr(each, "help", None) or "") for each in taken]
    rows += [(_spelt(each), _told(each)) for each in options]
    usage = " ".join([words, *(["[OPTIONS]"] if options else []), *map(_usage, taken)])
    told = "\n\n".join(" ".join(each.split()) for each in inspect.cleandoc(command.help or "").split("\n\n"))
    table = [_table(("", "meaning"), rows)] if rows else []
    return "\n\n".join([f"## {words}", told, f"```text\n{usage}\n```", *table])


def _spelt(option: Any) -> str:
    """An option's spellings, with what it takes."""
    spelt = "/".join([*option.opts, *option.secondary_opts])
    return f"`{spelt}`" if option.is_flag else f"`{spelt} {option.metavar or 'VALUE'}`"


def _usage(argument: Any) -> str:
    name: str = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _told(option: Any) -> str:
    text = (getattr(option, "help", None) or "").strip()
    shown = (
        option.default not in (None, False, "", ())
        and not callable(option.default)
        and f"({option.default}" not in text
    )
    return f"{text} ({option.default})" if shown and not isinstance(option.default, list) else text


def alerts() -> dict[str, dict[str, str]]:
    """The alert rules by name: expression, time, severity, what is told. The file is read as text, in its one form."""
    text = (Path(sparkjet.__path__[0]) / "monitoring" / "static" / "alerts.yml").read_text(encoding="utf-8")
    rules = re.split(r"^ *- alert: ", text, flags=re.MULTILINE)[1:]
    fields = re.compile(r"^ +(expr|for|labels|description): (.*)$", re.MULTILINE)
    return {rule.partition("\n")[0]: {name: value.strip('"') for name, value in fields.findall(rule)} for rule in rules}


def _alerts() -> str:
    return "\n\n".join(map(_alert, alerts().items()))


def _alert(rule: tuple[str, Mapping[str, str]]) -> str:
    name, said = rule
    severity = said["labels"].strip("{}").partition(": ")[2].capitalize()
    after = f"after {said['for']}" if "for" in said else "at once"
    return f"## {name}\n\n```text\n{said['expr']}\n```\n\n{severity}, {after}. {_escaped(said['description'])}"


def _changelog() -> str:
    """The changelog without its title."""
    return (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n")[2].replace("](docs/", "](")


GENERATED: Mapping[str, Callable[[], str]] = {
    **{f"api.{section}": _section(section) for section in NAMES},
    "api.returned": lambda: _api(RETURNED),
    **{
        f"api.{name.removeprefix('sparkjet.')}-module": _module(name, OTHERS.get(name.removeprefix("sparkjet."), ()))
        for name in MODULES
    },
    "api.tools": lambda: _api(OTHERS["tools"]),
    "api.grid": lambda: _api(OTHERS["grid"]),
    "options.query": lambda: _options(QUERY_OPTIONS),
    "options.output": lambda: _options(OUTPUT_OPTIONS),
    "options.sinks": lambda: "\n\n".join(
        f'### format("{name}")\n\n{_options(each.options)}' for name, each in SINKS.items() if format_options()[name]
    ),
    "options.sources": lambda: "\n\n".join(
        f'### format("{name}")\n\n{_options(each.options)}' for name, each in SOURCES.items()
    ),
    "metrics": metrics_table,
    "progress": progress_table,
    "reasons": reasons_table,
    "errors": _conditions,
    "commands": lambda: "\n\n".join(_command(words, each) for words, each in commands().items()),
    "alerts": _alerts,
    "changelog": _changelog,
}
"""What each marker is replaced by."""


def filled(text: str) -> str:
    r"""A page with its markers replaced.

    >>> filled("# Metrics\\n\\nAll of them.\\n")
    '# Metrics\\n\\nAll of them.\\n'
    """
    return MARKER.sub(lambda marker: GENERATED[marker[1]](), text)
