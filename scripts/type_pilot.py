"""Type docs/pilot.md word for word in the current folder: type_pilot.py PAGE ENGINE PORT.

Only the engine, its port, the port of the service and the name of the index are replaced, so that several trials can
run on one machine. Prints the seconds of each step of the page, and the CPU time of its commands without the engine
and the service; a command that fails ends the trial.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

STEP = re.compile(
    r"^## (?P<name>[^\n]+)$|^```(?P<language>console|python)\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL
)


def steps_of(page: str) -> dict[str, list[str]]:
    """Return the commands of each step, as bash reads them."""
    steps: dict[str, list[str]] = {}
    for match in STEP.finditer(page):
        if match["name"]:
            commands = steps.setdefault(match["name"], [])
        elif match["language"] == "python":
            commands.append(f"python - << 'PYTHON'\n{match['source']}PYTHON")
        else:
            commands += [each for each in re.split(r"^\$ ", match["source"], flags=re.MULTILINE) if each]
    return steps


def main() -> None:
    """Type the page."""
    page, engine, port = sys.argv[1:]
    index = f"trial-{os.getpid()}"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        service = str(probe.getsockname()[1])
    ours = {
        "elasticsearch+http://localhost:9200/movies": f"{engine}+http://localhost:{port}/{index}",
        "localhost:9200": f"localhost:{port}",
        "localhost:18080": f"localhost:{service}",
        "--port 18080": f"--port {service}",
        "--write sample\n": f'--write sample\nsed -i \'s/"movies"/"{index}"/\' sample/bulk.ndjson\n',
    }
    try:
        for step, commands in steps_of(Path(page).read_text()).items():
            start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            text = "\n".join(commands)
            for shown, here in ours.items():
                text = text.replace(shown, here)
            with Path(f"{step.replace('/', ' ')}.txt").open("w+") as said:
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], stdout=said, stderr=said)
                if done.returncode:
                    said.seek(0)
                    sys.exit(f"{engine}: {step} failed:\n{text}\n{said.read()}")
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            print(f"{engine + ': ' + step:36} {time.monotonic() - start:5.0f} s, {cpu:5.0f} s of CPU", flush=True)
    finally:
        with suppress(OSError, ValueError):
            os.kill(int(Path("serve.pid").read_text()), signal.SIGTERM)
        with suppress(OSError):
            urlopen(Request(f"http://localhost:{port}/{index}", method="DELETE"))


if __name__ == "__main__":
    main()
