"""The commands as they are called, and how they end.

What a command needs is imported when it runs: help and completion answer at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from sparkjet.cli import grid
from sparkjet.cli.arguments import HOME, AsJson, Home, Homes, Settings, printable
from sparkjet.errors import AnalysisError, SparkjetError, StorageError
from sparkjet.query_log import without_users

FAILED, NOT_UNDERSTOOD = 1, 2
"""Exit statuses: refused, or failed; and what the command line says is no command."""
PROGRAM = "sparkjet"
LOOPBACK = "127.0.0.1"
_PLAIN = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    help="Look after queries of sparkjet.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_PLAIN,
)
snapshots = typer.Typer(help="Show or copy what a query has stored.", rich_markup_mode=None)
app.add_typer(snapshots, name="snapshots")
app.add_typer(grid.app, name="grid")
_SPARKS = ("pyspark", "py4j")
_OUTPUTS = 'a directory that format("files") has written, or one with such directories, as the outputs of a fork'


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    refused: SparkjetError
    try:
        status: int | None = app(given, standalone_mode=False, prog_name=PROGRAM)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = PROGRAM if context is None else context.command_path
        told = " ".join(error.format_message().split()).rstrip(".")
        line = f"{command}: {told}. {command} --help shows what there is."
        refused, status = AnalysisError(line), NOT_UNDERSTOOD
    except SparkjetError as error:
        # As of diff everywhere, 1 says that there are differences.
        line, refused, status = f"{PROGRAM}: {error}", error, NOT_UNDERSTOOD if given[:1] == ["diff"] else FAILED
    except OSError as error:
        if error.filename is None:
            # Not of a file that a command has been given: of the output, see `main`.
            raise
        refused = StorageError(f"{error.filename}: {error.strerror}")
        line, status = f"{PROGRAM}: {refused}", FAILED
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in _SPARKS:
            raise
        # Also of doctor, which then has nothing else to look at.
        refused = AnalysisError(
            f'{package} is not installed for {sys.executable}: pip install "pyspark>=4.0,<5", or have the python '
            "directory of SPARK_HOME and its lib/py4j-*.zip on the PYTHONPATH."
        )
        line, status = f"{PROGRAM}: {refused}", FAILED
    else:
        return status or 0
    if "--json" in _own(given):
        message = without_users(str(refused))
        print(json.dumps({"error": {"condition": refused.condition, "message": message}}))
    # Line by line: what is quoted may be a log.
    print(*map(printable, without_users(line).splitlines()), sep="\n", file=sys.stderr)
    return status


def _own(given: Sequence[str]) -> Sequence[str]:
    """The arguments without those of the application that ``run`` runs.

    >>> _own(["top", "run", "--json"]), _own(["run", "--restart", "job.py", "--json"])
    (['top', 'run', '--json'], ['--restart'])
    """
    return [*takewhile(lambda each: each.startswith("-"), given[1:])] if given[:1] == ["run"] else given


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="a directory that is new, or empty", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Make a project that runs: a job, a test of it, a Makefile."""
    from sparkjet.cli.project import make  # noqa: PLC0415 - on use

    make(directory, as_json=as_json)


@app.command()
def doctor(
    home: Annotated[
        str | None, typer.Argument(help="a place for a query's checkpointLocation: may it hold decisions?")
    ] = None,
    dsn: Annotated[
        str | None, typer.Option(help="a PostgreSQL to write to, as libpq's connection string: host=… dbname=… user=…")
    ] = None,
    conf: Settings = None,
    as_json: AsJson = False,
) -> int:
    """Look for what would stop a query here.

    Each finding has its remedy. The exit status is 1 if something is bad.
    """
    from sparkjet.cli.doctor import examine  # noqa: PLC0415 - on use

    return examine(home, dsn, conf or (), as_json=as_json)


@app.command()
def page(
    homes: Homes = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = LOOPBACK,
    port: Annotated[int, typer.Option(help="port to listen on; 0 is any that is free")] = 0,
    token: Annotated[
        str | None,
        typer.Option(
            help="what readers must know; one is generated without it. Others see it in the list of processes: rather "
            "use SPARKJET_PAGE_TOKEN in the environment, or --token-file",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="a file that contains the token")] = None,
    conf: Settings = None,
    as_json: AsJson = False,
) -> int:
    """Serve a page of queries until Ctrl-C.

    They may be running or stopped: their records tell of them. Without HOME: print where this user's
    pages are on this machine, as query.page() opens them, with their tokens.
    """
    from sparkjet.cli.watching import serve, show_open, token_of  # noqa: PLC0415 - on use

    if not homes:
        if host != LOOPBACK or port or token or token_file:
            raise typer.BadParameter("--host, --port, --token and --token-file are for a page of homes: name a HOME")
        return show_open(as_json=as_json)
    return serve(homes, host, port, token_of(token, token_file), conf or (), as_json=as_json)


