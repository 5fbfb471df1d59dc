"""``grid``: starts a member of a grid, shows how a grid is, and forms one anew that has lost its majority."""

from __future__ import annotations

import argparse
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkjet.cli import grid_journals, grid_maps
from sparkjet.errors import AnalysisError, SparkjetError
from sparkjet.grid.partition_table import MOST_BACKUPS, MOST_PARTITIONS, PARTITIONS
from sparkjet.grid.sizes import size_of

if TYPE_CHECKING:
    from sparkjet.grid.access import Access
    from sparkjet.grid.client import GridClient
    from sparkjet.grid.control import Control

PORT = 5710
NOT_ALL_ANSWER = 3
"""Exit status of ``status`` where it shows a grid that is frozen, or of which a member does not answer."""
_ADDRESS = "HOST:PORT"
_JOINS_WITHIN = 30.0
_PORTS = 4
_LONGEST = 7 * 24 * 3600
_DESCRIPTION = "The token is read from --token-file, or from the environment as SPARKJET_GRID_TOKEN."


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options to those of the command line."""
    parser = commands.add_parser("grid", help="the in-memory grid of snapshots")
    parser.set_defaults(run=run)
    grid = parser.add_subparsers(dest="grid_command", required=True)
    start = grid.add_parser("start", help="start a member, which runs until it is stopped", description=_DESCRIPTION)
    _add_access(start)
    start.add_argument("--join", metavar="HOST:PORT,…", help="members of the cluster to join")
    start.add_argument("--alone", action="store_true", help="a grid of one member for ever: no other can join")
    start.add_argument("--bind", default="127.0.0.1", help="address to listen on; wider than loopback only with TLS")
    start.add_argument("--port", type=int, default=PORT, help=f"port to listen on ({PORT}); 0 for any that is free")
    start.add_argument("--advertise", metavar="HOST", help="name or address under which others reach it (--bind)")
    start.add_argument("--host", default=socket.gethostname(), help="name of the machine; replicas are on several")
    ports = "ports of the control plane: for clients, the quorum, elections, and loopback alone; by default free ones"
    start.add_argument("--control-ports", metavar="A,B,C,D", default="0,0,0,0", help=ports)
    start.add_argument("--max-memory", default="1g", help="what entries may take, such as 512m or 8g (1g)")
    start.add_argument("--backup-count", type=int, default=1, help=f"backups of a new cluster, 0 to {MOST_BACKUPS} (1)")
    start.add_argument("--partitions", type=int, default=PARTITIONS, help=f"of a new cluster ({PARTITIONS})")
    leaves = "seconds for which it waits, when it is stopped, while nobody else has what would go with it (3600)"
    start.add_argument("--leave-timeout", type=float, metavar="SECONDS", default=3600.0, help=leaves)
    shows = f"{_DESCRIPTION} The exit status is {NOT_ALL_ANSWER} if the grid is frozen or a member does not answer."
    status = grid.add_parser("status", help="members, partitions, memory, what moves", description=shows)
    _add_access(status)
    _add_member(status)
    grid_maps.add_to(grid, _add_access)
    grid_journals.add_to(grid, _add_access)
    reform = grid.add_parser("reform", help="let members go on that have lost their majority", description=_DESCRIPTION)
    _add_access(reform)
    reform.add_argument("member", metavar=_ADDRESS, nargs="+", help="of each member that is left")
    dead = "the others will not come back: they would go on as another grid, with what is decided here unknown to them"
    reform.add_argument("--others-are-dead", action="store_true", required=True, help=dead)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; returns the exit status.

    Raises:
        AnalysisError: An option is wrong.
        GridError: The grid cannot be reached.
    """
    try:
        from sparkjet.grid.access import Access  # noqa: PLC0415 - the extra is optional
    except ImportError as error:
        raise _incomplete(error) from error
    access = Access(chosen.token_file, chosen.tls_certificate, chosen.tls_key, chosen.tls_authorities)
    commands: dict[str, Callable[[argparse.Namespace, Access], int | None]] = {
        "start": _start,
        "status": _status,
        "reform": _reform,
        "map": grid_maps.run,
        "journal": grid_journals.run,
    }
    return commands[chosen.grid_command](chosen, access) or 0


def _incomplete(error: ImportError) -> AnalysisError:
    return AnalysisError(f'grid needs {error.name}: pip install "sparkjet[grid]".')


