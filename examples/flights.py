"""A year of flights through sliding windows: skewed feeds, a killed driver, every row exactly once.

    make run            or: .venv/bin/python examples/flights.py [--small] [--directory DIR]

The three airports of New York deliver their departures of 2013 each at its own pace: LGA is twelve hours behind.
A query (`flights_query.py`, the part to read first) computes for each airport and airline, over the last hour and
every ten minutes, the number of departures and the mean, worst and p95 delay, into Parquet files. Half-way its driver
is killed, Python and JVM, in the middle of an epoch; a second driver goes on. At the end DuckDB computes the same
without a stream, and the two are compared row by row.

Beside it runs the same feed, with the same delay, under Spark's own `withWatermark`. Spark has one watermark for the
three, so it takes LGA's flights for late ones and drops them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Started as a file, Python looks for modules in the file's directory only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table

    from examples.flights_check import Verdict, check
    from examples.flights_control import DriverError, Places, never, run
    from examples.flights_feed import AIRPORTS, THREE_DAYS, WHOLE_YEAR, NoFlightsError, Slices, write_feed
    from examples.flights_query import LAG
except ModuleNotFoundError as missing:
    sys.exit(f"flights: the package {missing.name} is not installed. Run `make setup`, which needs a network.")
