"""The way into a server: passes connections on byte for byte, and can fall silent without closing a single one."""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Final

CHUNK_BYTES: Final = 1 << 16  # of a connection, each way, are under way here at most
CONNECT_SECONDS: Final = 5.0
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Relay:
    """Passes what connects to a listening socket on to a port of 127.0.0.1, from a thread of its own.

    While it is silent connections stay open and new ones are taken; what comes on them goes nowhere, and nothing is
    ever said. They are cut when it speaks again, as by a machine that has come back and knows nothing of them.
    """

    def __init__(self, listening: socket.socket, port: int, name: str) -> None:
        """Starts at once. `listening` is closed with it; `name` is the thread's."""
        self._listening = listening
        self._server = ("127.0.0.1", port)
        self._lock = threading.Lock()
        self._silent = False
        self._closing = False
        self._ends: set[_End] = set()
        self._selector = selectors.DefaultSelector()
        listening.setblocking(False)
        self._selector.register(listening, _READ)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def silence(self, wanted: bool) -> None:
        """Fall silent, or speak again. May be called from any thread."""
        with self._lock:
            if wanted == self._silent:
                return
            while self._silent and self._accept():  # those that came before it speaks again are cut too
                pass
            self._silent = wanted
            for end in list(self._ends):
                if wanted:
                    end.other, end.unsent = None, b""
                    self._watch(end)
                else:
                    self._drop(end)

    def close(self) -> None:
        """Stop listening and cut all connections."""
        with self._lock:
            self._closing = True
        self._listening.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join()
        self._listening.close()
        for end in list(self._ends):
            self._drop(end)
        self._selector.close()

    def _run(self) -> None:
        while True:
            ready = self._selector.select()
            with self._lock:
                if self._closing:
                    return
                for key, events in ready:
                    if key.data is None:
                        self._accept()
                    elif key.data in self._ends:  # else it was dropped a moment ago
                        self._move(key.data, events)

    def _accept(self) -> bool:
        """Take one connection; whether there was one."""
        try:
            client = _End(self._listening.accept()[0])
        except OSError:  # already disconnected
            return False
        self._ends.add(client)
        if not self._silent:
            try:
                server = _End(socket.create_connection(self._server, CONNECT_SECONDS))
            except OSError:
                self._drop(client)
                return True
            self._ends.add(server)
            client.other, server.other = server, client
            self._watch(server)
        self._watch(client)
        return True

    def _move(self, end: _End, events: int) -> None:
        """Send what could not be sent before, and pass on what has come."""
        if events & _WRITE:
            self._send(end)
        if events & _READ and end in self._ends:
            try:
                data = end.socket.recv(CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(end)
            elif end.other is not None:
                end.other.unsent = data
                self._send(end.other)

    def _send(self, end: _End) -> None:
        try:
            end.unsent = end.unsent[end.socket.send(end.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(end)
            return
        self._watch(end)
        if end.other is not None:
            self._watch(end.other)

    def _watch(self, end: _End) -> None:
        """Wait for what the end can do now. Nothing is read while there is something that the other could not send."""
        wanted = _WRITE if end.unsent else 0
        wanted |= 0 if end.other is not None and end.other.unsent else _READ
        if wanted == end.watched:
            return
        if not end.watched:
            self._selector.register(end.socket, wanted, end)
        elif not wanted:
            self._selector.unregister(end.socket)
        else:
            self._selector.modify(end.socket, wanted, end)
        end.watched = wanted

    def _drop(self, end: _End) -> None:
        """Close it, and its other end."""
        for each in (end, end.other):
            if each is not None and each in self._ends:
                self._ends.remove(each)
                if each.watched:
                    self._selector.unregister(each.socket)
                each.socket.close()


class _End:
    """One end of a connection. What is read from it is sent to the other, if it has one."""

    __slots__ = ("other", "socket", "unsent", "watched")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.other: _End | None = None
        self.unsent = b""
        self.watched = 0  # for what the selector looks
