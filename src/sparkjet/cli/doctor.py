"""``doctor``: looks for what would stop a query on this machine; each finding comes with a remedy."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeAlias

from sparkjet.cli.arguments import printable, show
from sparkjet.cli.homes import home_at, session
from sparkjet.errors import SparkjetError, has_package
from sparkjet.executors import platform_of
from sparkjet.platforms import Platform, Weight
from sparkjet.query_log import without_users
from sparkjet.storage.paths import local_path
from sparkjet.storage.schemes import scheme_of

OK, ADVICE, BAD = "ok", "advice", "BAD"
OLDEST_PYTHON = 3, 10
JAVAS = 17, 21
HANDLES = 4096
"""Files that a driver with a few queries and a local Spark may have open."""
FREE = 1 << 30
"""Bytes below which a disk will soon be full."""
SKEW_SECONDS = 10
"""Seconds between this machine's clock and a file server's; processing time tolerates as much."""
EXTRAS = {
    "arrow": "pyarrow",
    "artemis": "pyarrow",
    "delta": "pyarrow",
    "grid": "sparkjet_grid",
    "iceberg": "pyarrow",
    "kafka": "confluent_kafka",
    "avro": "fastavro",
    "protobuf": "google.protobuf",
    "postgres": "psycopg",
    "rabbitmq": "pika",
    "page": "uvicorn",
    "metrics": "prometheus_client",
}
"""One package of each extra."""

_OF_SPARK = (
    "SPARK_HOME",
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_IP",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    "JAVA_TOOL_OPTIONS",
)
"""Environment variables that Spark's start depends on."""


@dataclass(frozen=True)
class Finding:
    """A subject, whether it is ``ok``, only works so far (``advice``) or is ``BAD``, and the remedy."""

    subject: str
    verdict: str
    told: str
    remedy: str | None = None


Check: TypeAlias = Callable[[], Iterable[Finding]]


def examine(location: str | None, dsn: str | None, settings: Sequence[str], *, as_json: bool) -> int:
    """Print the findings; returns 1 if one of them is bad.

    Args:
        location: A location for a query's checkpointLocation.
        dsn: A PostgreSQL server to write to.
        settings: Spark settings, as NAME=VALUE.
        as_json: Whether to print JSON.
    """
    checks: list[tuple[str, Check]] = [
        ("Python", python),
        ("packages", packages),
        ("Java", java),
        ("file handles", handles),
        ("temporary directory", temporary),
        ("Spark", partial(spark, settings)),
        ("platform", partial(platform, location, settings)),
    ]
    if location is not None:
        checks.append(("home", partial(home, location, settings)))
    if dsn is not None:
        checks.append(("PostgreSQL", partial(postgres, dsn)))
    findings = []
    for subject, check in checks:
        for finding in _findings(subject, check):
            findings.append(finding)
            if not as_json:
                # At once: starting Spark takes seconds.
                print(_line(finding), flush=True)
    if as_json:
        show((), [asdict(each) for each in findings], as_json=True)
    return int(any(each.verdict == BAD for each in findings))


def python() -> Iterator[Finding]:
    """The interpreter."""
    found = sys.version_info[:2]
    told = f"Python {found[0]}.{found[1]} at {sys.executable}"
    good = found >= OLDEST_PYTHON
    yield Finding("Python", OK if good else BAD, told, None if good else "Install Python 3.10 or newer.")


def packages() -> Iterator[Finding]:
    """PySpark, and which extras are installed."""
    try:
        yield Finding("packages", OK, f"pyspark {version('pyspark')}, sparkjet {version('sparkjet')}")
    except PackageNotFoundError as error:
        yield Finding("packages", ADVICE, f"{error.name} was not installed by pip", "pip install sparkjet")
    yield from _one_version()
    there = [extra for extra, package in EXTRAS.items() if has_package(package)]
    absent = [extra for extra in EXTRAS if extra not in there]
    told = f"installed extras: {', '.join(there) or 'none'}"
    remedy = f'If you need others: pip install "sparkjet[{",".join(absent)}]"' if absent else None
    yield Finding("packages", OK, told, remedy)


