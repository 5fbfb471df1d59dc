"""Refusals of Kernel: a table that another process creates at the same time is taken; others are errors that say so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from sparkjet.connectors.delta import kernel, log_committer
from sparkjet.connectors.delta.kernel import DeltaTable, Version
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.storage.posix_directory import PosixDirectory


class RefusedError(PySparkException):
    """An exception of Kernel's."""

    def __init__(self, name: str) -> None:
        super().__init__("refused")
        of = SimpleNamespace(getName=lambda: f"io.delta.kernel.exceptions.{name}")
        self.java_exception = SimpleNamespace(getClass=lambda: of, getMessage=lambda: "refused")


class Building:
    """A transaction that creates a table, which Kernel does not begin."""

    def __init__(self, refused: str) -> None:
        self._refused = refused

    def withCommitter(self, _: object) -> Building:
        return self

    def build(self, _: object) -> NoReturn:
        raise RefusedError(self._refused)


def table(place: Path, patched: pytest.MonkeyPatch, refused: str) -> DeltaTable:
    patched.setattr(log_committer, "ensure_callback_server_started", lambda _: None)
    patched.setattr(kernel, "static_method", lambda *_: lambda *_: None)
    session = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None))
    made = DeltaTable(cast("Any", session), PosixDirectory(place))
    for name, answer in {"_enter": None, "_engine": None, "_creation": Building(refused)}.items():
        patched.setattr(made, name, lambda *_, answer=answer: answer)
    return made


def test_a_table_that_is_there_by_now_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = table(tmp_path, monkeypatch, "TableAlreadyExistsException")
    there.try_to_create(StructType(), "test")
    there.create(StructType(), (), "test")


def test_one_that_kernel_refuses_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = table(tmp_path, monkeypatch, "KernelException")
    with pytest.raises(AnalysisError, match="refused"):
        refused.try_to_create(StructType(), "test")
    with pytest.raises(SinkError, match="refused"):
        refused.create(StructType(), (), "test")


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> NoReturn:
        raise RefusedError("KernelEngineException")

    java = SimpleNamespace(getLatestTransactionVersion=read)
    version = Version(1, StructType(), (), {}, (), java, None)
    with pytest.raises(SinkError, match=f"Delta's table {tmp_path}: refused"):
        table(tmp_path, monkeypatch, "").last(version, "sparkjet/q/results")
