"""The lease: asks the control plane again and again whether this member is still one."""

from __future__ import annotations

import time

from sparkjet_grid.background import Loop
from sparkjet_grid.control import Control
from sparkjet_grid.errors import QuorumLostError, StorageError
from sparkjet_grid.view import View


class Lease:
    """Renews what a view may act on, from a thread of its own.

    Args:
        control: The control plane.
        view: Of this member.
    """

    def __init__(self, control: Control, view: View) -> None:
        self._control, self._view = control, view
        self._loop = Loop("grid-lease", self._step)

    def start(self) -> None:
        """Begin, with a first answer before this returns."""
        self._renew()
        self._loop.start()

    def stop(self) -> None:
        """Renew it no more."""
        self._loop.stop()

    def _step(self) -> None:
        self._loop.pause(self._view.lease / 4)
        try:
            self._renew()
        except QuorumLostError:
            # It may find the majority again; whether it must end is for the control plane to say.
            self._view.revoke()
        except StorageError:
            # It may answer the next time; until then the lease runs out, which says so to whoever asks.
            return

    def _renew(self) -> None:
        asked = time.monotonic()
        self._control.confirm()
        self._view.confirmed(asked)