def _one_version() -> Iterator[Finding]:
    try:
        own, grids = version("sparkjet"), version("sparkjet-grid")
    except PackageNotFoundError:
        return
    if own != grids:
        told = f"sparkjet {own} does not go with sparkjet-grid {grids}: their protocol has no versions"
        yield Finding("packages", BAD, told, f'pip install "sparkjet[grid]=={own}", and the same on all members.')


def java() -> Iterator[Finding]:
    """The Java that PySpark would start."""
    remedy = "Install a JRE of version 17 or 21, and set JAVA_HOME if it is not on the PATH."
    place = os.environ.get("JAVA_HOME")
    command = str(Path(place) / "bin" / "java") if place else shutil.which("java")
    if command is None or not Path(command).exists():
        told = f"JAVA_HOME={place} has no bin/java" if place else "there is no java on the PATH"
        yield Finding("Java", BAD, told, remedy)
        return
    try:
        ended = subprocess.run([command, "-version"], capture_output=True, check=False)  # noqa: S603
    except OSError as error:
        # It is not executable, or for another architecture.
        yield Finding("Java", BAD, f"{command} cannot be started: {error.strerror}", remedy)
        return
    answer = ended.stderr.decode(errors="replace")
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    if found is None:
        yield Finding("Java", BAD, f"{command} -version says: {answer.strip()[:200] or 'nothing'}", remedy)
    else:
        number = int(found[1])
        known = OK if number in JAVAS else BAD if number < JAVAS[0] else ADVICE
        yield Finding("Java", known, f"Java {number} at {command}", None if known == OK else remedy)


def handles() -> Iterator[Finding]:
    """The number of files that a process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= HANDLES
    remedy = f"ulimit -n {HANDLES} before the driver starts" + (
        "" if hard == resource.RLIM_INFINITY or hard >= HANDLES else f"; the administrator's limit is {hard}"
    )
    yield Finding("file handles", OK if enough else ADVICE, f"{soft} files may be open", None if enough else remedy)


def disk(place: Path, subject: str) -> Iterator[Finding]:
    """Space on the disk of a directory, and whether this user may write there."""
    if not os.access(place, os.W_OK):
        yield Finding(subject, BAD, f"{place} is not writable", "Name another one, or change its owner.")
        return
    free = shutil.disk_usage(place).free
    told = f"{place} has {free / 2**30:.1f} GiB free"
    yield Finding(subject, OK if free > FREE else ADVICE, told, None if free > FREE else "Make room before it is full.")
    inodes = os.statvfs(place)
    if inodes.f_files and inodes.f_favail < inodes.f_files // 100:
        told = f"{place} has {inodes.f_favail} of {inodes.f_files} inodes left"
        yield Finding(subject, ADVICE, told, "Remove small files there: a disk without inodes is full.")


def temporary() -> Iterator[Finding]:
    """Space for temporary files."""
    try:
        place = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        remedy = "Make room on its disk, or let TMPDIR name a directory that this user may write to."
        yield Finding("temporary directory", BAD, str(error.strerror), remedy)
        return
    yield from disk(place, "temporary directory")


def spark(settings: Sequence[str]) -> Iterator[Finding]:
    """A session with one task in a Python worker, in a Spark that ``sj.stream`` accepts."""
    # On use: most of it is for queries.
    from sparkjet.catalyst.doors import check_doors, check_one_release  # noqa: PLC0415 - see above
    from sparkjet.spark_line import RELEASE  # noqa: PLC0415 - see above
    from sparkjet.storage.hadoop_file_system import first_line  # noqa: PLC0415 - see above

    began = time.monotonic()
    try:
        found_session = session(settings)
        context = found_session.sparkContext
        # The worker is another process, perhaps another Python: PYSPARK_PYTHON names it.
        (found,) = context.parallelize([0], 1).map(lambda _: sys.version_info[:2]).collect()
    except SparkjetError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever stops Spark is the finding
        told = f"Spark does not start, or runs no Python worker: {first_line(error)}"
        named = [name for name in _OF_SPARK if name in os.environ]
        given = f"; {', '.join(named)} {'is' if len(named) == 1 else 'are'} set" if named else ""
        yield Finding("Spark", BAD, told, f"Fix Java first; then look at the log above{given}.")
        return
    worker, seconds = f"Python {found[0]}.{found[1]} worker", time.monotonic() - began
    yield Finding("Spark", OK, f"Spark {context.version} ran a task in a {worker} after {seconds:.0f} s")
    # Like sj.stream: it refuses other Spark lines, and builds without what sparkjet needs.
    check_one_release(RELEASE, context.version)
    check_doors(found_session)


def platform(
    location: str | None, settings: Sequence[str], environment: Mapping[str, str] = os.environ
) -> Iterator[Finding]:
    """Where drivers with these settings run, and what does not work there."""
    found = _started()
    if found is None:
        # Spark did not start, perhaps for a reason that these tell.
        pairs = [setting.partition("=") for setting in settings]
        found = Platform({name: value for name, _, value in pairs}, environment)
    path = None
    if location is not None and scheme_of(location) == "file":
        path = str(local_path(location, "home"))
    yield Finding("platform", OK, found.name)
    for note in found.notes(path):
        yield Finding("platform", BAD if note.weight is Weight.REFUSED else ADVICE, note.told, note.remedy)


def home(location: str, settings: Sequence[str]) -> Iterator[Finding]:
    """Whether a location may hold a query's decisions, its free space, and its clock; leaves nothing behind."""
    place = home_at(location, "home", settings)
    place.check("home", create=False)
    yield Finding("home", OK, f"of two writers of one file, one wins in {place}")
    if place.path is not None:
        there = next(each for each in (place.path, *place.path.parents) if each.exists())
        yield from disk(there, "home")
        with tempfile.NamedTemporaryFile(dir=there, prefix=".sparkjet-doctor-") as file:
            skew = abs(Path(file.name).stat().st_mtime - time.time())
        told = f"the clock of its file system is {skew:.0f} s from this machine's"
        remedy = None if skew < SKEW_SECONDS else "Set both clocks, and keep them so with NTP."
        yield Finding("home", ADVICE if remedy else OK, told, remedy)


