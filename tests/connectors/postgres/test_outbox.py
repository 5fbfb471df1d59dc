"""PostgreSQL with the outbox: its marker and row count complement the outbox's own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.postgres.settings import PostgresSettings
from sparkjet.connectors.postgres.sink import PostgresSink
from sparkjet.errors import LostTransactionError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import SCHEMA, transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.postgres import PostgresServer


def test_rows_that_are_gone_have_arrived_only_if_the_database_says_so(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer
) -> None:
    dsn = postgres.database("outbox_tampering")
    sink = PostgresSink(PostgresSettings.of(Options({"dsn": dsn, "dbtable": "t", "prepared": "never"})))
    sink.attach(tmp_path / "outbox", spark)
    rows = spark.createDataFrame([(f"k{n}", n) for n in range(6)], SCHEMA).repartition(2)
    sink.check(rows.schema)
    sink.create()
    written, lost, short = (sink.prepare(rows, transaction(epoch)) for epoch in (1, 2, 3))
    assert written is not None
    assert lost is not None
    assert short is not None
    # The driver dies after the server's COMMIT, and the outbox's directory and marks are lost with it.
    box = tmp_path / "outbox" / "results"
    shutil.copytree(box, tmp_path / "saved")
    sink.commit(written, lambda: None)
    shutil.rmtree(box)
    sink.commit(written, lambda: None)
    with pytest.raises(LostTransactionError, match=r"Epoch 2 .* 6 rows"):
        sink.commit(lost, lambda: None)
    shutil.rmtree(box)
    shutil.copytree(tmp_path / "saved", box)
    with pytest.raises(LostTransactionError, match="7 rows for PostgreSQL, but the outbox has 6"):
        sink.commit(short | {"rows": 7}, lambda: None)
    assert postgres.psql(dsn, "SELECT count(*) FROM t") == [["6"]]
    for handle in (written, lost, short):
        sink.commit(handle, lambda: None)
    assert postgres.psql(dsn, "SELECT count(*) FROM t") == [["18"]]
