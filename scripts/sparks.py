"""Runs the doors' tests and the README's example on lines of Spark 4, each in an environment of its own.

Usage: ``python scripts/sparks.py [LINE …]``, e.g. ``4.0 4.3``; all lines if none is named. An environment,
``.venv-sparks/VERSION``, has the locked packages with that PySpark, and is made once. The exit status is 1 if a line
has failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINES = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""The newest release of each line; a new one is tried by hand first."""
DOORS = (
    "tests/catalyst",
    "tests/state/test_partitions.py",
    "tests/storage/test_file_writer.py",
    "tests/storage/test_read_back.py",
    "tests/storage/test_write_job.py",
    "tests/storage/test_written.py",
    "README.md",
)
"""What goes through Spark's private doors, test by test, and the first thing that a user runs."""


def environment(version: str) -> Path:
    """The Python of an environment with that PySpark."""
    place = ROOT / ".venv-sparks" / version
    python, ready = place / "bin" / "python", place / ".ready"
    if not ready.exists():
        print(f"sparkjet: making an environment with PySpark {version} (450 MB)", flush=True)
        venv.create(place, clear=True, with_pip=True)
        lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
        wanted = place / "requirements.txt"
        others = re.sub(r"^pyspark==.*\n", "", lock, flags=re.MULTILINE)
        wanted.write_text(f"pyspark=={version}\n{others}", encoding="utf-8")
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "-r", str(wanted)], check=True)
        # What a version names would otherwise be refused: that it works is what is to be found out.
        subprocess.run([*pip, "--no-build-isolation", "--no-deps", "-e", str(ROOT)], check=True)
        ready.touch()
    return python


def main(names: list[str]) -> int:
    """Run the lines that are named."""
    unknown = set(names) - LINES.keys()
    if unknown:
        print(f"sparkjet: no such line: {', '.join(sorted(unknown))}; there are {', '.join(LINES)}.", file=sys.stderr)
        return 2
    failed = []
    for name in names or LINES:
        python = environment(LINES[name])
        print(f"sparkjet: Spark {LINES[name]}", flush=True)
        report = ROOT / "build" / "junit" / f"spark-{name}.xml"
        tests = [str(python), "-m", "pytest", "-q", "-m", "not long", "--interpreted", f"--junit-xml={report}"]
        inherited = {key: value for key, value in os.environ.items() if key not in {"SPARK_HOME", "PYTHONPATH"}}
        if subprocess.run([*tests, *DOORS], cwd=ROOT, env=inherited, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"sparkjet: failed on Spark {', '.join(failed)}.", file=sys.stderr)
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
