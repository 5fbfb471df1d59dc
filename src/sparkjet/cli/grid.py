"""``grid``: starts a member, shows the state of a grid, and re-forms one that has lost its majority."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkjet.cli import grid_journals, grid_maps
from sparkjet.cli.arguments import (
    AsJson,
    TlsAuthorities,
    TlsCertificate,
    TlsKey,
    TokenFile,
    access_of,
    incomplete,
    show,
)
from sparkjet.errors import AnalysisError, SparkjetError
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from sparkjet_grid.access import Access
    from sparkjet_grid.client import GridClient
    from sparkjet_grid.control import Control

PORT = 5710
NOT_ALL_ANSWER = 3
"""Exit status of ``status`` if the grid is frozen, or a member does not answer."""
_ADDRESS = "HOST:PORT"
_JOINS_WITHIN = 30.0
_PORTS = 4
_LONGEST = 7 * 24 * 3600
_ACCESS = "The token is read from --token-file, or from SPARKJET_GRID_TOKEN in the environment."


app = typer.Typer(help="The in-memory grid of snapshots.", rich_markup_mode=None)
app.add_typer(grid_maps.app, name="map")
app.add_typer(grid_journals.app, name="journal")

_Members = Annotated[
    str, typer.Argument(metavar=f"[{_ADDRESS},...]", help="addresses of members of one grid, as HOST:PORT,…")
]


@app.command(help=f"Start a member, which runs until it is stopped. {_ACCESS}")
def start(
    join: Annotated[str | None, typer.Option(metavar="HOST:PORT,…", help="members of the cluster to join")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="a grid of one member forever: no other can join")] = False,
    bind: Annotated[str, typer.Option(help="address to listen on; wider than loopback only with TLS")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0 for any that is free")] = PORT,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="name or address under which others reach it (--bind)")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="name of the machine, if not its own; replicas of a partition are on different machines"),
    ] = None,
    control_ports: Annotated[
        str,
        typer.Option(
            metavar="A,B,C,D",
            help="ports of the control plane: for clients, the quorum, elections, and loopback alone; by default free "
            "ones",
        ),
    ] = "0,0,0,0",
    max_memory: Annotated[str, typer.Option(help="memory for entries, such as 512m or 8g")] = "1g",
    backup_count: Annotated[int, typer.Option(help="backups of a new cluster")] = 1,
    partitions: Annotated[int | None, typer.Option(help="of a new cluster (271)")] = None,
    leave_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="how long it waits, when it is stopped, while it holds data that no other member has",
        ),
    ] = 3600.0,
    jars: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="that of ZooKeeper's jars, if not the installed PySpark's")
    ] = None,
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
) -> int:
    """Start a member."""
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    from sparkjet_grid.member import MemberSettings  # noqa: PLC0415 - the extra is optional
    from sparkjet_grid.partition_table import MOST_BACKUPS, MOST_PARTITIONS, PARTITIONS  # noqa: PLC0415 - as above
    from sparkjet_grid.process import run as run_member  # noqa: PLC0415 - as above
    from sparkjet_grid.process import with_one_arena  # noqa: PLC0415 - as above
    from sparkjet_grid.sizes import size_of  # noqa: PLC0415 - as above

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logger.setLevel(logging.INFO)
    if not 0 <= backup_count <= MOST_BACKUPS:
        raise AnalysisError(f"--backup-count: {backup_count} is not from 0 to {MOST_BACKUPS}; 1 is usual.")
    if alone and join is not None:
        raise AnalysisError("--alone: a member that joins others is not alone. Leave out --alone or --join.")
    partitions = PARTITIONS if partitions is None else partitions
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise AnalysisError(f"--partitions: {partitions} is not from 1 to {MOST_PARTITIONS}; {PARTITIONS} is usual.")
    if not 0 <= leave_timeout <= _LONGEST:
        raise AnalysisError(f"--leave-timeout: {leave_timeout:g} is not from 0 to {_LONGEST} seconds.")
    if port not in range(65536):
        raise AnalysisError(f"--port: {port} is not from 0 to 65535.")
    size, name = size_of(max_memory, "--max-memory"), host or socket.gethostname()
    settings = MemberSettings(size, bind, port, advertise, name, leave_timeout=leave_timeout)
    access.token()
    _check_addresses(bind, port, advertise, access, alone=alone)
    ports = _ports(control_ports)
    if join is not None:
        # Also an empty one, as from an unset variable: it would found another grid.
        with _named("--join"):
            for address in join.split(","):
                access.uri_of(address)
    with_one_arena()
    if alone:
        from sparkjet_grid.in_process_control import InProcessControl  # noqa: PLC0415 - the extra is optional

        control: Control = InProcessControl(partitions=partitions, backup_count=backup_count)
    else:
        control = _joining(advertise or bind, ports, join, access, jars, (partitions, backup_count))
    return run_member(settings, access, control)


@app.command(
    help="Show members, partitions, memory, what moves, maps and journals. The exit status is "
    f"{NOT_ALL_ANSWER} if the grid is frozen or a member does not answer. {_ACCESS}"
)
def status(
    member: _Members = f"127.0.0.1:{PORT}",
    embedded: Annotated[
        bool,
        typer.Option("--embedded", help="the member of this machine that drivers start for snapshotStore=grid"),
    ] = False,
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: AsJson = False,
) -> int:
    """Show the state of a grid."""
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    from sparkjet.cli.grid_report import report  # noqa: PLC0415 - the extra is optional
    from sparkjet_grid.client import GridClient  # noqa: PLC0415 - as above
    from sparkjet_grid.status import answers_of, described  # noqa: PLC0415 - as above

    process, members, access = _member(member, access, embedded=embedded)
    with _named(_ADDRESS):
        client = GridClient(members.split(","), access, patience=3.0)
        found = client.status()
    told, lines = described(found), report(found)
    if process is not None:
        told["process"] = process
        lines.insert(0, f"process {process}: kill {process} ends it, with all that it holds")
    if answers_of(found):
        lines += _places(client, told)
    client.close()
    show(lines, told, as_json=as_json)
    return 0 if len(answers_of(found)) == len(found) else NOT_ALL_ANSWER


@app.command(name="reform", help=f"Let members go on that have lost their majority. {_ACCESS}")
def reform_grid(
    member: Annotated[list[str], typer.Argument(metavar=f"{_ADDRESS}...", help="of each member that is left")],
    others_are_dead: Annotated[
        bool,
        typer.Option(
            "--others-are-dead",
            help="the others will not come back: they would go on as another grid, with what is decided here unknown "
            "to them",
        ),
    ] = False,
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: AsJson = False,
) -> None:
    """Re-form a grid."""
    if not others_are_dead:
        raise typer.BadParameter("Give --others-are-dead: members that come back would go on as another grid")
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    from sparkjet.cli.grid_operations import reform  # noqa: PLC0415 - the extra is optional

    access.token()
    with _named(_ADDRESS):
        state, gone = reform(member, access)
    lines = [f"cluster {state.cluster} goes on with {len(state.members)} members, without {len(gone)} that were there"]
    if state.lost:
        lines.append(
            f"{len(state.lost)} partitions have lost everything: queries say at their start whether they need it"
        )
    told = {"cluster": state.cluster, "members": len(state.members), "gone": len(gone), "lost": sorted(state.lost)}
    show(lines, told, as_json=as_json)


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Name the option that an error comes from."""
    try:
        yield
    except SparkjetError as error:
        raise type(error)(f"{option}: {error}") from error


