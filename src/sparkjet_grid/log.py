"""The log of the grid: below the logger ``sparkjet``, so that who listens to a query hears its grid too."""

from __future__ import annotations

import logging

logger = logging.getLogger("sparkjet.grid")
"""What every module of the grid logs by; where sparkjet is, each line begins with the query that it is about."""
