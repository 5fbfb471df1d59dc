"""sparkjet's own code, and the grid's, on the path of Spark's Python workers, where it need not be installed."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRID_PACKAGES = {
    name: name.replace("_", "-") for name in ("msgspec", "pyarrow", "tenacity", "typing_extensions", "xxhash")
}
"""The packages that the grid imports in a worker, and that are not sent there: names to install, by import name."""
_NAME = "sparkjet-workers.zip"
_LAZY = ("sparkjet/__init__.py", "sparkjet/time/__init__.py")
"""Packages whose names come from modules that need msgspec and tenacity, which workers may not have."""
_STUB = """from importlib import import_module
from importlib.util import find_spec


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    # Modules first: who imports one of them has not asked for all names, which may be what is just being imported.
    if find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(__name__ + "._names"), name)
"""
_lock = threading.Lock()


def ship(spark: SparkSession) -> None:
    """Have Spark put sparkjet on the path of its Python workers: on executors, and of the planner on the driver.

    What ``spark-submit --py-files`` adds is found only by the driver's own process, and a wheel not even by the
    executors. Sources and grids cannot be shipped by value like the tasks of sinks: their workers keep connections
    between tasks. Runs on the driver, and may be called again.
    """
    context = spark.sparkContext
    # PySpark's own directory, which goes with the context.
    archive = Path(context._temp_dir) / _NAME  # noqa: SLF001 - it has no public name
    with _lock:
        if not archive.exists():
            _write(archive)
            context.addPyFile(str(archive))
            # Spark's stream planner looks for the name in a different directory than the one Spark has put it in. It
            # accepts a whole path; executors do not have that, and find the name.
            context._python_includes.append(str(archive))  # type: ignore[union-attr] # noqa: SLF001 - as above


def _write(archive: Path) -> None:
    writing = archive.with_suffix(".part")
    with zipfile.ZipFile(writing, "w") as packed:
        for name, content in _modules():
            if name in _LAZY:
                packed.writestr(name, _STUB)
                # Whatever users import is in such a module anyway.
                if name != _LAZY[0]:
                    packed.writestr(name.replace("__init__", "_names"), content)
            else:
                packed.writestr(name, content)
    writing.rename(archive)


def _modules() -> Iterator[tuple[str, bytes]]:
    """Modules of sparkjet and the grid, from a directory or from the archives where the driver itself finds them."""
    # Without the extra there is no grid, and nothing that is shipped looks for it.
    names = [name for name in ("sparkjet", "sparkjet_grid") if find_spec(name) is not None]
    pending = [(name, files(name)) for name in names]
    while pending:
        name, found = pending.pop()
        if found.is_dir():
            pending += [(f"{name}/{each.name}", each) for each in found.iterdir()]
        elif name.endswith(".py"):
            yield name, found.read_bytes()
