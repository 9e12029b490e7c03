"""The pytest plugin: exported files are held against their model in a test.

pytest loads it by itself where mpexport is installed. Nothing heavy is imported, neither when tests
are collected nor when they run: models and files are touched by worker processes only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, Union

import pytest

if TYPE_CHECKING:
    from mpexport.parity.report import ParityReport


@pytest.fixture
def mpexport_parity(request: pytest.FixtureRequest) -> Callable[..., Sequence[ParityReport]]:
    """A function that compares files with a reference and fails the test unless all pass.

    It takes what `mpexport.compare` takes, the candidates one by one::

        def test_release(mpexport_parity):
            mpexport_parity("model/cnn.keras", "release/cnn.tflite", "release/cnn.onnx")

    and returns the reports. Their tables are what a failure says; of a test that passes they are a
    section of its report, which ``pytest -rP`` shows.
    """

    def compared(
        reference: Any, *candidates: Union[str, os.PathLike[str]], **options: Any
    ) -> Sequence[ParityReport]:
        __tracebackhide__ = True
        import mpexport
        from mpexport.render import parity_text

        reports: Sequence[ParityReport] = mpexport.compare(reference, candidates, **options)
        message = parity_text.failure(reports)
        if message:
            raise AssertionError(message)
        table = parity_text.of_reports(reports)
        request.node.add_report_section("call", "mpexport parity", table)
        return reports

    return compared
