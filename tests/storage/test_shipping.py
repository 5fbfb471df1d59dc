"""sparkjet for Python workers without its packages; those of a cluster are in `cluster/test_packaging.py`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.storage.shipping import _write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).parents[2] / "src"
LACKING = "import sys; sys.modules.update(dict.fromkeys(['msgspec', 'tenacity', 'typing_extensions'])); "


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    archive = tmp_path / "sparkjet.zip"
    _write(archive)
    return archive


def run(archive: Path, code: str) -> str:
    """Output of a Python whose sparkjet is the one in the archive."""
    # Isolated: the sparkjet that is tested must not be found instead.
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_kafka_source_is_imported_without_what_only_the_driver_has(archive: Path) -> None:
    found = run(
        archive, LACKING + "from sparkjet.connectors.kafka.source import KafkaDataSource as K; print(K, K.name())"
    )
    assert found == "<class 'sparkjet.connectors.kafka.source.KafkaDataSource'> sparkjet-kafka\n"


def test_users_of_sparkjet_in_a_worker_find_all_of_it(archive: Path) -> None:
    code = "import sparkjet as sj; from sparkjet.time import parse_duration; print(sj.limiting_lag, parse_duration, sj)"
    found = run(archive, code)
    assert "function limiting_lag" in found
    assert "function parse_duration" in found
    assert f"{archive}/sparkjet/__init__.py" in found


def test_a_module_of_the_driver_s_comes_first_where_a_function_of_its_user_s_is_read(archive: Path) -> None:
    """A module that it imports must not ask for all names, as some of them come from itself."""
    found = run(archive, "from sparkjet.engine.erasing import HomeErasure; print(HomeErasure.__name__)")
    assert found == "HomeErasure\n"


def test_names_and_packages_are_there_when_they_are_used() -> None:
    code = "import sparkjet as sj; print(sj.sinks.Sink, sj.limiting_lag, 'stream' in dir(sj)); sj.nothing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("<class 'sparkjet.sinks.protocol.Sink'> <function limiting_lag")
    assert done.stdout.endswith(" True\n")
    assert "AttributeError: module 'sparkjet" in done.stderr.splitlines()[-1]


def test_a_driver_without_the_dependencies_is_told_what_to_install(archive: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "wheel.zip"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path in SOURCE.rglob("*.py"):
            packed.write(path, path.relative_to(SOURCE))
    line = run(wheel, LACKING + "import sparkjet").strip().splitlines()[-1]
    assert f"sparkjet: {sys.executable} on " in line
    assert "has no msgspec. Install msgspec and tenacity" in line


def test_a_missing_package_is_named_with_the_python_that_lacks_it(archive: Path) -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None; import sparkjet.connectors.kafka.source"
    line = run(archive, code).strip().splitlines()[-1]
    assert f"{sys.executable} on " in line
    assert "has no confluent_kafka. Install confluent-kafka and pyarrow there" in line
    assert "--archives" in line
    # It is read by a worker whose driver has it.
    assert "The driver's Python has it: to use that there too, set PYSPARK_PYTHON" in line


def test_the_archive_can_be_made_from_an_archive(archive: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "wheel.zip"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path in SOURCE.rglob("*.py"):
            packed.write(path, path.relative_to(SOURCE))
    again = tmp_path / "again.zip"
    run(wheel, f"import pathlib; from sparkjet.storage.shipping import _write; _write(pathlib.Path({str(again)!r}))")
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(archive) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_it_is_added_once(spark: SparkSession) -> None:
    import sparkjet as sj

    for _ in range(2):
        sj.register_sources(spark)
    includes = spark.sparkContext._python_includes
    assert includes is not None
    assert includes.count("sparkjet-workers.zip") == 1
