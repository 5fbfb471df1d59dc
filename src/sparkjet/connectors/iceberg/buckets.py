"""Buckets: the hash that Iceberg's format defines for values, computed by what every Spark executor has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, DecimalType, IntegerType, StringType

from sparkjet.catalyst.expressions import column_of, expression_of
from sparkjet.java import as_seq, java_class, nothing

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_MURMUR = "org.apache.commons.codec.digest.MurmurHash3"
_POSITIVE = 0x7FFFFFFF


def bucketed(column: Column, kind: DataType, buckets: int, session: SparkSession) -> Column:
    """The number of a value's bucket; null for null."""
    if isinstance(kind, StringType | BinaryType):
        hashed = _of_bytes(expression_of(column.cast("binary"), session), session)
    elif isinstance(kind, DecimalType):
        # Its unscaled value, in as few bytes as in Java.
        whole = expression_of(column, session)
        for name, result in (
            ("toJavaBigDecimal", _object("java.math.BigDecimal", session)),
            ("unscaledValue", _object("java.math.BigInteger", session)),
            ("toByteArray", _type(BinaryType(), session)),
        ):
            whole = _called(whole, name, result, session)
        hashed = _of_bytes(whole, session)
    else:
        # Spark hashes eight bytes as the format does, given the format's seed; for null it returns the seed.
        number = expression_of(column.cast("long"), session)
        of_number = java_class(session, f"{_EXPRESSIONS}.Murmur3Hash")(as_seq(session, [number]), 0)
        hashed = F.when(column.isNotNull(), column_of(of_number, session))
    return hashed.bitwiseAND(F.lit(_POSITIVE)) % F.lit(buckets)


def _of_bytes(expression: Any, session: SparkSession) -> Column:
    """The hash of bytes; Spark's own treats the last one to three bytes differently."""
    static = java_class(session, f"{_EXPRESSIONS}.objects.StaticInvoke")
    arguments = as_seq(session, [expression])
    owner = java_class(session, "java.lang.Class").forName(_MURMUR)
    result = _type(IntegerType(), session)
    none = as_seq(session, [])
    made = static(owner, result, "hash32x86", arguments, none, True, False, True, nothing(session))
    return column_of(made, session)


def _called(expression: Any, method: str, result: Any, session: SparkSession) -> Any:
    none = as_seq(session, [])
    return java_class(session, f"{_EXPRESSIONS}.objects.Invoke")(
        expression, method, result, none, none, True, False, True
    )


def _object(name: str, session: SparkSession) -> Any:
    found = java_class(session, "java.lang.Class").forName(name)
    return java_class(session, "org.apache.spark.sql.types.ObjectType")(found)


def _type(kind: DataType, session: SparkSession) -> Any:
    return session._jsparkSession.parseDataType(kind.json())
