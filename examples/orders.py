"""Orders from RabbitMQ, by customer into baskets, into PostgreSQL: a driver is killed, and every row is written once.

    make orders         or: .venv/bin/python examples/orders.py

`baskets` in `orders_driver.py` is the part to copy. The rest starts a broker and a database of its own, fills the first
(`orders_feed.py`), kills the driver in the middle, and compares what psql finds in the end with baskets computed from
the orders.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

# Started as a file, Python looks for modules in the file's directory only.
CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

try:
    from rich.console import Console

    from examples.orders_driver import TABLE
    from examples.orders_feed import BEHIND, Basket, expected, left, orders, send
    from tests.servers.postgres import NoServerError, PostgresServer
    from tests.servers.postgres import binaries as postgres_binaries
    from tests.servers.programs import NoProgramError
    from tests.servers.rabbitmq import RabbitServer
    from tests.servers.rabbitmq import binaries as rabbitmq_binaries
except ModuleNotFoundError as missing:
    sys.exit(f"orders: the package {missing.name} is not installed. Run `make setup`, which needs a network.")

LOG = "spark.log"
KILLED_AFTER = 4
"""Epochs."""


@dataclass(frozen=True)
class Servers:
    """Port of RabbitMQ, connection string of PostgreSQL, and what psql, which shares nothing with the sink, finds."""

    port: int
    database: str
    psql: Callable[[str], list[list[str]]]


@contextmanager
def servers(
    postgres: Callable[[], Path] = postgres_binaries, rabbitmq: Callable[[], Path] = rabbitmq_binaries
) -> Iterator[Servers]:
    """Both, running; at the end each is stopped by its process id and its directory removed, even after an error.

    Raises:
        NoServerError, NoProgramError: One of them is not installed; the message says how to.
    """
    programs, scripts = postgres(), rabbitmq()
    with PostgresServer(programs=programs) as database, RabbitServer(scripts=scripts) as broker:
        dsn = database.dsn()
        yield Servers(broker.port, dsn, lambda query: database.psql(dsn, query))


def main(start: Callable[[], AbstractContextManager[Servers]] = servers) -> int:
    """Start the servers and run the job; the exit status is 0 if every check passed."""
    console = Console(soft_wrap=True)
    root = Path(tempfile.mkdtemp(prefix="sparkjet-orders-"))
    good = False
    try:
        console.print("Starting RabbitMQ and PostgreSQL …")
        with start() as running:
            good = job(running, root, console)
    except (NoServerError, NoProgramError) as error:
        complain(f"orders: {error}")
    except KeyboardInterrupt:
        complain("orders: stopped.")
    finally:
        # A failed run is kept for inspection, unless nothing has been written.
        if not good and any(root.iterdir()):
            complain(f"orders: the log and the checkpoint are in {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    return 0 if good else 1


def job(running: Servers, root: Path, console: Console) -> bool:
    """Orders into RabbitMQ, baskets into PostgreSQL with a kill between, and the check; whether it passed."""
    began = time.monotonic()
    given = orders()
    send(running.port, given)
    hours = int(BEHIND.total_seconds() // 3600)
    console.print(f"{len(given):,} orders are in two queues; those of shops are {hours} hours behind those of the web.")
    console.print(f"Starting a driver; its log is {root / LOG} …")
    with driver(running, root) as first:
        for line in first.stdout or ():
            if int(line) == KILLED_AFTER:
                break
        else:
            complain("✗ the driver ended before it was killed")
            return False
        # Python and its JVM, as a power cut would.
        os.killpg(first.pid, signal.SIGKILL)
    written = int(running.psql(f"SELECT count(*) FROM {TABLE}")[0][0])  # noqa: S608 - a name of our own
    console.print(
        f"Killed after epoch {KILLED_AFTER}: {written} baskets are written, {left(running.port):,} orders left."
    )
    with driver(running, root) as second:
        epochs = [int(line) for line in second.stdout or ()]
    if second.returncode:
        complain("✗ the second driver has failed")
        return False
    console.print(f"A second driver has continued with epoch {epochs[0]} and ended with {epochs[-1]}.")
    problems = differences(read_back(running.psql), expected(given))
    if left(running.port):
        problems.append(f"{left(running.port)} orders are still in the queues")
    for problem in problems:
        complain(f"✗ {problem}")
    if not problems:
        total = len(expected(given))
        what = f"✓ {total} baskets, each once and equal to those computed from the orders; the queues are empty."
        console.print(f"{what} {time.monotonic() - began:.0f} seconds.", style="green")
    return not problems


@contextmanager
def driver(running: Servers, root: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver in a separate process group, which ends with the block."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "src"), str(CHECKOUT)]), "TZ": "UTC"}
    command = [sys.executable, "-m", "examples.orders_driver", str(running.port), running.database, str(root)]
    with (root / LOG).open("a", encoding="utf-8") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, env=environment, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            text=True, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
        process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def read_back(psql: Callable[[str], list[list[str]]]) -> list[Basket]:
    """The rows of the table, as psql finds them."""
    seconds = (f"extract(epoch FROM {column})::bigint" for column in ("first_item", "last_item"))
    query = f"SELECT {', '.join(('customer', *seconds, 'items', 'cents'))} FROM {TABLE}"  # noqa: S608 - of our own
    return [Basket(who, *map(int, numbers)) for who, *numbers in psql(query)]


def differences(found: list[Basket], right: list[Basket]) -> list[str]:
    """What is wrong with the rows of the table, one line per kind."""
    extra, missing = Counter(found) - Counter(right), Counter(right) - Counter(found)
    kinds = {"should not be there, or not so often": extra, "are missing": missing}
    return [f"{n.total()} baskets {what}, e.g. {next(iter(n))}" for what, n in kinds.items() if n]


def complain(text: str) -> None:
    """Print an error verbatim: no markup, no wrapping in the middle of a path."""
    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
