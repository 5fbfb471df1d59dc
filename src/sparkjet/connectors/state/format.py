"""The format ``sparkjet-state``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import SourceFormat
from sparkjet.connectors.state.options import SOURCE_NAME, SOURCE_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def _source() -> type[DataSource]:
    from sparkjet.connectors.state.data_source import StateDataSource  # noqa: PLC0415 - needs pyarrow

    return StateDataSource


SOURCE = SourceFormat(SOURCE_NAME, _source, SOURCE_OPTIONS, {"pyarrow": "pyarrow"}, None)
