"""Where a member cannot listen is said before it tries, by the option that is wrong."""

from __future__ import annotations

import socket

import pytest

from sparkjet_grid.access import addresses, check_free, free_port
from sparkjet_grid.errors import AnalysisError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "0.0.0.0"])  # noqa: S104 - only tried
def test_an_address_of_this_machine_is_free(host: str) -> None:
    check_free(host, 0, "--bind", "--port")


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("nonsense.invalid", '--bind: "nonsense.invalid" is not an address of a machine, nor a name of one'),
        ("a..b", '--bind: "a..b" is not an address of a machine, nor a name of one'),
        ("192.0.2.1", "--bind: this member cannot listen at 192.0.2.1, port 0: .* Name an address of this machine"),
    ],
)
def test_a_malformed_address_is_named(host: str, told: str) -> None:
    with pytest.raises(AnalysisError, match=told):
        check_free(host, 0, "--bind", "--port")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(AnalysisError, match=r"--port: .* port \d+: Address already in use\. Name another port"):
            check_free("127.0.0.1", taken.getsockname()[1], "--bind", "--port")
        assert free_port("127.0.0.1") != taken.getsockname()[1]


def test_names_have_the_addresses_behind_them() -> None:
    assert "127.0.0.1" in addresses("localhost", "--advertise")
    assert addresses("::1", "--advertise") == {"::1"}
