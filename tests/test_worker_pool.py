"""Workers that are used again, and those that must not be."""

from __future__ import annotations

import pytest

from mpexport.errors import MpExportError
from mpexport.results import RunOptions
from mpexport.worker import pool as pool_module
from mpexport.worker.pool import WorkerPool


def test_a_worker_serves_its_purpose_again_with_an_empty_scratch():
    with WorkerPool(RunOptions().worker) as pool:
        run = RunOptions(pool=pool)
        with run.worker("a") as first:
            (first.scratch / "left").mkdir()
        with run.worker("a") as again:
            assert again.process.pid == first.process.pid
            assert [p.name for p in again.scratch.iterdir()] == ["worker.log"]
            with run.worker("b") as other, run.worker("a") as second, run.worker() as alone:
                pids = {w.process.pid for w in (again, other, second, alone)}
                assert len(pids) == 4
        assert alone.process.poll() is not None
    assert again.process.poll() is not None


def test_a_worker_is_not_used_again_after_an_error():
    with WorkerPool(RunOptions().worker) as pool:
        with pytest.raises(MpExportError, match="knows no job"), pool.lease("a") as first:
            first.call("nothing")
        with pool.lease("a") as second:
            assert second.process.pid != first.process.pid


def test_a_worker_retires(monkeypatch):
    monkeypatch.setattr(pool_module, "MAX_LEASES", 1)
    with WorkerPool(RunOptions().worker) as pool:
        with pool.lease("a") as first:
            pass
        assert first.process.poll() is not None
