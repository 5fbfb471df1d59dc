"""Tables of the reference that are made of typed declarations: progress, the reasons of late rows, metrics."""

from __future__ import annotations

import ast
import inspect
import itertools
import typing
from enum import Enum

import msgspec

from sparkjet.engine.progress_report import ProgressReport
from sparkjet.monitoring.metrics import HISTOGRAM, METRICS
from sparkjet.plan.dropped_rows import DropReason

if typing.TYPE_CHECKING:
    from collections.abc import Iterator


def progress_table() -> str:
    """The keys that `lastProgress` adds to Spark's."""
    return _table("key", _keys(ProgressReport, ""))


def reasons_table() -> str:
    """The values of `_reason`."""
    comments = _comments(DropReason)
    return _table("`_reason`", ((reason.value, comments[reason.name]) for reason in DropReason))


def metrics_table() -> str:
    """The metrics; all of them have the label ``query`` too."""
    rows = [(each.name + "".join(f"{{{label}}}" for label in each.labels), each.meaning) for each in METRICS]
    return _table("metric", [*rows, (f"{HISTOGRAM}{{phase}}", "Histogram: how long the phases of epochs take.")])


def _keys(struct: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, str]]:
    comments, types = _comments(struct), typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        key = f"{prefix}{field.encode_name}"
        yield key, comments[field.name]
        for part in (types[field.name], *typing.get_args(types[field.name])):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                between = {dict: ".<name>.", list: "[]."}.get(typing.get_origin(types[field.name]), ".")
                yield from _keys(part, key + between)


def _comments(described: type[msgspec.Struct | Enum]) -> dict[str, str]:
    """The docstring below each field of a class; a field without one is missing."""
    (definition,) = ast.parse(inspect.getsource(described)).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    comments = {}
    for field, comment in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign):
            target: ast.expr = field.target
        elif isinstance(field, ast.Assign):
            target = field.targets[0]
        else:
            continue
        if isinstance(target, ast.Name) and isinstance(comment, ast.Expr) and isinstance(comment.value, ast.Constant):
            comments[target.id] = " ".join(str(comment.value.value).split())
    return comments


def _table(heading: str, rows: typing.Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        [f"| {heading} | meaning |", "|---|---|", *(f"| `{name}` | {comment} |" for name, comment in rows)]
    )
