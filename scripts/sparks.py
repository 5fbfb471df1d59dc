"""Runs what shows that sparkjet works on a line of Spark, on each line.

Usage: ``python scripts/sparks.py [--quick | --install] [LINE …]``, e.g. ``4.0 4.3``; all lines if none is named. The
PySpark of each is put into ``.venv/sparks``, once; all other packages are those of the environment that runs this.
``--quick`` runs the doors and the README only, ``--install`` nothing. The exit status is 1 if a line has failed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".venv" / "sparks"
LINES = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""The newest release of each line; a new one is tried by hand first."""
DOORS = ("tests/versions", "tests/test_spark_line.py", "README.md")
"""What goes through Spark's private doors, door by door, and the first thing that a user runs."""
QUERIES = ("tests/catalyst", "tests/crash/farmed/test_steps.py")
"""Plans, and drivers that are killed at each step."""
OLDER_PAGES = (
    *("time", "policies", "idle-substreams", "late-events", "sessions", "without-windows", "duplicates"),
    *("several-results", "joins", "joining-results", "joining-streams", "state", "stateful-functions"),
    *("files", "sinks"),
)
"""Pages of the guide whose examples need nothing that the oldest lines lack."""
WHOLE = ("4.2", "4.3")
"""Lines on which all pages run."""
# Before 4.2 PySpark leaves it to Python's collector to close the sockets that it reads rows from.
SOCKETS = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")


def pyspark(version: str, folder: Path = PLACE) -> list[str]:
    """The folder to import that PySpark from; none if this environment has it."""
    if installed("pyspark") == version:
        return []
    place = folder / version
    folder.mkdir(parents=True, exist_ok=True)
    # Another run would remove what this one is installing.
    with (folder / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            _install(version, place)
    return [str(place)]


def _install(version: str, place: Path) -> None:
    print(f"sparkjet: installing PySpark {version} into {place} (450 MB)", flush=True)
    parts = place.with_name(f"{version}.part")
    shutil.rmtree(parts, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
    if subprocess.run([*pip, "--target", str(parts), f"pyspark=={version}"], check=False).returncode:
        sys.exit(f"sparkjet: PySpark {version} was not installed; what pip says is above.")
    # What was cut short is not taken for whole.
    parts.rename(place)


def runs(name: str, *, quick: bool) -> list[list[str]]:
    """The commands that run on a line."""
    report = ROOT / "build" / "junit" / f"spark-{name}.xml"
    tests = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *SOCKETS]
    if quick:
        return [[*tests, "-m", "not long and not crash", "--interpreted", *DOORS]]
    pages = ["docs/guide"] if name in WHOLE else [f"docs/guide/{page}.md" for page in OLDER_PAGES]
    flights = [sys.executable, str(ROOT / "examples" / "flights.py"), "--small"]
    return [[*tests, "-m", "not long", *DOORS, *QUERIES, *pages], flights]


def main() -> int:
    """Run the lines that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"of {', '.join(LINES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="the doors and the README only")
    parser.add_argument("--install", action="store_true", help="only install what is missing")
    options = parser.parse_args()
    names = options.lines or list(LINES)
    unknown = sorted(set(names) - LINES.keys())
    if unknown:
        parser.error(f"no such line: {', '.join(unknown)}; there are {', '.join(LINES)}")
    failed = []
    for name in names:
        folders = pyspark(LINES[name])
        if options.install:
            continue
        began = time.monotonic()
        print(f"sparkjet: Spark {LINES[name]}", flush=True)
        # Before the packages of this environment, in the processes that tests start too.
        paths = [*folders, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment.pop("SPARK_HOME", None)
        commands = runs(name, quick=options.quick)
        statuses = [subprocess.run(each, cwd=ROOT, env=environment, check=False).returncode for each in commands]
        if any(statuses):
            failed.append(name)
        print(f"sparkjet: Spark {LINES[name]} took {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"sparkjet: failed on Spark {', '.join(failed)}.", file=sys.stderr)
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
