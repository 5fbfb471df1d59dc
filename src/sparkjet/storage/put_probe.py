"""The probe of a start: whether of two writers of one name exactly one wins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError, StorageError
from sparkjet.query_log import begin, current
from sparkjet.storage.probe_names import is_left_behind, probe_name

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

WRITERS = 4
"""Of the race; each writes something else."""
_TESTED = "a path that all machines mount, hdfs:, s3a:, abfs:, abfss: or gs:"


def check_puts(directory: Directory, option: str, scheme: str, *, is_tested: bool, create: bool) -> None:
    """Probe a directory, and refuse it if its puts are not known to have one winner.

    A store that ignores the condition is found out by the second put already; the race shows one that looks first and
    writes afterwards, if it is slow enough. No probe proves that there is always one winner: a scheme that was never
    tested is refused even if it passes.
    """
    try:
        if create:
            directory.create()
        for left in directory.names():
            if is_left_behind(left):
                directory.remove(left)
        winners = max(_in_a_row(directory), _at_once(directory))
    except (OSError, StorageError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        message = f'{option}: "{directory}" cannot hold decisions: {said}'
        raise AnalysisError(message) from error
    if winners > 1:
        message = (
            f'{option}: "{directory}" cannot hold decisions: of {WRITERS} writers of one new file, {winners} were told '
            f"that they had created it, so two drivers could both decide. Use {_TESTED}."
        )
        raise AnalysisError(message)
    if not is_tested:
        message = (
            f'{option}: "{directory}" has the scheme "{scheme}:", whose put-if-absent was never tested. (A few writers '
            f"of one file were told apart here, which proves nothing.) Use {_TESTED}."
        )
        raise AnalysisError(message)


def _in_a_row(directory: Directory) -> int:
    name = probe_name()
    try:
        return sum(directory.put(name, content) for content in (b"first", b"second"))
    finally:
        directory.remove(name)


def _at_once(directory: Directory) -> int:
    name = probe_name()
    contents = [str(writer).encode() * 1000 for writer in range(WRITERS)]
    try:
        with ThreadPoolExecutor(WRITERS, initializer=begin, initargs=(current(),)) as writers:
            return sum(writers.map(lambda content: directory.put(name, content), contents))
    finally:
        directory.remove(name)
