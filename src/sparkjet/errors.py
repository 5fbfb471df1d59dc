"""sparkjet's errors: each names the value, the option and the way out."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import ClassVar

from sparkjet.platforms import classic_session

_CODE = re.compile(r"\[SPARKJET_[A-Z_.]+\] ")


class SparkjetError(Exception):
    """Base class of sparkjet's errors.

    Attributes:
        condition: A code that stays the same in all versions, as Spark's error conditions do; the message begins with
            it. The page "Errors" lists them all.

    >>> print(AnalysisError("trigger: 5 is not a duration."))
    [SPARKJET_ANALYSIS] trigger: 5 is not a duration.
    >>> print(SinkError(f"results: {StorageError('the disk is full.')}"))
    [SPARKJET_SINK] results: the disk is full.
    """

    condition: ClassVar[str] = "SPARKJET_ERROR"

    def __str__(self) -> str:
        """The condition and the text; where the text quotes another error, that one's cause has its condition."""
        return f"[{self.condition}] {_CODE.sub('', super().__str__())}"

    def getCondition(self) -> str:
        """The condition, as PySpark's exceptions have it."""
        return self.condition

    def getErrorClass(self) -> str:
        """The same: what PySpark called it before version 4."""
        return self.condition


class AnalysisError(SparkjetError, ValueError):
    """The query cannot run as written; raised before it starts, nothing has been read or written."""

    condition = "SPARKJET_ANALYSIS"


class RecoveryError(SparkjetError):
    """The stored state cannot be continued safely; nothing has been changed."""

    condition = "SPARKJET_RECOVERY"


class ChangedQueryError(RecoveryError):
    """The query is not the one that its record is of, and what becomes of its state was not agreed to, or is refused.

    Attributes:
        changes: The differences, a line each: the stage, what differs, from what to what, and what becomes of it.
        digest: What ``onChange`` agrees to them by; None if one of them is refused.
    """

    condition = "SPARKJET_RECOVERY.CHANGED_QUERY"

    def __init__(self, message: str, *, changes: Sequence[str] = (), digest: str | None = None) -> None:
        super().__init__(message)
        self.changes = list(changes)
        self.digest = digest


class FencedError(SparkjetError):
    """Another driver has taken over this query; this one has stopped without committing or rolling back."""

    condition = "SPARKJET_FENCED"


class UnsettledError(SparkjetError):
    """A decided transaction could not be published in time; it stays decided, and the next start publishes it."""

    condition = "SPARKJET_UNSETTLED"


class SinkError(SparkjetError):
    """An external system rejected rows or could not be reached; nothing is lost: fix the cause and start again."""

    condition = "SPARKJET_SINK"


class RefusedRowsError(SinkError):
    """A destination does not take some rows of an epoch, and would take the others.

    Raised by a sink before the decision, from ``prepare`` or ``try_out``: after ``divert`` it is found out which rows
    these are, and they are dead letters.
    """

    condition = "SPARKJET_SINK.REFUSED_ROWS"


class StorageError(SparkjetError):
    """A directory cannot store data reliably: its disk is full or read-only, or executors do not share it.

    Nothing is lost, and the next start resumes where the query stopped.
    """

    condition = "SPARKJET_STORAGE"


class SourceError(SparkjetError):
    """An external system could not be read, or no longer has the data; nothing was skipped."""

    condition = "SPARKJET_SOURCE"


class FailuresError(SparkjetError):
    """More rows of an epoch have failed than ``divert`` allows; nothing of the epoch was written."""

    condition = "SPARKJET_FAILURES"


class ExpectationError(SparkjetError):
    """Rows do not meet an expectation with ``action="fail"``; nothing of the epoch was written."""

    condition = "SPARKJET_EXPECTATION"


class StateLimitError(SparkjetError):
    """An operator would hold more than ``maxStateEntries`` or ``maxStateBytes``; nothing of the epoch was written."""

    condition = "SPARKJET_STATE_LIMIT"


class CopiedHomeError(SparkjetError):
    """Another copy of this query's home has published too: two queries count the same epochs, and one must end."""

    condition = "SPARKJET_COPIED_HOME"


class LostTransactionError(SparkjetError):
    """A decided transaction is gone from the external system: its rows are lost."""

    condition = "SPARKJET_LOST_TRANSACTION"


