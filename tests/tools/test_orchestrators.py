"""The recipes of the guide for orchestrators, each in its own environment, without PySpark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

import sparkjet

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "carried.md"
NEEDED = ("deltalake", "pyarrow", "msgspec", "tenacity", "typing-extensions")
TABLE = '''
    import datetime as dt, json, sys, tempfile
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, write_deltalake
    from sparkjet.tools import complete_until

    place, noon = tempfile.mkdtemp(), dt.datetime(2026, 1, 5, 12, tzinfo=dt.timezone.utc)

    def tell(minutes, epoch):
        """A version as the sink writes it."""
        until = noon + dt.timedelta(minutes=minutes)
        told = {"query": "q", "output": "results", "epoch": epoch, "watermark": int(until.timestamp() * 10**6)}
        metadata = {"userMetadata": json.dumps({"sparkjet": told})}
        rows, said = pa.table({"n": [epoch]}), CommitProperties(custom_metadata=metadata)
        write_deltalake(place, rows, mode="append", commit_properties=said)

    tell(10, 1)
'''
AIRFLOW = (
    """
    from airflow.sdk import PokeReturnValue, dag, task

    @dag(schedule="@hourly", start_date=noon, catchup=False)
    def hourly():
""",
    """
        hour_is_complete()

    def poke(hour):
        end = noon + dt.timedelta(hours=hour)
        return hourly().get_task("hour_is_complete").poke({"data_interval_end": end}).is_done

    assert [poke(0), poke(1)] == [True, False]
    tell(61, 2)
    assert poke(1)
""",
)
DAGSTER = (
    """
    import dagster as dg

    @dg.op
    def work(): ...

    @dg.job
    def hourly():
        work()

""",
    """
    def evaluate(cursor):
        found = hour_is_complete.evaluate_tick(dg.build_sensor_context(cursor=cursor))
        return [request.run_key for request in found.run_requests], found.cursor

    keys, cursor = evaluate(None)
    assert keys == [noon.isoformat()]
    assert evaluate(cursor)[0] == []
    tell(61, 2)
    assert evaluate(cursor)[0] == [(noon + dt.timedelta(hours=1)).isoformat()]
""",
)


def recipe(name: str) -> str:
    """The block of the guide that has a name in it, over the table of the test."""
    [block] = [
        each for each in re.findall(r"```python elsewhere\n(.*?)```", PAGE.read_text(), re.DOTALL) if name in each
    ]
    return block.replace('DeltaTable("s3://lake/minutes", storage_options=STORE)', "DeltaTable(place)")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("package", "name", "around", "depth"),
    [("apache-airflow", "@task.sensor", AIRFLOW, 4), ("dagster", "@dg.sensor", DAGSTER, 0)],
)
def test_an_orchestrator_waits_for_a_complete_hour(
    tmp_path: Path, package: str, name: str, around: tuple[str, str], depth: int
) -> None:
    whole = TABLE + around[0] + indent(recipe(name), " " * (4 + depth)) + around[1]
    program = f"{dedent(whole)}\nassert 'pyspark' not in sys.modules\n"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", package, *NEEDED], check=True)
    source = Path(str(sparkjet.__file__)).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "AIRFLOW_HOME": str(tmp_path / "airflow")}
    found = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
