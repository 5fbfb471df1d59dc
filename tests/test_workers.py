"""What tasks of ours do in a Python worker: the worker acknowledges its task at once, and tidies up little."""

from __future__ import annotations

import copy
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from sparkjet import workers
from sparkjet.workers import QuickReader, begin_task


class Reader(QuickReader):
    def __init__(self) -> None:
        self.rows = [1, 2]


class Stateless(QuickReader):
    pass


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process goes on collecting its garbage."""
    monkeypatch.setattr(workers, "_tasks", {"begun": workers._WARM})


def descriptors() -> list[str]:
    place = Path("/proc/self/fd")
    return sorted(map(str, place.iterdir())) if place.is_dir() else []


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has it")
def test_a_task_that_arrives_is_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as jvm:
        worker, _ = server.accept()
        with worker:
            monkeypatch.setattr(workers, "_DESCRIPTORS", [worker.fileno()])
            worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            # As pickling does.
            found = copy.copy(Reader())
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            assert found.rows == [1, 2]
            worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            copy.copy(Stateless())
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            worker.sendall(b"rows")
            assert jvm.recv(4) == b"rows"


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has it")
def test_a_task_of_a_sink_begins_at_once_where_sparkjet_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        worker, _ = server.accept()
        with worker:
            monkeypatch.setattr(workers, "_DESCRIPTORS", [worker.fileno()])
            cloudpickle.register_pickle_by_value(workers)
            pickled = cloudpickle.dumps(workers.QuickTask(task))
            monkeypatch.setitem(sys.modules, "sparkjet.workers", None)
            worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            found = cloudpickle.loads(pickled)
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
    batches = iter([pa.record_batch({"x": [1]})])
    assert found(batches) is batches
    assert workers.QuickTask(task)(batches) is batches


def test_what_else_a_worker_has_open_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with ours, theirs, os.fdopen(read, "rb") as reader, os.fdopen(write, "wb") as writer:
        before = descriptors()
        monkeypatch.setattr(workers, "_DESCRIPTORS", [ours.fileno(), read, write, 9999])
        begin_task()
        assert descriptors() == before
        ours.sendall(b"x")
        writer.write(b"y")
        writer.flush()
        assert (theirs.recv(1), reader.read(1)) == (b"x", b"y")


def test_what_a_worker_has_imported_is_not_looked_through_after_each_task() -> None:
    program = "import gc; from sparkjet.workers import begin_task as b; b(); n = gc.get_freeze_count(); b(); "
    done = subprocess.run(
        [sys.executable, "-c", f"{program} print(n, gc.get_freeze_count() > 5_000, len(gc.get_objects()) < 1000)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", "True", "True"]


def test_what_users_functions_have_replaced_is_freed_after_a_while() -> None:
    program = """
import weakref
from sparkjet.workers import begin_task

class Model:
    def __init__(self):
        self.itself = self

begin_task()
model = Model()
gone = weakref.ref(model)
begin_task()
model = None
alive = [gone() is not None for _ in range(2_000) if begin_task() is None]
print(alive[0], alive[-1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
