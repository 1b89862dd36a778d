"""The program of a reader process, which `readers.py` starts with the number of a socket."""

from __future__ import annotations

import gc
import os
import socket
import sys
from contextlib import suppress

from siteatlas.scanner.crawl.readers import read_documents
from siteatlas.scanner.reading.document import load_readers


def main() -> None:
    load_readers()
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as connection, suppress(OSError):
        incoming = connection.makefile("rb", 128 * 1024)
        read_documents(incoming.read, connection.sendall)
    # Without the tidying up of the interpreter, which nobody waits for.
    os._exit(0)


if __name__ == "__main__":
    gc.disable()
    main()
