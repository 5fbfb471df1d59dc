"""Hadoop's file systems, opened with a session's own configuration and called from threads that Spark leaves alone."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparkjet.errors import AnalysisError
from sparkjet.storage.patience import Patience

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

JAVA_ERRORS = Py4JJavaError, PySparkException
"""Exceptions of JVM calls: PySpark turns some, such as unsupported operations, into its own."""
_SETTINGS = "fs.", "dfs.", "hadoop.", "ipc."
"""Prefixes of the settings of file systems."""
_SPARED = {
    # A pause before first checking whether a file could be closed.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": ("400", "20"),
    # Looks for directories around each file that is created or removed, and markers for those that have become empty: a
    # refused start would leave one.
    "fs.s3a.performance.flags": ("", "create,delete"),
}
"""Hadoop's default and our value of settings that cost time or requests in every epoch; the user's value stays."""
_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}
_MISSING = "java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"
_DENIED = "java.nio.file.AccessDeniedException", "org.apache.hadoop.security.AccessControlException"


class HadoopFileSystem:
    """One of Hadoop's file systems: the JVM's objects, and calls on them.

    Args:
        gateway: The session's Py4J gateway.
        java: The ``FileSystem``.
        settings: The ``Configuration`` it was opened with.
    """

    def __init__(self, gateway: Any, java: Any, settings: Any) -> None:
        self.jvm: Any = gateway.jvm
        self.java = java
        self.patience = Patience()
        self._gateway, self._settings = gateway, settings

    @cached_property
    def context(self) -> Any:
        """The ``FileContext`` of the same place, whose renames can be told not to overwrite."""
        return self.jvm.org.apache.hadoop.fs.FileContext.getFileContext(self.java.getUri(), self._settings)

    @cached_property
    def not_overwriting(self) -> Any:
        """The options of such a rename, as a Java array."""
        return self._renaming("NONE")

    @cached_property
    def overwriting(self) -> Any:
        """The options of a rename that takes the place of a file."""
        return self._renaming("OVERWRITE")

    def _renaming(self, how: str) -> Any:
        kind = self.jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(kind, 1)
        options[0] = getattr(kind, how)
        return options

    def path(self, location: str) -> Any:
        """A location as a Hadoop ``Path``."""
        return self.jvm.org.apache.hadoop.fs.Path(location)

    def qualified(self, location: str) -> str:
        """A location with scheme and authority."""
        return str(self.java.makeQualified(self.path(location)).toString()).rstrip("/")

    def resolved(self, location: str) -> str:
        """A location as the file system knows it, behind links and mounts; if it does not exist yet, its name."""
        path, missing = self.path(location), []
        while path.getParent() is not None and not self.java.exists(path):
            missing.append(str(path.getName()))
            path = path.getParent()
        found = self.java.resolvePath(path).toUri()
        # The address, if there is one: a name node has several names, with and without its port.
        service = self.java.getCanonicalServiceName() or found.getAuthority()
        return "/".join([f"{found.getScheme()}://{service}{found.getPath()}".rstrip("/"), *reversed(missing)])

    def run(self, call: Callable[[], T], where: str) -> T:
        """Call Hadoop in a separate thread: if Spark interrupted the call, its outcome would be unknown."""
        try:
            return _threads.submit(call).result()
        except JAVA_ERRORS as error:
            raise os_error(self._gateway, error, where) from error


def open_file_system(session: SparkSession, location: str, option: str) -> HadoopFileSystem:
    """The file system of a location, with the session's settings and credentials; the same one for the same settings.

    Not Hadoop's cached one: anyone who closes that (the user's code, another library) would close it under the query.
    """
    gateway: Any = session.sparkContext._gateway
    scheme = location.partition(":")[0]
    try:
        settings = session._jsparkSession.sessionState().newHadoopConf()
        for name, (default, ours) in _SPARED.items():
            if settings.get(name, default) == default:
                settings.set(name, ours)
        hadoop = gateway.jvm.org.apache.hadoop.fs
        uri = hadoop.Path(location).toUri()
        own = tuple(settings.getPropsWithPrefix(prefix).hashCode() for prefix in _SETTINGS)
        key = (str(session._jsparkSession.sessionUUID()), uri.getScheme(), uri.getAuthority(), own)
        with _lock:
            found = _opened.get(key)
            if found is None:
                java = _threads.submit(lambda: hadoop.FileSystem.newInstance(uri, settings)).result()
                found = _opened[key] = HadoopFileSystem(gateway, java, settings)
    except JAVA_ERRORS as error:
        said = first_line(error)
        package = _PACKAGES.get(scheme)
        remedy = (
            f"If its classes are missing, add {package} of Spark's Hadoop version with spark.jars.packages."
            if package
            else "Correct the location, or Spark's settings (spark.hadoop.fs.…)."
        )
        raise AnalysisError(f'{option}: Hadoop cannot open "{location}": {said} {remedy}') from error
    return found


def os_error(gateway: Any, error: Exception, where: str) -> OSError:
    """The Python form of a Java exception, with ``where`` as its file; answers of the store have their own classes."""

    def is_one_of(names: tuple[str, ...]) -> bool:
        return isinstance(error, Py4JJavaError) and any(
            is_instance_of(gateway, error.java_exception, name) for name in names
        )

    said = first_line(error)
    if is_one_of(_MISSING):
        return FileNotFoundError(errno.ENOENT, said, where)
    if is_one_of(_DENIED):
        return PermissionError(errno.EACCES, said, where)
    return OSError(errno.EIO, said, where)


def first_line(error: Exception) -> str:
    """The message of a Java exception, on one line: Hadoop's messages may contain stack traces."""
    said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    text = str(said).strip().splitlines()
    return f"{text[0][:400].rstrip('.') if text else 'an error without a message'}."


_threads = ThreadPoolExecutor(16, thread_name_prefix="sparkjet-hadoop")
_opened: dict[tuple[object, ...], HadoopFileSystem] = {}
_lock = threading.Lock()
