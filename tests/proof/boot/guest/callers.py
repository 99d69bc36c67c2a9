"""Keeps connections to the daemon open, each with half a request: HOST PORT COUNT. Says so, and stays."""

from __future__ import annotations

import signal
import socket
import sys

if __name__ == "__main__":
    host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    callers = [socket.create_connection((host, port)) for _ in range(count)]
    for caller in callers:
        caller.sendall(b"GET / HTTP/1.1\r\n")
    print("open", flush=True)
    signal.pause()
