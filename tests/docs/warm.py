"""A program ``kinrank`` that starts at once: it runs in a fork of a process that has imported everything already.

Pages type the program a hundred times, and most of the time of a short command is that of its imports.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import wait_until

SHOWN = {"COLUMNS": "120", "NO_COLOR": "1"}
"""How the program prints in pages."""

# Servers are stopped by signals, and print for as long as they run: they start as usual.
PROGRAM = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] in (["serve"], ["demo"]):
    os.execv("{kinrank}", ["{kinrank}", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect("{address}")
    call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(call)
    sys.exit(int(server.recv(16) or 70))
"""


@contextmanager
def warm_program() -> Iterator[Path]:
    """Yield a folder with the program, to put before the others of ``PATH``."""
    folder = Path(tempfile.mkdtemp(prefix="kinrank-"))  # the path of a socket is short
    address, program = folder / "socket", folder / "kinrank"
    kinrank = Path(sys.executable).with_name("kinrank")
    program.write_text(PROGRAM.format(python=sys.executable, kinrank=kinrank, address=address))
    program.chmod(0o755)
    command = [sys.executable, "-m", "tests.docs.warm", address]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], env={**os.environ, **SHOWN}) as process:
        try:
            wait_until(address.exists)
            yield folder
        finally:
            process.terminate()
    shutil.rmtree(folder)


def serve(address: str) -> None:
    """Run each command in a fork, with the streams, the folder and the environment of its caller."""
    import lightgbm  # noqa: F401
    import sklearn.utils.validation  # noqa: F401

    import kinrank.cli.app
    import kinrank.study.headroom  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            client, _ = listener.accept()
            with client:
                if os.fork() == 0:
                    answer(client)


def answer(client: socket.socket) -> None:
    """Run a command in a further fork, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    call = client.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    child = os.fork()
    if child == 0:
        run(*json.loads(call), streams)
    _, status = os.waitpid(child, 0)
    client.sendall(b"%d" % (os.waitstatus_to_exitcode(status) & 0xFF))
    os._exit(0)


def run(arguments: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """Run a command as if it had just been started."""
    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["kinrank", *arguments]
        sys.modules["__main__"].__package__ = None  # the name of the program is that in its arguments
        from kinrank.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
