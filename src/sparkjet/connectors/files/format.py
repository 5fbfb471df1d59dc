"""The format ``sparkjet-files``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.files.options import SOURCE_NAME, SOURCE_OPTIONS
from sparkjet.connectors.format import KnownSource, SourceFormat

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def _source() -> type[DataSource]:
    from sparkjet.connectors.files.source import FilesDataSource  # noqa: PLC0415 - the extra is optional

    return FilesDataSource


PACKAGES = {
    "msgspec": "msgspec",
    "pyarrow": "pyarrow",
    "tenacity": "tenacity",
    "typing_extensions": "typing-extensions",
}
"""The packages that executors need to import it and to read Parquet."""
SOURCE = SourceFormat(SOURCE_NAME, _source, SOURCE_OPTIONS, PACKAGES, KnownSource(True, packages=PACKAGES))
