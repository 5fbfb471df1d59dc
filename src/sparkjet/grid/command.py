"""``python -m sparkjet grid``: starts a member of a grid, and shows how a grid is."""

from __future__ import annotations

import argparse
import logging
import re
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.grid.cluster_state import ClusterState
from sparkjet.grid.errors import GridError, UnreachableError
from sparkjet.grid.partition_table import MOST_BACKUPS, PARTITIONS

if TYPE_CHECKING:
    from sparkjet.grid.access import Access
    from sparkjet.grid.control import Control
    from sparkjet.grid.requests import Status

PORT = 5710
_JOINS_WITHIN = 30.0
_PORTS = 4
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DESCRIPTION = "The token is read from --token-file, or from the environment as SPARKJET_GRID_TOKEN."


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options to those of the command line."""
    parser = commands.add_parser("grid", help="the in-memory grid of snapshots")
    parser.set_defaults(run=run)
    grid = parser.add_subparsers(dest="grid_command", required=True)
    start = grid.add_parser("start", help="start a member, which runs until it is stopped", description=_DESCRIPTION)
    _add_access(start)
    start.add_argument("--join", metavar="HOST:PORT,…", default="", help="members of the cluster to join")
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
    status = grid.add_parser("status", help="members, partitions, memory, what moves", description=_DESCRIPTION)
    _add_access(status)
    status.add_argument("member", nargs="?", default=f"127.0.0.1:{PORT}", help="HOST:PORT,… of some members")


def run(chosen: argparse.Namespace) -> int:
    """Run the command; returns the exit status.

    Raises:
        AnalysisError: An option is wrong.
        GridError: The grid cannot be reached.
    """
    try:
        from sparkjet.grid.access import Access  # noqa: PLC0415 - the extra is optional
    except ImportError as error:
        message = f'grid needs {error.name}: pip install "sparkjet[grid]".'
        raise AnalysisError(message) from error
    access = Access(chosen.token_file, chosen.tls_certificate, chosen.tls_key, chosen.tls_authorities)
    return _start(chosen, access) if chosen.grid_command == "start" else _status(chosen.member, access)


def size_of(text: str, option: str) -> int:
    """Bytes, from a number with or without one of Spark's units.

    >>> size_of("2g", "--max-memory")
    2147483648

    Raises:
        AnalysisError: It is no size.
    """
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        message = f'{option}: "{text}" is no size, as 512m, 8g or 1073741824 are.'
        raise AnalysisError(message)
    return int(found[1]) << _UNITS[found[2]]


def _add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--token-file", metavar="FILE", help="contains the token that all members and clients share")
    parser.add_argument("--tls-certificate", metavar="FILE", help="PEM: the certificate of this side")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM: its key")
    parser.add_argument("--tls-authorities", metavar="FILE", help="PEM: who signs the certificates of all")


def _start(chosen: argparse.Namespace, access: Access) -> int:
    from sparkjet.grid.member import MemberSettings  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.process import run as run_member  # noqa: PLC0415 - as above
    from sparkjet.grid.process import with_one_arena  # noqa: PLC0415 - as above

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("sparkjet").setLevel(logging.INFO)
    if not 0 <= chosen.backup_count <= MOST_BACKUPS:
        raise AnalysisError(f"--backup-count: {chosen.backup_count} is not from 0 to {MOST_BACKUPS}; 1 is usual.")
    if chosen.alone and chosen.join:
        raise AnalysisError("--alone: a member that joins others is not alone. Leave out --alone or --join.")
    if chosen.port not in range(65536):
        raise AnalysisError(f"--port: {chosen.port} is not from 0 to 65535.")
    settings = MemberSettings(
        size_of(chosen.max_memory, "--max-memory"), chosen.bind, chosen.port, chosen.advertise, chosen.host
    )
    access.check_bind(chosen.bind)
    access.token()
    _ports(chosen.control_ports)
    with_one_arena()
    return run_member(settings, access, _control(chosen, access))


def _control(chosen: argparse.Namespace, access: Access) -> Control:
    from sparkjet.grid.in_process_control import InProcessControl  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.zookeeper_control import ZooKeeperControl  # noqa: PLC0415 - as above
    from sparkjet.grid.zookeeper_settings import ZooKeeperSettings  # noqa: PLC0415 - as above

    if chosen.alone:
        return InProcessControl(partitions=chosen.partitions, backup_count=chosen.backup_count)
    settings = ZooKeeperSettings(
        access.token(),
        chosen.advertise or chosen.bind,
        _ports(chosen.control_ports),
        certificate=access.certificate,
        key=access.key,
        authorities=access.authorities,
    )
    contacts = _contacts(chosen.join.split(","), access) if chosen.join else []
    return ZooKeeperControl(settings, contacts, partitions=chosen.partitions, backup_count=chosen.backup_count)


def _ports(text: str) -> tuple[int, int, int, int]:
    numbers = [int(each) for each in text.split(",") if each.strip().isdecimal() and int(each) in range(65536)]
    if len(numbers) != text.count(",") + 1 or len(numbers) != _PORTS:
        raise AnalysisError(f'--control-ports: "{text}" is not four ports, as in 5711,5712,5713,5714; 0 is any.')
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
        raise AnalysisError(f"--join: {','.join(members)} is a grid of one member for ever (--alone): none can join.")
    return contacts


def _status(members: str, access: Access) -> int:
    from sparkjet.grid.client import GridClient  # noqa: PLC0415 - the extra is optional

    client = GridClient(members.split(","), access, patience=3.0)
    state = client.state()
    for line in report(state, client.status()):
        print(line)
    client.close()
    return 0


def report(state: ClusterState, found: dict[str, Status | GridError]) -> list[str]:
    """What ``grid status`` prints.

    Args:
        state: Of the cluster.
        found: Of each member how it is, or why it does not answer.
    """
    copying = sum(member not in row.replicas for row in state.rows for member in row.target)
    fewest = min((len(row.replicas) for row in state.rows), default=0)
    answers = [each for each in found.values() if not isinstance(each, GridError)]
    voters = answers[0].voters if answers else []
    counts = f"{len(state.members)} members, {state.largest} at most; {len(state.rows)} partitions"
    lines = [
        f"cluster {state.cluster}: {counts} with {state.backup_count} backups wanted",
        f"{copying} replicas are being copied; every partition has {fewest} or more",
        f"{len(voters)} voters; {_survives(fewest, len(voters))}",
    ]
    if state.lost:
        lines.append(f"partitions that have lost everything once: {_shown(sorted(state.lost))}")
    table = [("member", "address", "host", "primary of", "backup of", "copying", "entries", "memory", "")]
    for member in state.members:
        primary = sum(row.replicas[:1] == (member.id,) for row in state.rows)
        backup = sum(member.id in row.replicas[1:] for row in state.rows)
        status = found[member.id]
        told = (
            ("?", "?", "?", "does not answer" if isinstance(status, UnreachableError) else "is cut off")
            if isinstance(status, GridError)
            else (str(status.copying), str(status.entries), f"{_mb(status.used)} of {_mb(status.limit)}", "")
        )
        role = "votes" if member.id in voters else ""
        address = member.uri.partition("//")[2]
        table.append((member.id, address, member.host, str(primary), str(backup), *told[:3], told[3] or role))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return lines + ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def _survives(replicas: int, voters: int) -> str:
    by_data, by_votes = max(replicas - 1, 0), max(voters - 1, 0) // 2
    most = f"{min(by_data, by_votes)} more members may be lost at once"
    if by_votes < by_data:
        return f"{most}, if they vote: the others must be more than half of the voters"
    return f"{most}: of every partition one replica must stay"


def _mb(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB"


def _shown(partitions: Sequence[int], most: int = 20) -> str:
    return ", ".join(map(str, partitions[:most])) + (", …" if len(partitions) > most else "")
