"""Window operators: from partial rows by frame to final rows by window, all as DataFrames."""

from sparkjet.windows.accumulators import Accumulators
from sparkjet.windows.operator import WindowOperator
from sparkjet.windows.session_window import SessionWindow, session_window
from sparkjet.windows.sessions import SessionWindows
from sparkjet.windows.sliding import SlidingWindows
from sparkjet.windows.window import Window, window

__all__ = [
    "Accumulators",
    "SessionWindow",
    "SessionWindows",
    "SlidingWindows",
    "Window",
    "WindowOperator",
    "session_window",
    "window",
]
