"""A directory in a grid keeps the contract of directories, on three members."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.storage.grid_directory import GridDirectory
from sparkjet.testing.directory_contract import DirectoryContract, DirectoryUnderTest
from sparkjet_grid.client import GridClient
from sparkjet_grid.errors import MissingEntriesError, UnreachableError
from sparkjet_grid.messages import PutSlot
from tests.faults.waiting import until
from tests.grid.grids import Grid, grid_of


class OwnClient:
    """A location in which each directory has its own client, as each driver has."""

    def __init__(self, client: GridClient) -> None:
        self.client = client

    def __str__(self) -> str:
        return "grid://tested"


def losing(client: GridClient) -> GridClient:
    """The next slot that it puts arrives, and the answer is lost."""
    ask, lost = client._contact.ask_once, list[object]()

    def ask_once(request: Any, answer: type[Any]) -> Any:
        found = ask(request, answer)
        if isinstance(request, PutSlot) and not lost:
            lost.append(request)
            raise UnreachableError("the answer was lost")
        return found

    client._contact.ask_once = ask_once  # type: ignore[method-assign]
    return client


def held(client: GridClient, arrive: threading.Event) -> GridClient:
    """The slots that it puts arrive when the event is set."""
    ask = client._contact.ask_once

    def ask_once(request: Any, answer: type[Any]) -> Any:
        if isinstance(request, PutSlot):
            assert arrive.wait(60)
        return ask(request, answer)

    client._contact.ask_once = ask_once  # type: ignore[method-assign]
    return client


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid")) as grid:
        yield grid


@pytest.fixture
def made(grid: Grid, request: pytest.FixtureRequest) -> Callable[..., GridDirectory]:
    def make(change: Callable[[GridClient], GridClient] = lambda client: client) -> GridDirectory:
        return GridDirectory(OwnClient(change(grid.client())), f"tests/{request.node.name}")  # type: ignore[arg-type]

    return make


class TestGrid(DirectoryContract):
    @pytest.fixture
    def target(self, made: Callable[..., GridDirectory]) -> DirectoryUnderTest:
        return DirectoryUnderTest(
            made(),
            again=made,
            losing=lambda: made(losing),
            held=lambda arrive: made(lambda client: held(client, arrive)),
        )


def test_nothing_is_decided_that_a_replica_lacks(made: Callable[..., GridDirectory], grid: Grid) -> None:
    directory = made()
    directory.write("blob", b"content")
    key = directory.location.client.key(directory.full("blob"))
    [backup] = grid.cluster.now().rows[key.partition].replicas[1:]
    grid.member(backup).entries.remove([key])
    with pytest.raises(MissingEntriesError, match="blob"):
        directory.put("slot", b"record")
    assert not directory.exists("slot")
    # Only what was removed on purpose is not asked for.
    directory.write("blo", b"its name begins like the other")
    directory.remove_files(["blo"])
    with pytest.raises(MissingEntriesError, match="blob"):
        directory.put("slot", b"record")
    directory.remove_files(["blob"])
    assert directory.put("slot", b"record")


def test_contents_that_lost_their_slot_are_swept_and_no_others(made: Callable[..., GridDirectory]) -> None:
    directory = made()
    for name in ("slot.0", "free.1"):
        directory.below(".put").write(name, b"of a driver that was killed")
    assert directory.put("slot", b"record")
    directory.sweep()
    assert directory.read("slot") == b"record"
    left = [each.name for each in directory.location.client.entries(directory.full())]
    assert [name for name in left if name.endswith((".0", ".1"))] == [directory.full(".put/free.1")]


def test_a_query_starts_only_where_more_than_half_of_the_members_are_left(tmp_path: Path) -> None:
    with grid_of(tmp_path, 3) as grid:
        directory = GridDirectory(OwnClient(grid.client()), "home")  # type: ignore[arg-type]
        directory.check("checkpointLocation")
        for left in (2, 1):
            # One after the other: another member must see it too.
            grid.kill(grid.members[-1])
            until(lambda left=left: len(grid.cluster.now().members) == left, "the loss to be noticed")  # type: ignore[misc]
        with pytest.raises(AnalysisError, match=r"checkpointLocation: .*1 members left of 3"):
            directory.check("checkpointLocation")


def test_a_grid_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    with grid_of(tmp_path, 1) as grid:
        client = grid.client(patience=0.5)
        grid.kill(grid.members[0])
        with pytest.raises(AnalysisError, match=r'checkpointLocation: "grid://tested/home" cannot be used: no member'):
            GridDirectory(OwnClient(client), "home").check("checkpointLocation")  # type: ignore[arg-type]
