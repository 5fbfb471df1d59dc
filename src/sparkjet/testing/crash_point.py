"""The crash point: where a driven query dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkjet.engine.phases import EpochPhase, PhaseListener


class CrashPoint:
    """A listener to the phases of epochs that crashes the query in one of them.

    Args:
        listener: Another listener, called first.
    """

    def __init__(self, listener: PhaseListener | None) -> None:
        self._listener = listener
        self._at: EpochPhase | None = None
        self._begun = self._after = 0

    def __call__(self, phase: EpochPhase, epoch: int) -> None:
        """Called by the engine at the end of each phase."""
        if self._listener is not None:
            self._listener(phase, epoch)
        self._begun = max(self._begun, epoch)
        if phase is self._at and epoch > self._after:
            raise _CrashError

    def restarted(self) -> None:
        """The query has been started again: epochs that no record has come once more."""
        self._begun = 0

    @contextmanager
    def at(self, phase: EpochPhase, join: Callable[[], None]) -> Iterator[None]:
        """Crash at the end of a phase in what is run inside the ``with`` block, and not in the end of an epoch before.

        Args:
            phase: The phase.
            join: Waits until the last epoch has ended, which may run alongside the last one started.

        Raises:
            AssertionError: No epoch reached the end of the phase.
        """
        self._at, self._after = phase, self._begun
        try:
            yield
            join()
        except _CrashError:
            return
        finally:
            self._at = None
        raise AssertionError(f"crash: no epoch came to the end of {phase}.")


class _CrashError(BaseException):
    """The death of the driver: not an Exception, so that neither retries nor error handlers survive it."""