def _check_addresses(bind: str, port: int, advertise: str | None, access: Access, *, alone: bool) -> None:
    """Refuse what nobody could connect to: a server that cannot listen does not say why, or waits for a minute."""
    from sparkjet_grid.access import addresses, check_free  # noqa: PLC0415 - the extra is optional

    here = addresses(bind, "--bind")
    access.check_bind(bind)
    check_free(bind, port, "--bind", "--port")
    if advertise is None:
        if here & {"0.0.0.0", "::"}:  # noqa: S104 - is refused
            raise AnalysisError(f"--advertise is missing: nobody reaches a member at {bind}. Name this machine.")
        return
    there = addresses(advertise, "--advertise")
    if not access.is_encrypted and not here & there:
        message = (
            f"--advertise: {advertise} is not where the member listens (--bind {bind}), and it listens "
            "on this machine alone without --tls-certificate, --tls-key and --tls-authorities. Add them, or leave out "
            "--advertise."
        )
        raise AnalysisError(message)
    if not alone:
        # The control plane listens at this address itself.
        check_free(advertise, 0, "--advertise", "--advertise")


def _joining(
    address: str,
    ports: tuple[int, int, int, int],
    join: str | None,
    access: Access,
    jars: str | None,
    new: tuple[int, int],
) -> Control:
    try:
        from sparkjet_grid.zookeeper_control import ZooKeeperControl  # noqa: PLC0415 - the extra is optional
        from sparkjet_grid.zookeeper_settings import ZooKeeperSettings  # noqa: PLC0415 - as above
    except ImportError as error:
        raise incomplete(error) from error
    with _named("--advertise"):
        settings = ZooKeeperSettings(
            access.token(),
            address,
            ports,
            certificate=access.certificate,
            key=access.key,
            authorities=access.authorities,
            jars=jars,
        )
    with _named("--join"):
        contacts = _contacts(join.split(","), access) if join else []
    partitions, backup_count = new
    return ZooKeeperControl(settings, contacts, partitions=partitions, backup_count=backup_count)


