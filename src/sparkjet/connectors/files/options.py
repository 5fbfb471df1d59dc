"""Options of ``format("sparkjet-files")``."""

from __future__ import annotations

from sparkjet.options import number, text

SOURCE_NAME = "sparkjet-files"
"""The name of the source."""
PATH = text("path", "Directory that format(files) writes Parquet into, on a file system that all machines mount.")
MAX_EPOCHS = number("maxEpochsPerTrigger", "Most epochs of each writer in a batch; all there are by default.")
SOURCE_OPTIONS = (PATH, MAX_EPOCHS)