def postgres(dsn: str) -> Iterator[Finding]:
    """A server's version, whether it accepts rows, and whether it can prepare transactions."""
    try:
        import psycopg  # noqa: PLC0415 - an extra

        from sparkjet.connectors.postgres.copying import connect  # noqa: PLC0415 - needs psycopg
        from sparkjet.connectors.postgres.settings import connection_string  # noqa: PLC0415 - needs psycopg
        from sparkjet.connectors.postgres.table import check_server  # noqa: PLC0415 - needs psycopg
    except ModuleNotFoundError as error:
        yield Finding("PostgreSQL", BAD, f"there is no {error.name}", 'pip install "sparkjet[postgres]"')
        return
    try:
        with connect(connection_string(dsn)) as connection:
            check_server(connection)
            server = connection.info.parameter_status("server_version")
            (limit,) = connection.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone() or (0,)
    except psycopg.Error as error:
        told = str(error).strip() or type(error).__name__
        yield Finding("PostgreSQL", BAD, told, "Fix what the server names; a password comes from PGPASSWORD.")
        return
    if limit:
        yield Finding("PostgreSQL", OK, f"version {server}, up to {limit} prepared transactions")
    else:
        told = f"version {server}, max_prepared_transactions is 0: rows wait in the outbox, which is slower"
        yield Finding(
            "PostgreSQL", ADVICE, told, "Set max_prepared_transactions to 20 or more, and restart the server."
        )


def _started() -> Platform | None:
    """Where the session started by an earlier check runs."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - another check says that there is none
    except ModuleNotFoundError:
        return None
    active = SparkSession.getActiveSession()
    return None if active is None else platform_of(active)


def _findings(subject: str, check: Check) -> Iterator[Finding]:
    """The findings of a check; if it is refused, that is one."""
    try:
        for finding in check():
            yield replace(finding, told=without_users(finding.told))
    except (SparkjetError, OSError) as error:
        yield Finding(subject, BAD, without_users(str(error)))


def _line(finding: Finding) -> str:
    # Messages of a server, or the environment, are passed on; they may have several lines.
    told = "\n        ".join(map(printable, finding.told.splitlines()))
    remedy = f"\n        {printable(finding.remedy)}" if finding.remedy else ""
    return f"{finding.verdict:<7} {finding.subject}: {told}{remedy}"
