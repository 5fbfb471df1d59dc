"""Errors of full and read-only disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sparkjet.errors import SinkError, StorageError
from sparkjet.storage.full_disk import full_disk, full_disks_named


def test_a_failure_that_names_the_file_is_reported_with_it() -> None:
    with pytest.raises(StorageError, match=r"No space left on device: /ck/log/7\. .*Free space there"):  # noqa: SIM117
        with full_disks_named([]):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/ck/log/7")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_failure_inside_spark_is_reported_with_its_directory(number: int) -> None:
    text = f"[TASK_WRITE_FAILED] Task failed while writing rows to file:/out/x. {os.strerror(number)}\\n\\tat org…"
    said = str(full_disk(RuntimeError(text), []))
    assert said.startswith(f"[SPARKJET_STORAGE] {os.strerror(number)}: /out/x. ")
    assert ("Make it writable" in said) == (number == errno.EROFS)


def test_a_directory_with_spaces_is_named_as_a_whole() -> None:
    cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    error = RuntimeError("[TASK_WRITE_FAILED] Task failed while writing rows to file:/a b/x y. SQLSTATE: 58030\n\tat …")
    error.__cause__ = cause
    assert str(full_disk(error, [])).startswith("[SPARKJET_STORAGE] No space left on device: /a b/x y. The epoch")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_few_file_handles_are_named_with_how_to_have_more(number: int) -> None:
    error = UnboundLocalError("what PySpark fails with where it cannot open a socket")
    error.__context__ = RuntimeError(f"[Errno {number}] {os.strerror(number)}")
    said = str(full_disk(error, []))
    assert said.startswith(f"[SPARKJET_STORAGE] {os.strerror(number)}: the driver may have ")
    assert "nothing is lost. Let this user have more file handles" in said
    assert "ulimit -n" in said
    named = str(full_disk(OSError(number, os.strerror(number), "/ck/offsets/1"), []))
    assert named.startswith(f"[SPARKJET_STORAGE] {os.strerror(number)}: /ck/offsets/1. ")


def test_a_cause_further_down_counts() -> None:
    error = RuntimeError("the query has failed")
    error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "perhaps of spark.local.dir" in str(full_disk(error, [Path("/missing")]))


def test_a_cause_counts_that_pyspark_hides_with_from_none() -> None:
    error = RuntimeError("the query has failed")
    error.__context__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/ck/log/7")
    error.__suppress_context__ = True
    assert "/ck/log/7" in str(full_disk(error, []))


@pytest.mark.parametrize("error", [SinkError("No space left on device"), ValueError("another"), OSError(2, "gone")])
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    assert full_disk(error, []) is None
    with pytest.raises(type(error)), full_disks_named([]):
        raise error