def _ports(text: str) -> tuple[int, int, int, int]:
    numbers = [int(each) for each in text.split(",") if each.strip().isdecimal() and int(each) in range(65536)]
    if len(numbers) != text.count(",") + 1 or len(numbers) != _PORTS:
        raise AnalysisError(f'--control-ports: "{text}" is not four ports, as in 5711,5712,5713,5714; 0 is any.')
    if len({number for number in numbers if number}) < sum(map(bool, numbers)):
        raise AnalysisError(f'--control-ports: "{text}" names a port twice; each listens on its own.')
    first, second, third, fourth = numbers
    return first, second, third, fourth


def _contacts(members: Sequence[str], access: Access) -> list[str]:
    from sparkjet_grid.client import GridClient  # noqa: PLC0415 - the extra is optional

    client = GridClient(members, access, patience=_JOINS_WITHIN)
    try:
        contacts = client.contacts()
    finally:
        client.close()
    if not contacts:
        raise AnalysisError(f"{','.join(members)} is a grid of one member forever (--alone): no other can join.")
    return contacts


def _places(client: GridClient, told: dict[str, Any]) -> list[str]:
    """Lines about the maps and journals of a grid, which are also added to its JSON."""
    from sparkjet_grid.errors import GridError  # noqa: PLC0415 - the extra is optional

    try:
        maps, journals = [*grid_maps.summaries(client)], [*grid_journals.summaries(client)]
    except GridError as error:
        # If the majority is gone, say: what was said of the members stays true.
        told["maps"] = told["journals"] = {"error": {"condition": error.condition, "message": str(error)}}
        return [f"maps and journals: {error}"]
    told["maps"], told["journals"] = maps, journals
    lines = [
        f"map {each['map']}: epochs {each['oldest']} to {each['epoch']}, {each['rows']} rows at most, "
        f"{each['entries']} entries, {each['bytes']} bytes, readers that hold an epoch: "
        f"{each['readers']}, up to {each['behind']} epochs behind"
        for each in maps
    ]
    for each in journals:
        readers = [f"{name} ({lag} rows behind)" for name, lag in each["readers"].items()]
        lines.append(
            f"journal {each['journal']}: epochs {each['oldest']} to {each['epoch']}, {each['rows']} rows in "
            f"{each['partitions']} partitions, {each['entries']} entries, {each['bytes']} bytes, "
            f"readers: {', '.join(readers) or 'none'}"
        )
    return lines


def _member(member: str, access: Access, *, embedded: bool) -> tuple[int | None, str, Access]:
    """The process of the embedded member, where its grid is, and the access to it."""
    from sparkjet_grid.embedded import embedded_directory, running_member  # noqa: PLC0415 - the extra is optional

    if not embedded:
        access.token()
        return None, member, access
    found = running_member(embedded_directory())
    if found is None:
        raise AnalysisError("--embedded: no member runs that a driver of this user has started on this machine.")
    return found.process, found.address, found.access
