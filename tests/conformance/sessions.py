"""Group SES: session windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.verdicts import NotationError
from tests.conformance.window_setups import window_setup
from tests.conformance.windows import WindowDrivers, run_windows

if TYPE_CHECKING:
    from tests.conformance.cases import Case


def run_sessions(case: Case, drivers: WindowDrivers) -> None:
    """Check a row of group SES, whose notation is that of SW.

    Raises:
        NotationError: The row cannot be read, or is not about sessions.
        MismatchError: The sessions are different.
    """
    if window_setup(case.setup).session is None:
        raise NotationError(f"not a session: {case.setup}")
    run_windows(case, drivers)
