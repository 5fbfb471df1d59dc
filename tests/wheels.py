"""The installed product: wheels and source distributions, and environments that have nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
GRID = ROOT / "src" / "sparkjet_grid"


def built(project: Path, into: Path, target: Literal["wheel", "sdist"] = "wheel") -> Path:
    """A distribution as users get it."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return next(into.glob("*.whl" if target == "wheel" else "*.tar.gz"))


def metadata(wheel: Path) -> Message:
    """The metadata that package indexes and pip read."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [each for each in packed.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parsestr(packed.read(name).decode())


def installed(wheel: Path, into: Path) -> Path:
    """An environment in which pip has installed a wheel and what it requires; returns its Python.

    What it requires is linked from this environment, not loaded once more: a package that the wheel needs and does not
    name is missing.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(into)], check=True)
    python = into / "bin" / "python"
    link(metadata(wheel).get_all("Requires-Dist", []), site(into))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", str(wheel)], check=True, capture_output=True)
    return python


def site(environment: Path) -> Path:
    """Where an environment has its packages."""
    return next((environment / "lib").glob("python*")) / "site-packages"


def link(requirements: Iterable[str], into: Path) -> None:
    """Have packages of this environment, and all that they require, in a directory too."""
    waiting, done = [Requirement(each) for each in requirements], set[str]()
    while waiting:
        needed = waiting.pop()
        if needed.name in done or not (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            continue
        done.add(needed.name)
        found = distribution(needed.name)
        waiting += [Requirement(each) for each in found.requires or ()]
        place = Path(str(found.locate_file("")))
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (into / name).exists():
                (into / name).symlink_to(place / name)