def _add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--token-file", metavar="FILE", help="contains the token that all members and clients share")
    parser.add_argument("--tls-certificate", metavar="FILE", help="PEM: the certificate of this side")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM: its key")
    parser.add_argument("--tls-authorities", metavar="FILE", help="PEM: who signs the certificates of all")


def _add_member(parser: argparse.ArgumentParser) -> None:
    told = f"of some members of one grid, as HOST:PORT,… (127.0.0.1:{PORT})"
    parser.add_argument("member", metavar=f"{_ADDRESS},…", nargs="?", default=f"127.0.0.1:{PORT}", help=told)
    embedded = "the member of this machine that drivers start for snapshotStore=grid"
    parser.add_argument("--embedded", action="store_true", help=embedded)


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Says of which option an error comes."""
    try:
        yield
    except SparkjetError as error:
        message = f"{option}: {error}"
        raise type(error)(message) from error


def _start(chosen: argparse.Namespace, access: Access) -> int:
    from sparkjet.grid.member import MemberSettings  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.process import run as run_member  # noqa: PLC0415 - as above
    from sparkjet.grid.process import with_one_arena  # noqa: PLC0415 - as above

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("sparkjet").setLevel(logging.INFO)
    if not 0 <= chosen.backup_count <= MOST_BACKUPS:
        raise AnalysisError(f"--backup-count: {chosen.backup_count} is not from 0 to {MOST_BACKUPS}; 1 is usual.")
    if chosen.alone and chosen.join is not None:
        raise AnalysisError("--alone: a member that joins others is not alone. Leave out --alone or --join.")
    if not 1 <= chosen.partitions <= MOST_PARTITIONS:
        raise AnalysisError(
            f"--partitions: {chosen.partitions} is not from 1 to {MOST_PARTITIONS}; {PARTITIONS} is usual."
        )
    if not 0 <= chosen.leave_timeout <= _LONGEST:
        raise AnalysisError(f"--leave-timeout: {chosen.leave_timeout:g} is not from 0 to {_LONGEST} seconds.")
    if chosen.port not in range(65536):
        raise AnalysisError(f"--port: {chosen.port} is not from 0 to 65535.")
    settings = MemberSettings(
        size_of(chosen.max_memory, "--max-memory"),
        chosen.bind,
        chosen.port,
        chosen.advertise,
        chosen.host,
        leave_timeout=chosen.leave_timeout,
    )
    access.token()
    _check_addresses(chosen, access)
    _ports(chosen.control_ports)
    if chosen.join is not None:
        # Also an empty one, as of a variable that is not set: it would found another grid.
        with _named("--join"):
            for address in chosen.join.split(","):
                access.uri_of(address)
    with_one_arena()
    return run_member(settings, access, _control(chosen, access))


def _check_addresses(chosen: argparse.Namespace, access: Access) -> None:
    """Refuse what nobody could connect to: a server that cannot listen does not say why, or waits for a minute."""
    from sparkjet.grid.listening import addresses, check_free  # noqa: PLC0415 - the extra is optional

    here = addresses(chosen.bind, "--bind")
    access.check_bind(chosen.bind)
    check_free(chosen.bind, chosen.port, "--bind", "--port")
    if chosen.advertise is None:
        if here & {"0.0.0.0", "::"}:  # noqa: S104 - is refused
            message = f"--advertise is missing: nobody reaches a member at {chosen.bind}. Name this machine."
            raise AnalysisError(message)
        return
    there = addresses(chosen.advertise, "--advertise")
    if not access.is_encrypted and not here & there:
        message = (
            f"--advertise: {chosen.advertise} is not where the member listens (--bind {chosen.bind}), and it listens "
            "on this machine alone without --tls-certificate, --tls-key and --tls-authorities. Add them, or leave out "
            "--advertise."
        )
        raise AnalysisError(message)
    if not chosen.alone:
        # The control plane listens at this address itself.
        check_free(chosen.advertise, 0, "--advertise", "--advertise")


def _control(chosen: argparse.Namespace, access: Access) -> Control:
    from sparkjet.grid.in_process_control import InProcessControl  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.zookeeper_settings import ZooKeeperSettings  # noqa: PLC0415 - as above

    if chosen.alone:
        return InProcessControl(partitions=chosen.partitions, backup_count=chosen.backup_count)
    try:
        from sparkjet.grid.zookeeper_control import ZooKeeperControl  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _incomplete(error) from error
    with _named("--advertise"):
        settings = ZooKeeperSettings(
            access.token(),
            chosen.advertise or chosen.bind,
            _ports(chosen.control_ports),
            certificate=access.certificate,
            key=access.key,
            authorities=access.authorities,
        )
    with _named("--join"):
        contacts = _contacts(chosen.join.split(","), access) if chosen.join else []
    return ZooKeeperControl(settings, contacts, partitions=chosen.partitions, backup_count=chosen.backup_count)


def _ports(text: str) -> tuple[int, int, int, int]:
    numbers = [int(each) for each in text.split(",") if each.strip().isdecimal() and int(each) in range(65536)]
    if len(numbers) != text.count(",") + 1 or len(numbers) != _PORTS:
        raise AnalysisError(f'--control-ports: "{text}" is not four ports, as in 5711,5712,5713,5714; 0 is any.')
    if len({number for number in numbers if number}) < sum(map(bool, numbers)):
        raise AnalysisError(f'--control-ports: "{text}" names a port twice; each listens on one of its own.')
    first, second, third, fourth = numbers
    return first, second, third, fourth


def _contacts(members: Sequence[str], access: Access) -> list[str]:
    from sparkjet.grid.client import GridClient  # noqa: PLC0415 - the extra is optional

    client = GridClient(members, access, patience=_JOINS_WITHIN)
    try:
        contacts = client.contacts()
    finally:
        client.close()
    if not contacts:
        raise AnalysisError(f"{','.join(members)} is a grid of one member for ever (--alone): none can join.")
    return contacts


def _status(chosen: argparse.Namespace, access: Access) -> int:
    from sparkjet.cli.grid_report import answers_of, report  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.client import GridClient  # noqa: PLC0415 - as above

    members, access = _member(chosen, access)
    with _named(_ADDRESS):
        client = GridClient(members.split(","), access, patience=3.0)
        found = client.status()
    for line in report(found):
        print(line)
    if answers_of(found):
        _show_places(client)
    client.close()
    return 0 if len(answers_of(found)) == len(found) else NOT_ALL_ANSWER


def _show_places(client: GridClient) -> None:
    """Show maps and journals."""
    from sparkjet.grid.errors import GridError  # noqa: PLC0415 - the extra is optional

    try:
        maps, journals = [*grid_maps.summaries(client)], [*grid_journals.summaries(client)]
    except GridError as error:
        # As where the majority is gone: what was said of the members stays true.
        print(f"maps and journals: {error}")
        return
    for each in maps:
        print(
            f"map {each['map']}: epochs {each['oldest']} to {each['epoch']}, {each['rows']} rows at most, "
            f"{each['entries']} entries, {each['bytes']} bytes, {each['readers']} readers hold epochs"
        )
    for each in journals:
        readers = [f"{name} ({lag} rows behind)" for name, lag in each["readers"].items()]
        print(
            f"journal {each['journal']}: epochs {each['oldest']} to {each['epoch']}, {each['rows']} rows in "
            f"{each['partitions']} partitions, {each['entries']} entries, {each['bytes']} bytes, "
            f"readers: {', '.join(readers) or 'none'}"
        )


def _reform(chosen: argparse.Namespace, access: Access) -> None:
    from sparkjet.cli.grid_operations import reform  # noqa: PLC0415 - the extra is optional

    access.token()
    with _named(_ADDRESS):
        state, gone = reform(chosen.member, access)
    print(f"cluster {state.cluster} goes on with {len(state.members)} members, without {len(gone)} that were there")
    if state.lost:
        print(f"{len(state.lost)} partitions have lost everything: queries say at their start whether they need it")


def _member(chosen: argparse.Namespace, access: Access) -> tuple[str, Access]:
    from sparkjet.grid.embedded import embedded_directory, running_member  # noqa: PLC0415 - the extra is optional

    if not chosen.embedded:
        access.token()
        return chosen.member, access
    found = running_member(embedded_directory())
    if found is None:
        raise AnalysisError("--embedded: no member runs that a driver of this user has started on this machine.")
    print(f"process {found.process}: kill {found.process} ends it, with all that it holds")
    return found.address, found.access
