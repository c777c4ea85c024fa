"""Run a Python program in a child process and record what it looks up, connects to and writes.

A small C library that is loaded first (LD_PRELOAD) replaces `getaddrinfo` and `connect` of the C library. It sees the
calls of native code as well, for example those of the HTTP client inside ONNX Runtime.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Observed", "can_watch", "watch"]

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void record(const char *what, const char *name) {
    char line[512];
    int size = snprintf(line, sizeof line, "%s %.400s\n", what, name ? name : "");
    int file = open(getenv("WATCH_LOG"), O_WRONLY | O_APPEND);
    if (file < 0 || write(file, line, size) != size) abort();
    close(file);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    record("lookup", name);
    return EAI_NONAME;
}

int connect(int socket, const struct sockaddr *address, socklen_t length) {
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6) record("connect", "internet");
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    return real(socket, address, length);
}
"""


@dataclass(frozen=True)
class Observed:
    """What a program did: its output, the network calls in order, and the files in its home and temporary folders."""

    stdout: str
    network: list[str]
    files: set[str]


def can_watch() -> bool:
    """Whether this machine can watch a process: it is Linux and has a C compiler."""
    return sys.platform == "linux" and shutil.which("cc") is not None


def watch(program: str, folder: Path) -> Observed:
    """Run the program with an empty home folder, temporary folder and current folder below `folder`."""
    library, log = folder / "watch.so", folder / "network.log"
    (folder / "watch.c").write_text(_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "watch.c", "-ldl"], check=True)
    log.touch()
    places = {name: folder / "places" / name for name in ("home", "tmp", "current")}
    for place in places.values():
        place.mkdir(parents=True)
    environment = {
        "HOME": str(places["home"]),
        "TMPDIR": str(places["tmp"]),
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": str(library),
        "WATCH_LOG": str(log),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=places["current"],
    )
    assert done.returncode == 0, done.stderr
    written = (folder / "places").rglob("*")
    return Observed(
        done.stdout,
        log.read_text().splitlines(),
        {str(path.relative_to(folder / "places")) for path in written if not path.is_dir()},
    )
