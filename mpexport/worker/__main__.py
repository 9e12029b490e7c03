"""``python -m mpexport.worker``: read jobs from standard input until it closes, do them, answer."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
import traceback
from typing import BinaryIO

from mpexport.errors import MpExportError, disk_full
from mpexport.worker.jobs import Session
from mpexport.worker.protocol import VERSION, Message, decode, encode

_PR_SET_PDEATHSIG = 1


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Takes descriptors 0 and 1 for the protocol; whatever libraries print goes to the log."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return incoming, outgoing


def _die_with_parent() -> None:
    """A parent killed with SIGKILL cannot clean up: the kernel then ends the child (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            sys.exit(1)


def main() -> None:
    """Serves jobs until standard input closes."""
    incoming, outgoing = _private_streams()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _die_with_parent()

    def say(message: Message) -> None:
        outgoing.write(encode(message))
        outgoing.flush()

    session = Session(lambda text: say({"progress": text}))
    for line in iter(incoming.readline, b""):
        try:
            message = decode(line)
            if message.get("version") != VERSION:
                raise MpExportError(
                    f"the worker speaks protocol {VERSION}, asked for {message.get('version')}",
                    hint="install the same mpexport on both sides",
                )
            answer: Message = {"result": session.run(message["job"], message["args"])}
        except MpExportError as e:
            traceback.print_exc()
            answer = {"error": (disk_full(e) or e).to_json()}
        except MemoryError:
            traceback.print_exc()
            error = MpExportError("out of memory", hint="use a machine with more memory")
            answer = {"error": error.to_json()}
        except Exception as e:
            traceback.print_exc()
            text = f"{type(e).__name__}: {e}".splitlines()[0][:300]
            unknown = MpExportError(text, hint="please report this")
            answer = {"error": (disk_full(e) or unknown).to_json()}
        sys.stdout.flush()
        gc.collect()
        say(answer)
    # TensorFlow takes a second to tear down what the kernel frees at once.
    os._exit(0)


if __name__ == "__main__":
    main()
