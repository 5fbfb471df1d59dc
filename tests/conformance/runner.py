"""The runner: from cases to verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from tests.conformance.cases import Case
from tests.conformance.coalescing import run_coalescing
from tests.conformance.frames import run_frame_statements, run_frames
from tests.conformance.mapper import run_mapper
from tests.conformance.pipelines import run_pipelines
from tests.conformance.policies import run_policies
from tests.conformance.sessions import run_sessions
from tests.conformance.verdicts import MismatchError, NotationError, Outcome, SkippedError, Verdict
from tests.conformance.windows import WindowDrivers, run_windows

_PURE: dict[str, Callable[[Case], None]] = {
    "FR": run_frames,
    "POL": run_policies,
    "MAP": run_mapper,
    "COA": run_coalescing,
}
_DRIVEN: dict[str, Callable[[Case, WindowDrivers], None]] = {
    "SW": run_windows,
    "SES": run_sessions,
    "E2E": run_pipelines,
}
GROUPS = frozenset(_PURE | _DRIVEN)
"""The groups whose rows are run; rows of others are not counted."""

_PROSE = re.compile(r"\bprose\b", re.IGNORECASE)


def run_cases(cases: Iterable[Case], drivers: WindowDrivers) -> Iterator[Verdict]:
    """Run the cases of known groups one after the other.

    Args:
        cases: Rows from :func:`read_cases`.
        drivers: Creates the window operators; called only if a case needs one.
    """
    for case in cases:
        if case.group in GROUPS:
            yield run_case(case, drivers)


def run_case(case: Case, drivers: WindowDrivers) -> Verdict:
    """Run one case of a known group; any error in it is the case's failure, never the runner's."""
    try:
        if len(case.cells) > 1 and _PROSE.search(case.cells[1]):
            _run_prose(case)
        elif case.group in _PURE:
            _PURE[case.group](case)
        else:
            _DRIVEN[case.group](case, drivers)
    except SkippedError as skipped:
        return Verdict(case.id, Outcome.SKIPPED, str(skipped))
    except MismatchError as mismatch:
        return Verdict(case.id, Outcome.FAILED, str(mismatch))
    except NotationError as error:
        return Verdict(case.id, Outcome.FAILED, f"cannot be read: {error}")
    except Exception as error:  # noqa: BLE001 - a file of unknown origin must be judged to its end
        return Verdict(case.id, Outcome.FAILED, f"{type(error).__name__}: {error}")
    return Verdict(case.id, Outcome.PASSED)


def _run_prose(case: Case) -> None:
    if case.group != "FR":
        raise SkippedError("prose, tested elsewhere")
    run_frame_statements(case)
