"""Access: secrets come from files or the environment and are never shown; without TLS nobody else can connect."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sparkjet_grid.access import TOKEN_VARIABLE, Access, create_token
from sparkjet_grid.errors import AnalysisError


def test_a_new_token_can_be_read_by_its_owner_only_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "token"
    create_token(file)
    token = Access(str(file)).token()
    assert len(token) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    create_token(file)
    assert Access(str(file)).token() == token
    assert token not in repr(Access(str(file)))


def test_the_token_is_in_the_file_or_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "of the environment")
    assert Access().token() == "of the environment"
    file = tmp_path / "token"
    file.write_text("  of the file, which wins\n")
    assert Access(str(file)).token() == "of the file, which wins"
    assert Access(str(file)).headers() == [(b"authorization", b"Bearer of the file, which wins")]


@pytest.mark.parametrize("content", ["", "short", "two\nlines of a token", "schlüssel mit umlaut"])
def test_a_malformed_token_is_refused_with_a_way_to_get_one(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(AnalysisError, match=r"--token-file: .* has no token .*openssl rand -hex 32"):
        Access(str(file)).token()


def test_a_missing_token_names_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(AnalysisError, match=rf"{TOKEN_VARIABLE} has no token .*--token-file"):
        Access().token()
    with pytest.raises(AnalysisError, match=r'--token-file: ".*missing" cannot be read: No such file'):
        Access(str(tmp_path / "missing")).token()


def test_certificate_key_and_authorities_belong_together(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="belong together"):
        Access(certificate="a.pem", key="a.key")
    with pytest.raises(AnalysisError, match=r"--tls-authorities: .* cannot be read"):
        Access(None, "a.pem", "a.key", str(tmp_path / "missing")).client_options()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])  # noqa: S104 - is refused
def test_without_tls_nobody_else_can_connect(host: str) -> None:
    with pytest.raises(AnalysisError, match=r"--bind: .* can be reached from other machines"):
        Access().check_bind(host)
    Access(None, "a.pem", "a.key", "ca.pem").check_bind(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    Access().check_bind(host)


def test_addresses_say_whether_they_are_encrypted() -> None:
    assert Access().uri("127.0.0.1", 5710) == "grpc://127.0.0.1:5710"
    assert Access(None, "a", "b", "c").uri("::1", 5710) == "grpc+tls://[::1]:5710"
