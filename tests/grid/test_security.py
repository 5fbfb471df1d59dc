"""Bytes of strangers and forgers at a member's port: none are executed, and the member goes on."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparkjet_grid.access import Access, create_token
from sparkjet_grid.client import GridClient
from sparkjet_grid.connections import Connections, refusals
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import AnalysisError, ForbiddenError, MalformedError, MovedError, UnreachableError
from sparkjet_grid.member import Member, MemberSettings
from sparkjet_grid.messages import ERRORS, REQUESTS, Get, Part, Ping, Put, encoded
from tests.grid.batches import FILE, ROWS, file_of, rows_of
from tests.grid.certificates import Authority
from tests.grid.grids import Grid, grid_of

CRAFTED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PICKLE = b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x06exit 1\x85R."


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid"), 1) as grid:
        yield grid


@pytest.fixture(scope="module")
def client(grid: Grid) -> Any:
    return fl.FlightClient(grid.members[0].address.uri)


def answers(grid: Grid) -> bool:
    """Whether the member is there, with all that it held."""
    connections = Connections(grid.access)
    member = grid.members[0]
    found = connections.ask(member.address.uri, Ping(), str) == member.id
    connections.close()
    return found and member.entries.used == sum(content.size for _, content in member.entries.listed())


def calls(client: Any, options: Any) -> list[Callable[[], object]]:
    """One call of each kind that Flight has."""

    def put() -> object:
        writer, reader = client.do_put(fl.FlightDescriptor.for_command(encoded(Put("", 9.0))), ROWS, options)
        with writer:
            writer.write_with_metadata(rows_of(1), pa.py_buffer(encoded(Part(0, "stranger", 1))))
            writer.done_writing()
            return reader.read()

    def exchange() -> object:
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b""), options)
        with writer:
            writer.done_writing()
            return reader.read_all()

    return [
        put,
        exchange,
        lambda: client.do_get(fl.Ticket(encoded(Get([Key(0, "a")]))), options).read_all(),
        lambda: list(client.do_action(fl.Action("Ping", encoded(Ping())), options)),
        lambda: list(client.list_actions(options)),
        lambda: list(client.list_flights(options=options)),
        lambda: client.get_flight_info(fl.FlightDescriptor.for_command(b""), options),
        lambda: client.get_schema(fl.FlightDescriptor.for_command(b""), options),
    ]


WRONG = [[], [(b"authorization", b"Bearer wrong")], [(b"authorization", b"")], [(b"authorization", b"Basic eDp5")]]


@pytest.mark.parametrize("headers", WRONG, ids=["none", "wrong", "empty", "basic"])
def test_no_call_does_anything_without_the_token(grid: Grid, client: Any, headers: list[tuple[bytes, bytes]]) -> None:
    for call in calls(client, fl.FlightCallOptions(10, headers=headers)):
        # Of get_schema pyarrow makes an OSError.
        with pytest.raises((fl.FlightUnauthenticatedError, OSError), match="the token is missing or wrong"):
            call()
    assert grid.members[0].entries.get(Key(0, "stranger")) is None


def test_a_token_sent_twice_or_changed_in_one_letter_is_wrong(grid: Grid, client: Any) -> None:
    [(name, value)] = grid.access.headers()
    for headers in ([(name, value), (name, b"x")], [(name, value[:-1])], [(name, value + b"0")]):
        with pytest.raises(fl.FlightUnauthenticatedError):
            list(client.do_action(fl.Action("Ping", b"\x90"), fl.FlightCallOptions(10, headers=headers)))


def test_a_client_with_another_token_is_told_so(grid: Grid, tmp_path: Path) -> None:
    create_token(tmp_path / "other")
    stranger = GridClient([grid.members[0].address.uri.partition("//")[2]], Access(str(tmp_path / "other")))
    with pytest.raises(ForbiddenError, match="refuses the token"):
        stranger.state()


def put(grid: Grid, command: bytes, batch: pa.RecordBatch, metadata: bytes) -> None:
    """Put one batch, with whatever bytes."""
    connections = Connections(grid.access)
    uri = grid.members[0].address.uri
    try:
        with refusals(uri):
            descriptor = fl.FlightDescriptor.for_command(command)
            writer, reader = connections.to(uri).do_put(descriptor, batch.schema, connections.options())
            with writer:
                writer.write_with_metadata(batch, pa.py_buffer(metadata))
                writer.done_writing()
                reader.read()
    finally:
        connections.close()


OPERATED = {"Reform"}
"""Requests of an operator, who has the token: well-formed ones do what they say."""


@CRAFTED
@given(st.sampled_from([*sorted(REQUESTS.keys() - OPERATED), "Shutdown", ""]), st.binary(max_size=300))
@example("PutSlot", PICKLE)
@example("GetState", b"\x91" * 100_000)
@example("Remove", b"\x92\xdd\xff\xff\xff\xff")
def test_crafted_requests_are_refused_or_answered(grid: Grid, name: str, content: bytes) -> None:
    connections = Connections(grid.access)
    uri = grid.members[0].address.uri
    # Whatever it answers, it does answer.
    with suppress(*ERRORS.values()), refusals(uri):
        list(connections.to(uri).do_action(fl.Action(name, content), connections.options()))
    connections.close()
    assert answers(grid)


@CRAFTED
@given(st.binary(max_size=100), st.binary(max_size=100))
@example(PICKLE, PICKLE)
@example(encoded(Put("", 9.0)), PICKLE)
@example(encoded(Put("", 9.0)), encoded(Part(11, "a", 1_000_000)))
@example(encoded(Put("", 9.0)), encoded(Part(12, "a", 1)))
@example(encoded(Put("stranger", 9.0)), encoded(Part(1, "a", 1)))
def test_crafted_puts_are_refused(grid: Grid, command: bytes, metadata: bytes) -> None:
    with pytest.raises((MalformedError, MovedError)):
        put(grid, command, rows_of(1), metadata)
    assert answers(grid)


@CRAFTED
@given(st.binary(max_size=100))
@example(PICKLE)
def test_crafted_gets_are_refused(grid: Grid, ticket: bytes) -> None:
    connections = Connections(grid.access)
    uri = grid.members[0].address.uri
    with pytest.raises(MalformedError), refusals(uri):
        connections.to(uri).do_get(fl.Ticket(ticket), connections.options()).read_all()
    connections.close()
    assert answers(grid)


def test_a_batch_whose_offsets_lead_elsewhere_is_refused(grid: Grid) -> None:
    whole = file_of(bytes(77_777))
    before, _, after = whole.serialize().to_pybytes().rpartition((77_777).to_bytes(4, "little"))
    forged = pa.ipc.read_record_batch(pa.py_buffer(before + (99_999).to_bytes(4, "little") + after), FILE)
    with pytest.raises(MalformedError, match="not valid"):
        put(grid, encoded(Put("", 9.0)), forged, encoded(Part(0, "forged", 1)))
    assert answers(grid)
    assert grid.members[0].entries.get(Key(0, "forged")) is None


def port_of(member: Member) -> int:
    return int(member.address.uri.rpartition(":")[2])


HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@CRAFTED
@given(st.binary(max_size=500), st.booleans())
@example(b"GET / HTTP/1.1\r\n\r\n", False)
@example(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\xff\xff\xff\x00\x01\x00\x00\x00\x01" * 20, True)
@example(PICKLE, False)
def test_bytes_that_are_not_flight_do_not_end_a_member(grid: Grid, content: bytes, is_http2: bool) -> None:
    with socket.create_connection(("127.0.0.1", port_of(grid.members[0])), 5) as connection:
        connection.sendall((HTTP2 if is_http2 else b"") + content)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(5)
        try:
            while connection.recv(65536):
                pass
        except OSError:
            # It has hung up, as it should.
            pass
    assert answers(grid)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "authority")


@pytest.fixture(scope="module")
def encrypted(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    certificate, key = authority.signed("member")
    folder = tmp_path_factory.mktemp("encrypted")
    access = Access(str(folder / "token"), str(certificate), str(key), str(authority.certificate))
    with grid_of(folder, 2, access=access) as grid:
        yield grid


def test_members_and_clients_with_certificates_work_over_tls(encrypted: Grid) -> None:
    assert encrypted.members[0].address.uri.startswith("grpc+tls://127.0.0.1:")
    client = encrypted.client()
    manifest = client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(20)])
    assert client.unheld(manifest) == {}
    assert {entry.key for entry in client.get(manifest)} == {held.key for held in manifest}
    assert client.put_slot("log/1", b"token", manifest)


def refused(grid: Grid, access: Access) -> None:
    stranger = GridClient([grid.members[0].address.uri.partition("//")[2]], access, patience=1.0)
    with pytest.raises(UnreachableError):
        stranger.state()
    stranger.close()


def test_a_stranger_without_a_certificate_of_the_authority_is_refused(
    encrypted: Grid, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    certificate, key = other.signed("stranger")
    trusted = str(authority.certificate)
    # With the right token, and a certificate of somebody else.
    refused(encrypted, replace(encrypted.access, certificate=str(certificate), key=str(key)))
    # One that does not trust the member, and one that does not encrypt.
    refused(encrypted, replace(encrypted.access, authorities=str(other.certificate)))
    refused(encrypted, Access(encrypted.access.token_file))
    context = ssl.create_default_context(cafile=trusted)
    context.set_alpn_protocols(["h2"])
    with pytest.raises(OSError, match=r"certificate required|reset|alert|EOF|closed"):
        converse(context, port_of(encrypted.members[0]))
    assert answers(encrypted)


def converse(context: ssl.SSLContext, port: int) -> None:
    """Speak over TLS as far as the other side does."""
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        # TLS 1.3 tells a client without a certificate so with the first thing that it reads.
        secured.sendall(HTTP2)
        while secured.recv(65536):
            pass
        raise ConnectionResetError("closed")


@CRAFTED
@given(st.binary(max_size=500))
def test_bytes_that_are_not_tls_do_not_end_a_member(encrypted: Grid, content: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port_of(encrypted.members[0])), 5) as connection:
        connection.sendall(content)
    assert answers(encrypted)


def test_a_member_that_others_could_reach_does_not_start_without_tls(grid: Grid) -> None:
    everywhere = MemberSettings(1 << 20, bind="0.0.0.0")  # noqa: S104 - is refused
    with pytest.raises(AnalysisError, match="--bind"):
        Member(everywhere, grid.access, grid.controls[grid.members[0].id])


def test_errors_and_settings_do_not_show_the_token(grid: Grid) -> None:
    token = grid.access.token()
    assert token not in repr(grid.access)
    with pytest.raises(AnalysisError) as wrong:
        GridClient(["nonsense"], grid.access)
    assert token not in str(wrong.value)
    with pytest.raises(UnreachableError) as away:
        GridClient(["127.0.0.1:1"], grid.access, patience=0.1).state()
    assert token not in str(away.value)
