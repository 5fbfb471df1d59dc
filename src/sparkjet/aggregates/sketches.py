"""approx_count_distinct and percentile_approx: small mergeable sketches instead of all values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    TimestampType,
)

from sparkjet.aggregate import Aggregate, AggregateOperation, label
from sparkjet.aggregates.values import column_of, null_of, orderable_type
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregate import Accumulator, ColumnOrName, Inputs
