"""How many epochs are committed to a table at once, according to the option ``commitEvery``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.options import Option, microseconds, number, upsert_keys

if TYPE_CHECKING:
    from sparkjet.options import Options

MOST = 1000
"""Maximum number of epochs at once: each record names all that are decided and not committed."""


@dataclass(frozen=True)
class CommitEvery:
    """When decided epochs are committed.

    Attributes:
        epochs: After this many epochs, counted from the first with rows.
        duration: This many microseconds after its decision, None if only epochs count.
    """

    epochs: int = 1
    duration: int | None = None

    @staticmethod
    def of(options: Options) -> CommitEvery:
        """The value in an output's options: a number of epochs, or an interval; each epoch by default.

        >>> from sparkjet.options import Options
        >>> CommitEvery.of(Options({"commitEvery": "10"}))
        CommitEvery(epochs=10, duration=None)
        >>> CommitEvery.of(Options({"commitEvery": "2 minutes"}))
        CommitEvery(epochs=1000, duration=120000000)
        """
        every = options[COMMIT_EVERY]
        if every.gathers and upsert_keys(options):
            message = (
                "commitEvery: with mode=upsert the table is given each epoch by itself, as its rows replace those of "
                f'the epochs before, and not "{options.get(COMMIT_EVERY)}". Leave it out, and let epochs be longer: '
                'trigger(processingTime="…").'
            )
            raise AnalysisError(message)
        return every

    @property
    def gathers(self) -> bool:
        """Whether an epoch may wait for others."""
        return self.epochs > 1

    def is_due(self, epochs: int, elapsed: int) -> bool:
        """Whether what was decided this many epochs and microseconds ago is to be committed now."""
        return epochs >= self.epochs or (self.duration is not None and elapsed >= self.duration)


def _read(name: str, given: str) -> CommitEvery:
    """The value of a number of epochs, or an interval."""
    if given.isdecimal():
        return CommitEvery(_EPOCHS.read(name, given))
    return CommitEvery(MOST, microseconds(name, given))


EACH_EPOCH = CommitEvery()
_EPOCHS = number("commitEvery", "Epochs.", 1, most=MOST)
COMMIT_EVERY = Option(
    "commitEvery",
    "How many epochs the table is given at once, or an interval after which it is given them.",
    "a number, or an interval",
    _read,
    EACH_EPOCH,
    "1",
)
