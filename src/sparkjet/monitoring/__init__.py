"""The view of a running query: its history in bounded memory, a page, metrics."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.monitoring.metrics import Collector
from sparkjet.monitoring.runs import DRIVER, Run, Runs

if TYPE_CHECKING:
    from sparkjet.monitoring.page import Page

__all__ = ["DRIVER", "Collector", "Run", "Runs", "open_page"]

TOKEN = "SPARKJET_PAGE_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the token that readers must know if no other is given."""
_opening = threading.Lock()
_opened: list[Page] = []


def open_page(host: str = "127.0.0.1", port: int = 0, token: str | None = None, *, runs: Runs = DRIVER) -> Page:
    """Serve the page of these runs; returns the existing one if it has that address, or no port is named.

    Without a token, that of the environment (``SPARKJET_PAGE_TOKEN``) is used, or one is made up.
    """
    try:
        from sparkjet.monitoring.page import Page  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise AnalysisError(f'The page needs {error.name}. Install it with: pip install "sparkjet[page]"') from error
    token = os.environ.get(TOKEN) or None if token is None else token
    with _opening:
        _opened[:] = [page for page in _opened if page.is_open]
        for page in _opened:
            if page.serves(host, port, token, runs):
                return page
        _opened.append(Page(host, port, token, runs=runs))
        return _opened[-1]
