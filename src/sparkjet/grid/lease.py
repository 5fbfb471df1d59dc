"""The lease: asks the control plane again and again whether this member is still one."""

from __future__ import annotations

import threading
import time

from sparkjet.errors import StorageError
from sparkjet.grid.control import Control
from sparkjet.grid.errors import QuorumLostError
from sparkjet.grid.view import LEASE, View


class Lease:
    """Renews what a view may act on, from a thread of its own.

    Args:
        control: The control plane.
        view: Of this member.
    """

    def __init__(self, control: Control, view: View) -> None:
        self._control, self._view = control, view
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grid-lease", daemon=True)

    def start(self) -> None:
        """Begin, with a first answer before this returns."""
        self._renew()
        self._thread.start()

    def stop(self) -> None:
        """Renew it no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(LEASE / 4):
            try:
                self._renew()
            except QuorumLostError:
                # It may find the majority again; whether it must end is for the control plane to say.
                self._view.revoke()
            except StorageError:
                # It may answer the next time; until then the lease runs out, which says so to whoever asks.
                continue

    def _renew(self) -> None:
        asked = time.monotonic()
        self._control.voters()
        self._view.confirmed(asked)