@app.command()
def top(
    homes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOME...]", help=f"{HOME}; or the address of a page: http://…", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="print it once, without colours in a pipe")] = False,
    token_file: Annotated[Path | None, typer.Option(help="a file that contains the token of the pages")] = None,
    conf: Settings = None,
    as_json: AsJson = False,
) -> int:
    """Show queries in the terminal.

    Their records tell of them, or a driver's page. Without HOME: all of this user's pages on
    this machine, as query.page() opens them. --json and --once print it once.
    """
    from sparkjet.cli.watching import token_of, watch  # noqa: PLC0415 - on use

    return watch(homes or (), conf or (), token_of(None, token_file), once=once, as_json=as_json)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help=_OUTPUTS, show_default=False)],
    new: Annotated[str, typer.Argument(help="the same of the other", show_default=False)],
    keys: Annotated[
        str, typer.Option(metavar="A,B", help="the columns that identify a row; without them whole rows are compared")
    ] = "",
    limit: Annotated[int, typer.Option(min=0, help="how many differing rows to print for each output")] = 20,
    conf: Settings = None,
    as_json: AsJson = False,
) -> int:
    """Compare what two queries have written, such as two forks.

    Counts first, then the first rows that differ. The exit status is 0 if nothing differs, 1 if something does, and 2
    if they could not be compared.
    """
    from sparkjet.cli.differences import show_differences  # noqa: PLC0415 - on use

    named = [each.strip() for each in keys.split(",") if each.strip()]
    return show_differences(old, new, named, limit, conf or (), as_json=as_json)


@app.command()
def txns(
    checkpoint: Annotated[str, typer.Argument(help="the query's checkpointLocation", show_default=False)],
    conf: Settings = None,
    dsn: Annotated[str, typer.Option(help="libpq's connection string: host=… dbname=… user=…")] = "",
    kafka: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="librdkafka's properties, one per line: bootstrap.servers=host:port"),
    ] = None,
    settle: Annotated[
        bool, typer.Option("--settle", help="commit or abort what the record decides, and nothing else")
    ] = False,
    refused: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="publish the decided rows that wait in the outbox for PostgreSQL, except those that the table "
            "refuses: write these into a new file, one JSON object a line",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List or settle what a query has prepared.

    These are transactions in PostgreSQL or, with --kafka, in Kafka. Each has its age, and its state by the record.
    PostgreSQL's password comes from PGPASSWORD or libpq's password file.
    """
    from sparkjet.cli.transactions import settled  # noqa: PLC0415 - on use

    # One of them, explicitly: a query may write to both, and the other would silently be left unsettled.
    _one_of("--dsn", dsn, "--kafka", kafka)
    _one_of("--settle", settle, "--refused", refused)
    return settled(checkpoint, conf or (), dsn, kafka, refused, settle=settle, as_json=as_json)


@app.command(name="run", context_settings={"allow_interspersed_args": False})
def run_application(
    application: Annotated[
        str, typer.Argument(help="a Python file, or any program such as spark-submit", show_default=False)
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="its arguments")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="start it again, after 1 s, 2 s, … 60 s")] = False,
) -> int:
    """Run an application, again and again if asked.

    With --restart it is started again when it ends with an error. Its exit status is handed on.
    """
    from sparkjet.cli.supervising import run_one  # noqa: PLC0415 - on use

    return run_one(application, arguments or (), restart=restart)


@app.command()
def state(
    home: Home,
    pin: Annotated[str | None, typer.Option(help="a pinned record; by default the newest", show_default=False)] = None,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """List the operators of a query with what they hold.

    The query may go on meanwhile. sj.read_state(home, operatorId) gives the rows themselves.
    """
    from sparkjet.cli.state import list_operators  # noqa: PLC0415 - on use

    list_operators(home, pin, conf or (), as_json=as_json)


@app.command()
def switch(
    old: Annotated[str, typer.Argument(help=f"the query that ends: {HOME}", show_default=False)],
    new: Annotated[str, typer.Argument(help="of the query that goes on, in the same form", show_default=False)],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="end of the old query's last windows, as 2026-01-05T10:00:00Z; else the earliest"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="look only")] = False,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Let one query publish the windows after another one's.

    The new one was started with option("publishAfter", OLD). Both may be running. Prints what each of
    them publishes, and how far it is; when called again, it decides nothing else.
    """
    from sparkjet.cli.switching import switch_queries  # noqa: PLC0415 - on use

    switch_queries(old, new, at, conf or (), dry_run=dry_run, as_json=as_json)


