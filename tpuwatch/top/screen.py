"""The terminal, by curses: it writes only what has changed, so nothing flickers, and it is left as it was found."""

from __future__ import annotations

import curses
import locale
import os
import signal
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.core import Clock
    from tpuwatch.top.daemons import WatchedDaemon
    from tpuwatch.top.text import Line
    from tpuwatch.top.view import TopView

_KEY_MILLISECONDS: Final = 200  # for which a key is waited for before the screen is drawn again
_ESCAPE_MILLISECONDS: Final = 50  # after which an escape is the key, and no beginning of another
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_SIMILAR: Final = ("xterm-256color", "xterm", "vt100")  # terminals that others resemble
_KEYS: Final = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page up",
    curses.KEY_NPAGE: "page down",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
    "\n": "enter",
    "\r": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x1b": "escape",
    "\t": "tab",
}
_COLOURS: Final = {"red": curses.COLOR_RED, "green": curses.COLOR_GREEN, "yellow": curses.COLOR_YELLOW}


def run_on_screen(view: TopView, daemons: Sequence[WatchedDaemon], clock: Clock) -> None:
    """Show the daemons until a key leaves. SIGTERM and SIGHUP raise SystemExit; before, the terminal is restored."""
    with _ended_by_signals(), _terminal() as window:
        suspend = _suspend_key()
        styles = _Styles()
        while True:
            height, width = window.getmaxyx()
            _draw(window, view.frame([one.reading for one in daemons], width, height, clock.monotonic()), styles)
            key = _key(window, suspend)
            while key:  # all that were pressed meanwhile, before the screen is drawn again
                if not view.press(key):
                    return
                window.timeout(0)
                key = _key(window, suspend)
            window.timeout(_KEY_MILLISECONDS)


@contextmanager
def _terminal() -> Iterator[Any]:
    """The whole screen, and at the end what was there before."""
    locale.setlocale(locale.LC_ALL, "")
    for name in ("LINES", "COLUMNS"):  # curses would take them for the size, however that changes
        os.environ.pop(name, None)
    _choose_terminal()
    curses.set_escdelay(_ESCAPE_MILLISECONDS)
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()  # Ctrl-C remains the terminal's
        window.keypad(True)
        window.timeout(_KEY_MILLISECONDS)
        _hide_cursor()
        yield window
    finally:
        curses.endwin()


def _choose_terminal() -> None:
    """Over ssh many a machine does not know the terminal that somebody sits at: then one that most resemble."""
    for name in (os.environ.get("TERM", ""), *_SIMILAR):
        try:
            curses.setupterm(name)
        except curses.error:
            continue
        if curses.tigetstr("cup"):
            os.environ["TERM"] = name
            return
    raise TpuwatchError(
        "this machine knows no terminal on which a cursor can be placed: install ncurses-base, or use `--once`"
    )


def _suspend_key() -> str:
    """Ctrl-Z, or what the user has in its place, which is a key from now on.

    As a signal it would be lost now and then: curses ignores SIGTSTP while it draws.
    """
    settings = termios.tcgetattr(0)
    characters = settings[6]
    key: bytes = characters[termios.VSUSP]
    characters[termios.VSUSP] = disabled = bytes([os.fpathconf(0, "PC_VDISABLE")])
    termios.tcsetattr(0, termios.TCSANOW, settings)
    curses.def_prog_mode()  # also after it was suspended
    return "" if key == disabled else key.decode("latin-1")


def _hide_cursor() -> None:
    try:
        curses.curs_set(0)
    except curses.error:  # this terminal cannot
        return


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = {one: signal.signal(one, end) for one in _ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class _Styles:
    """Attributes of curses by the names of styles; without colour where that is not wanted, or not there."""

    def __init__(self) -> None:
        self._attributes = {"bold": curses.A_BOLD, "dim": curses.A_DIM, "reverse": curses.A_REVERSE}
        try:
            curses.start_color()
            curses.use_default_colors()
        except curses.error:
            return
        if curses.has_colors() and not os.environ.get("NO_COLOR"):
            for number, (name, colour) in enumerate(_COLOURS.items(), 1):
                curses.init_pair(number, colour, -1)
                self._attributes[name] = curses.color_pair(number)

    def __getitem__(self, style: str) -> int:
        found = 0
        for name in style.split():
            found |= self._attributes.get(name, 0)
        return found


def _draw(window: Any, lines: Sequence[Line], styles: _Styles) -> None:
    window.erase()
    for row, line in enumerate(lines):
        column = 0
        for style, text in line.spans:
            try:
                window.addstr(row, column, text.encode(window.encoding, "replace"), styles[style])
            except curses.error:  # the last cell of the last line: it is written, the cursor has no place to go
                break
            column = window.getyx()[1]
    window.refresh()


def _key(window: Any, suspend: str) -> str:
    """The next key: a character, or its name; empty where none was pressed, or one that means nothing here."""
    try:
        key = window.get_wch()
    except curses.error:
        return ""
    if key == suspend:
        os.killpg(0, signal.SIGTSTP)  # all of the job, as the terminal does; curses leaves the screen, and comes back
        return ""
    if key == curses.KEY_RESIZE:
        curses.update_lines_cols()
        return ""
    return _KEYS.get(key, key if isinstance(key, str) and key.isprintable() else "")
