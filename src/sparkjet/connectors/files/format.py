"""The format ``sparkjet-files``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SourceFormat

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

OPTIONS: Mapping[str, str] = {
    "path": "Directory that format(files) writes Parquet into, on a file system that all machines mount.",
    "maxEpochsPerTrigger": "Most epochs of each writer in a batch (all there are).",
}
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
SOURCE = SourceFormat("sparkjet-files", _source, PACKAGES, KnownSource(True, packages=PACKAGES))