@app.command()
def erase(
    home: Home,
    key: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN=VALUE",
            help="a column and its value, as sj.read_state shows them; of several, rows have all",
            show_default=False,
        ),
    ],
    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="a directory of late rows, dead letters or results; may be repeated"),
    ] = None,
    copy: Annotated[
        list[str] | None,
        typer.Option(metavar="HOME", help="a copy of the home, as of snapshotBackup; may be repeated"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="look only")] = False,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Delete what a stopped query keeps of a key.

    From its state, its pins, and the directories and copies that are named. Prints what was found
    where, and what is not erased.
    """
    from sparkjet.cli.erasing import erase_key  # noqa: PLC0415 - on use

    erase_key(home, key, rows or (), copy or (), conf or (), dry_run=dry_run, as_json=as_json)


@app.command(name="export-checkpoint")
def export_checkpoint(
    home: Home,
    to: Annotated[
        str, typer.Argument(help="a new directory: the checkpointLocation of Spark's query", show_default=False)
    ],
    after: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="number of the last batch that Spark's sink has; by default the newest in a list taken over",
            show_default=False,
        ),
    ] = None,
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint from which Spark's own query goes on.

    For a stopped query without operators that keep state. Queries can no longer start in its home.
    """
    from sparkjet.cli.exporting import export  # noqa: PLC0415 - on use

    export(home, to, after, conf or (), as_json=as_json)


@snapshots.command()
def pin(
    home: Home,
    name: Annotated[str, typer.Argument(help="unlike those of the query's other pins", show_default=False)],
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Keep the newest record of a query under a name.

    The query may go on meanwhile. It keeps what that record names, and every record from there on.
    """
    from sparkjet.cli.snapshots import pin_newest  # noqa: PLC0415 - on use

    pin_newest(home, name, conf or (), as_json=as_json)


@snapshots.command()
def rm(
    home: Home,
    name: Annotated[str, typer.Argument(help="of the pin", show_default=False)],
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Remove a pin.

    What only the pin has kept goes with the query's next epoch, or at its next start.
    """
    from sparkjet.cli.snapshots import remove_pin  # noqa: PLC0415 - on use

    remove_pin(home, name, conf or (), as_json=as_json)


@snapshots.command(name="list", hidden=True)
@snapshots.command(name="ls")
def list_snapshots(home: Home, conf: Settings = None, as_json: AsJson = False) -> None:
    """Show the records of a query, and its pins.

    The name list does the same.
    """
    from sparkjet.cli.snapshots import list_records  # noqa: PLC0415 - on use

    list_records(home, conf or (), as_json=as_json)


@snapshots.command()
def inspect(home: Home, conf: Settings = None, as_json: AsJson = False) -> None:
    """Show what the newest record of a query names."""
    from sparkjet.cli.snapshots import inspect_newest  # noqa: PLC0415 - on use

    inspect_newest(home, conf or (), as_json=as_json)


@snapshots.command(name="import", hidden=True)
@snapshots.command(name="export", hidden=True)
@snapshots.command()
def copy(
    home: Home,
    to: Annotated[
        str,
        typer.Argument(help="the other home, which has no records or earlier ones of the query", show_default=False),
    ],
    conf: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Copy the newest snapshot to another home.

    The query may go on meanwhile. The names export and import do the same.
    """
    from sparkjet.cli.snapshots import copy_snapshot  # noqa: PLC0415 - on use

    copy_snapshot(home, to, conf or (), as_json=as_json)


def _one_of(first: str, one: object, second: str, other: object) -> None:
    if one and other:
        raise typer.BadParameter(f"{first} and {second} exclude each other")
