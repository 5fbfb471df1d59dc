"""Directories on Hadoop's file systems: HDFS and object stores, as Spark itself accesses them."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from sparkjet.errors import AnalysisError, StorageError
from sparkjet.query_log import begin, current
from sparkjet.storage.hadoop_ways import UNTESTED, WAYS, write
from sparkjet.storage.patience import Patience
from sparkjet.storage.probe_names import is_left_behind, probe_name

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory
    from sparkjet.storage.hadoop_file_system import HadoopFileSystem
    from sparkjet.storage.hadoop_ways import Way


WRITERS = 4
"""Number of writers in the race, each with different content."""
_TESTED = "a path that all machines mount, hdfs:, s3a:, abfs:, abfss: or gs:"


def check_puts(directory: Directory, option: str, scheme: str, *, is_tested: bool, create: bool) -> None:
    """Probe a directory, and refuse it unless its puts are known to have only one winner.

    A store that ignores the condition is detected by the second put; the race detects one that looks first and writes
    afterwards, if it is slow enough. No probe proves that there is always one winner: a scheme that was never tested is
    refused even if it passes.
    """
    try:
        if create:
            directory.create()
        for left in directory.names():
            if is_left_behind(left):
                directory.remove(left)
        winners = max(_in_a_row(directory), _at_once(directory))
    except (OSError, StorageError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise AnalysisError(f'{option}: "{directory}" cannot hold decisions: {said}') from error
    if winners > 1:
        message = (
            f'{option}: "{directory}" cannot hold decisions: of {WRITERS} writers of one new file, {winners} were told '
            f"that they had created it, so two drivers could both decide. Use {_TESTED}."
        )
        raise AnalysisError(message)
    if not is_tested:
        message = (
            f'{option}: "{directory}" has the scheme "{scheme}:", whose put-if-absent was never tested. (A few writers '
            f"of one file were told apart here, which proves nothing.) Use {_TESTED}."
        )
        raise AnalysisError(message)


def _in_a_row(directory: Directory) -> int:
    name = probe_name()
    try:
        return sum(directory.put(name, content) for content in (b"first", b"second"))
    finally:
        directory.remove(name)


def _at_once(directory: Directory) -> int:
    name = probe_name()
    contents = [str(writer).encode() * 1000 for writer in range(WRITERS)]
    try:
        with ThreadPoolExecutor(WRITERS, initializer=begin, initargs=(current(),)) as writers:
            return sum(writers.map(lambda content: directory.put(name, content), contents))
    finally:
        directory.remove(name)


T = TypeVar("T")

_HIDDEN = re.compile(r"\..+\.[0-9a-f]{32}")
_ENTRY = re.compile(r"\{path=(.+?); isDirectory=", re.DOTALL)
_FILE = re.compile(r"\{path=(.+?); isDirectory=false; length=(\d+);", re.DOTALL)
_DENIED = re.compile(r"Code=AccessDenied|\bAccessDeniedException")
_BETWEEN = "\0"


class HadoopDirectory:
    """A :class:`~sparkjet.storage.directory.Directory` on one of Hadoop's file systems.

    Args:
        system: The file system.
        uri: The directory, as :meth:`HadoopFileSystem.qualified` gives it.
        way: How it puts files; determined by the scheme if not given.
        patience: Patience for failing calls; the file system's if not given.
    """

    def __init__(
        self, system: HadoopFileSystem, uri: str, *, way: Way | None = None, patience: Patience | None = None
    ) -> None:
        self._system, self._uri = system, uri
        self._patience = patience or system.patience
        self._scheme = uri.partition(":")[0]
        self._way = way or WAYS.get(self._scheme, UNTESTED)

    def __str__(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"HadoopDirectory({self._uri!r})"

    @property
    def path(self) -> Path | None:
        """See :meth:`Directory.path`."""
        return None

    def uri(self, name: str = "") -> str:
        """See :meth:`Directory.uri`."""
        # Without a path, as for the root of a bucket, Hadoop would take it for the user's own directory.
        return f"{self._uri}/{name}" if name or not urlsplit(self._uri).path else self._uri

    def resolved(self) -> str:
        """See :meth:`Directory.resolved`; follows links and mounts, and identifies the service, not a name for it."""
        return self._patience.run(lambda: self._run(lambda: self._system.resolved(self.uri())))

    def below(self, name: str) -> HadoopDirectory:
        """See :meth:`Directory.below`."""
        return HadoopDirectory(self._system, self.uri(name), way=self._way, patience=self._patience)

    def check(self, option: str, *, create: bool = True) -> None:
        """See :meth:`Directory.check`."""
        system, capability = self._system, self._way.capability
        if capability is not None and not self._run(lambda: system.java.hasPathCapability(self._at(), capability)):
            message = (
                f'{option}: "{self}" cannot hold decisions: Hadoop\'s client of "{self._scheme}:" cannot put a file if '
                f"it is absent here ({capability}). Use the client of Hadoop 3.5 or later, with its default settings."
            )
            raise AnalysisError(message)
        tried = self
        while self._way.has_directories and not create and not tried.exists():
            parent = tried._at().getParent()
            tried = HadoopDirectory(system, str(parent.toString()), way=self._way, patience=self._patience)
        check_puts(tried, option, self._scheme, is_tested=self._way.is_tested, create=create)

    def create(self) -> None:
        """See :meth:`Directory.create`."""
        if self._way.has_directories:
            self._ask(lambda: self._system.java.mkdirs(self._at()))

    def put(self, name: str, content: bytes) -> bool:
        """See :meth:`Directory.put`.

        No error tells who has won: a response may be lost, and a client that repeats its request meets its own file. So
        after any error the file itself decides, and as long as there is none the same content is put again.
        """
        path = self._at(name)

        def attempt() -> bool:
            try:
                self._run(lambda: self._way.put(self._system, path, content), name)
            except PermissionError:
                # Nothing was written, and trying again will not help.
                raise
            except OSError as error:
                failure = error
            else:
                return True
            try:
                return self._run(lambda: self._content(path), name) == content
            except FileNotFoundError:
                # Nobody has written it yet.
                pass
            except OSError as error:
                failure = error
            raise OSError(errno.EIO, failure.strerror, self.uri(name)) from failure

        try:
            return self._patience.run(attempt)
        except StorageError as error:
            message = f"It is unknown whether {self.uri(name)} was written, and nothing was rolled back. {error}"
            raise StorageError(message) from error

    def write(self, name: str, content: bytes) -> None:
        """See :meth:`Directory.write`."""
        system, path = self._system, self._at(name)
        self._ask(lambda: write(system.java.create(path, True), content), name)

    def read(self, name: str) -> bytes:
        """See :meth:`Directory.read`."""
        path = self._at(name)
        return self._ask(lambda: self._content(path), name)

    def open(self, name: str) -> BinaryIO:
        """See :meth:`Directory.open`: a copy on the local disk, as large files must not go through py4j."""
        descriptor, copy = tempfile.mkstemp(prefix="sparkjet-")
        os.close(descriptor)
        try:
            target = self._system.path(f"file:{copy}")
            # To the raw local file system (True): the other one would leave a .crc file next to it.
            self._ask(lambda: self._system.java.copyToLocalFile(False, self._at(name), target, True), name)
            return Path(copy).open("rb")
        finally:
            # The open file stays until it is closed.
            Path(copy).unlink()

    def checksum(self, name: str) -> int:
        """See :meth:`Directory.checksum`; computed in the JVM."""
        system, path = self._system, self._at(name)

        def checksum() -> int:
            crc = system.jvm.java.util.zip.CRC32()
            stream = system.jvm.java.util.zip.CheckedInputStream(system.java.open(path), crc)
            try:
                system.jvm.org.apache.commons.io.IOUtils.consume(stream)
            finally:
                stream.close()
            return int(crc.getValue())

        return self._ask(checksum, name)

    def exists(self, name: str = "") -> bool:
        """See :meth:`Directory.exists`."""
        return bool(self._ask(lambda: self._system.java.exists(self._at(name)), name))

    def names(self) -> list[str]:
        """See :meth:`Directory.names`."""
        shown = self._listed(lambda: self._system.java.listStatusIterator(self._at()))
        uris = (each[1] for each in map(_ENTRY.search, shown) if each is not None)
        # A file is listed as itself.
        return [uri.rpartition("/")[2] for uri in uris if uri != self._uri]

    def files(self) -> dict[str, int]:
        """See :meth:`Directory.files`."""
        shown = self._listed(lambda: self._system.java.listFiles(self._at(), True))
        found = (each for each in map(_FILE.search, shown) if each is not None)
        return {each[1].removeprefix(f"{self._uri}/"): int(each[2]) for each in found}

    def rename(self, source: str, target: str) -> None:
        """See :meth:`Directory.rename`; if it is a copy, finishes an interrupted one."""
        self._patience.run(lambda: self._rename(source, target))

    def publish(self, source: str, target: str) -> bool:
        """See :meth:`Remote.publish`."""
        return self._patience.run(lambda: self._publish(source, target))

    def discard(self, name: str, files: Sequence[str]) -> None:
        """See :meth:`Remote.discard`."""
        if self._way.has_directories:
            self.remove(name)
        else:
            self.remove_files(f"{name}/{file}" for file in files)

    def wait(self) -> None:
        """See :meth:`Remote.wait`."""
        if not self._patience.has_just_answered:
            self.exists()

    def replace(self, source: str, target: str) -> None:
        """See :meth:`Replacing.replace`."""
        system, old, new = self._system, self._at(source), self._at(target)
        self._ask(lambda: self._way.replace(system, old, new), source)

    def sync(self, names: Iterable[str], *, contents: bool = True) -> None:
        """See :meth:`Directory.sync`: here, a closed file is durable."""

    def remove(self, name: str = "") -> None:
        """See :meth:`Directory.remove`."""
        if not name and not self._way.has_directories:
            # A removal by the name would first look for a file of that name, then for a directory, then list it.
            self.remove_files(self.files())
            return
        self._ask(lambda: self._system.java.delete(self._at(name), True), name)

    def remove_files(self, names: Iterable[str]) -> None:
        """See :meth:`Directory.remove_files`: several per request, without looking for directories around them."""
        system, left = self._system, list(names)
        bulk = system.jvm.org.apache.hadoop.io.wrappedio.WrappedIO
        size = self._ask(lambda: int(bulk.bulkDelete_pageSize(system.java, self._at()))) if left else 1
        for first in range(0, len(left), size):
            page = system.jvm.java.util.ArrayList()
            for name in left[first : first + size]:
                page.add(self._at(name))
            self._ask(partial(self._remove_page, page))

    def sweep(self) -> None:
        """See :meth:`Directory.sweep`."""
        for name in self.names():
            if _HIDDEN.fullmatch(name):
                self.remove(name)

    def _listed(self, iterator: Callable[[], Any]) -> list[str]:
        """The ``FileStatus.toString()`` of each entry: one by one, py4j would take longer than the store."""
        jvm = self._system.jvm

        def joined() -> str:
            entries = jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(iterator())
            return str(jvm.org.apache.commons.lang3.StringUtils.join(entries, _BETWEEN))

        try:
            found = self._ask(joined)
        except FileNotFoundError:
            return []
        return found.split(_BETWEEN) if found else []

    def _publish(self, source: str, target: str) -> bool:
        system, old, new, copy = self._system, self._at(source), self._at(target), self._way.copy
        if copy is not None:
            try:
                if self._run(lambda: copy(system, old, new), source):
                    return True
            except FileNotFoundError:
                raise
            except OSError:
                # Our own copy may be there, of which no answer came, or an earlier one: a rename finds out.
                pass
        self._rename(source, target)
        return False

    def _rename(self, source: str, target: str) -> None:
        system, old, new = self._system, self._at(source), self._at(target)
        if self._way.has_directories:
            self._run(lambda: system.java.mkdirs(new.getParent()), target)
        failure: OSError | None = None
        try:
            if self._run(lambda: system.java.rename(old, new), source):
                return
        except OSError as error:
            failure = error
        if not self.exists(source):
            raise FileNotFoundError(errno.ENOENT, "no such file", self.uri(source)) from failure
        if not self.exists(target) or self.checksum(source) != self.checksum(target):
            why = f"it cannot be renamed to {self.uri(target)}"
            raise OSError(errno.EEXIST if self.exists(target) else errno.EIO, why, self.uri(source)) from failure
        self.remove(source)

    def _remove_page(self, page: Any) -> None:
        failed = self._system.jvm.org.apache.hadoop.io.wrappedio.WrappedIO.bulkDelete_delete(
            self._system.java, self._at(), page
        )
        if not failed.isEmpty():
            # A store that is busy may answer that all went well but these, for which its client does not ask again.
            entry = failed.get(0)
            said = f"it cannot be removed: {entry.getValue()}."
            raise OSError(errno.EACCES if _DENIED.search(said) else errno.EIO, said, str(entry.getKey()))

    def _content(self, path: Any) -> bytes:
        stream = self._system.java.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def _at(self, name: str = "") -> Any:
        return self._system.path(self.uri(name))

    def _ask(self, call: Callable[[], T], name: str = "") -> T:
        """Run a repeatable call until the store answers."""
        return self._patience.run(lambda: self._run(call, name))

    def _run(self, call: Callable[[], T], name: str = "") -> T:
        return self._system.run(call, self.uri(name))
