"""The format ``sparkjet-files``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SourceFormat
from sparkjet.options import number, text

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

SOURCE_NAME = "sparkjet-files"
PATH = text("path", "Directory that format(files) writes Parquet into, on a file system that all machines mount.")
MAX_EPOCHS = number("maxEpochsPerTrigger", "Most epochs of each writer in a batch; all there are by default.")
OPTIONS = (PATH, MAX_EPOCHS)
"""Options of ``format("sparkjet-files")``."""


def _source() -> type[DataSource]:
    from sparkjet.connectors.files.source import FilesDataSource  # noqa: PLC0415 - the extra is optional

    return FilesDataSource


PACKAGES = {
    "msgspec": "msgspec",
    "pyarrow": "pyarrow",
    "tenacity": "tenacity",
    "typing_extensions": "typing-extensions",
}
"""What executors need to import it, and to read Parquet."""
SOURCE = SourceFormat(SOURCE_NAME, _source, OPTIONS, PACKAGES, KnownSource(True, packages=PACKAGES))