def refuse_connect(entry: str, *given: object) -> None:
    """Refuse what belongs to a session of Spark Connect.

    Args:
        entry: What it was given to.
        given: DataFrames, Columns and sessions, also in lists and dicts; anything else passes.

    Raises:
        AnalysisError: One of them does.
    """
    for each in given:
        if isinstance(each, list | tuple):
            refuse_connect(entry, *each)
        elif isinstance(each, dict):
            refuse_connect(entry, *each.values())
        elif type(each).__module__.startswith("pyspark.sql.connect"):
            message = (
                f"{entry}: this {type(each).__name__} belongs to Spark Connect, which has no access to the driver that "
                f"sparkjet runs in. {classic_session(os.environ)}"
            )
            raise AnalysisError(message)


def lacking(python: str, missing: Iterable[str], packages: Mapping[str, str], drivers: str | None = None) -> str:
    """The way out for a Python that lacks packages which no archive of Python code can bring: they contain C libraries.

    Args:
        python: The Python.
        missing: What it lacks, by the names that are imported.
        packages: What to install, by the names that are imported.
        drivers: The driver's Python, where it is another one and has what is missing.

    >>> lacking("python3 on node1", ["psycopg"], {"psycopg": "psycopg[binary]", "pyarrow": "pyarrow"})[:80]
    'python3 on node1 has no psycopg. Install psycopg[binary] and pyarrow there: with'
    """
    told = (
        f"{python} has no {' and no '.join(missing)}. Install {' and '.join(packages.values())} there: with pip, in "
        'the image of the machines, or in an environment sent with --archives (see the page "On a cluster").'
    )
    if drivers is None:
        return told
    return f"{told} The driver's {drivers} has it: to use that there too, set PYSPARK_PYTHON before the session starts."


def has_package(name: str) -> bool:
    """Whether this Python has a package, which may be within others.

    >>> has_package("json.decoder"), has_package("a_package_nobody_has.inner")
    (True, False)
    """
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        # Of one within it.
        return False


def drivers_python(executors: str, missing: Iterable[str]) -> str | None:
    """The driver's Python, if it is another one than the executors' and has what theirs lacks; runs on the driver.

    >>> drivers_python("another", ["json"]) == sys.executable
    True
    >>> drivers_python("another", ["a_package_nobody_has"])
    """
    has_all = executors != sys.executable and all(find_spec(each) is not None for each in missing)
    return sys.executable if has_all else None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known name, and all known names.

    >>> nearest("pth", ["path", "format"])
    'did you mean "path"? Known: format, path'
    """
    known = sorted(known)
    match = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.5)
    listing = f"Known: {', '.join(known)}"
    if not match:
        return listing
    original = next(k for k in known if k.lower() == match[0])
    return f'did you mean "{original}"? {listing}'


def missing(owner: str, name: str, known: Iterable[str], way_out: str | None = None) -> AttributeError:
    """The error of an attribute that does not exist: what to do instead, else the nearest name.

    >>> print(missing("Stream", "wher", ["select", "where"]))
    Stream has no 'wher'; did you mean "where"? Known: select, where.
    >>> print(missing("Stream", "sort", ["select", "where"], "The rows of a stream have no order."))
    Stream has no 'sort'. The rows of a stream have no order.
    """
    if name.startswith("_") and way_out is None:
        # Asked for by Python and its tools, hundreds of times, and never shown.
        return AttributeError(f"{owner} has no {name!r}")
    return AttributeError(f"{owner} has no {name!r}" + (f". {way_out}" if way_out else f"; {nearest(name, known)}."))


def chain(error: BaseException, *, suppressed: bool = False) -> list[BaseException]:
    """An error and what led to it, the latest first: its cause or, without one, its context.

    Args:
        error: The error.
        suppressed: Whether to go on to a context that ``raise … from None`` hides. A traceback does not, and neither
            should what is reported; a search for the root of a failure should.

    >>> try:
    ...     try:
    ...         {}["a"]
    ...     except KeyError:
    ...         raise OSError("no a") from None
    ... except OSError as error:
    ...     chain(error), chain(error, suppressed=True)
    ([OSError('no a')], [OSError('no a'), KeyError('a')])
    """
    found: list[BaseException] = []
    next_one: BaseException | None = error
    while next_one is not None:
        found.append(next_one)
        hidden = next_one.__suppress_context__ and not suppressed
        next_one = next_one.__cause__ or (None if hidden else next_one.__context__)
    return found


try:
    from sparkjet_grid import errors as _grid
except ModuleNotFoundError:
    # The extra is not installed.
    pass
else:
    # Here, before anything can be caught: who uses a grid through sparkjet catches one family of errors.
    _grid.derive(AnalysisError, StorageError)
