"""Where a query may differ from Spark's batch, or is made so that it does not: each with the reason."""

from __future__ import annotations

KNOWN = {
    "sessions whose events may be one gap apart are compared with window functions": (
        "Spark merges sessions that only touch (porting.md)"
    ),
    "first, last, any_value, listagg are compared with what goes by event time": "Spark's go by arrival (porting.md)",
    "min_by, max_by and mode are asked so that there are no ties": "Spark's batch picks any of them",
    "sketches see fewer values than they keep": "their estimates are not Spark's (porting.md)",
    "0.0 and -0.0 are one value, and fractions are compared to nine digits": "Spark's own depend on the order of rows",
    "of texts that a collation calls equal, any may be shown": "Spark shows any",
    "sessions of keys with a collation are compared with window functions": (
        "Spark cuts them where equal keys differ in their bytes"
    ),
    "texts with a collation are computed by generated code": (
        "interpreted, Spark does not copy them where it copies other texts: min_by of one is what came in its place"
    ),
    "no file of ORC has times of October 1582": "Spark writes them by a calendar that skips ten days",
    "a column may be nullable that never is in Spark": "what is put together from stored rows may be null to Spark",
    "functions with pandas get dates but no times": "Arrow's end in 1677 and 2262 there, in Spark's own ones too",
    "sessions with maxDuration are compared with window functions": "Spark has none",
    "of early rows, those that repeat what was sent are not counted": "after a restart open windows come once more",
    "rows of a joined stream, or of two windows that are joined, are not counted as late": "each is judged twice",
    "an aggregate without keys emits nothing in an epoch none of whose rows counts": (
        "Spark emits its row all the same, at first null or a count of 0 (porting.md)"
    ),
    "windows are computed before those over them": (
        "in one plan of sessions, windows over them and windows over these, Spark takes a struct that is null for the"
        " one before it: seed 9100021"
    ),
    "keys of dropDuplicatesWithinWatermark are not forgotten": "in a batch none is; tests/stateful has the rule",
}
"""Cases that are left out of the comparison, and why."""
