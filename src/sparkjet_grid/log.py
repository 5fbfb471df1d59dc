"""The log of the grid: a child of the logger ``sparkjet``, so that a query's log has the lines of its grid too."""

from __future__ import annotations

import logging

logger = logging.getLogger("sparkjet.grid")
"""The logger of all modules of the grid; with sparkjet, each line begins with the query that it is about."""
