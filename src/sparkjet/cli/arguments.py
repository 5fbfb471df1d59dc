"""Arguments and options that several commands have, and how commands print."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet_grid.access import Access

_SETTING = "a setting of Spark's, for a location on HDFS, in an object store or a grid; may be repeated"
HOME = "a query's checkpointLocation, or its place in a grid: grid://host:port/name"

Home = Annotated[str, typer.Argument(metavar="HOME", help=HOME, show_default=False)]
Homes = Annotated[list[str] | None, typer.Argument(metavar="[HOME...]", help=HOME, show_default=False)]
Settings = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help=_SETTING, show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for failures too")]

# For grid members and their clients.
TokenFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="contains the token that all members and clients share")
]
TlsCertificate = Annotated[str | None, typer.Option(metavar="FILE", help="PEM: this side's certificate")]
TlsKey = Annotated[str | None, typer.Option(metavar="FILE", help="PEM: its key")]
TlsAuthorities = Annotated[
    str | None, typer.Option(metavar="FILE", help="PEM: the authorities that sign all certificates")
]


def show(lines: Iterable[str], told: Any, *, as_json: bool) -> None:
    """Print lines for people, or the same as JSON."""
    if as_json:
        print(json.dumps(told, indent=2))
    else:
        for line in lines:
            print(printable(line))


def printable(text: str) -> str:
    r"""A text without what a terminal obeys, or that begins another line: names and values come from the rows.

    >>> printable("é\x1b[2J")
    'é\\x1b[2J'
    """
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def access_of(
    token_file: str | None, tls_certificate: str | None, tls_key: str | None, tls_authorities: str | None
) -> Access:
    """The access to a grid that these options give.

    Raises:
        AnalysisError: The extra ``grid`` is not installed.
    """
    try:
        from sparkjet_grid.access import Access  # noqa: PLC0415 - the extra is optional
    except ImportError as error:
        raise incomplete(error) from error
    return Access(token_file, tls_certificate, tls_key, tls_authorities)


def incomplete(error: ImportError) -> AnalysisError:
    """The error of a missing package of the extra ``grid``."""
    return AnalysisError(f'grid needs {error.name}: pip install "sparkjet[grid]".')
