"""The side of a child process: jobs come in as lines of JSON, each is answered with one line."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any


def serve(jobs: Mapping[str, Callable[..., Any]]) -> None:
    """Serves jobs until standard input closes; ends the process."""
    outgoing = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print must not get between the answers
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"result": jobs[job.pop("job")](**job)}
        except Exception as e:
            traceback.print_exc()
            answer = {"error": one_line(e)}
        outgoing.write(json.dumps(answer) + "\n")
        outgoing.flush()
    os._exit(0)


def one_line(error: BaseException) -> str:
    """Its type and the first line of what it says."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:200]
