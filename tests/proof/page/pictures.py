"""Draw the pictures of docs/page.md: `python -m tests.proof.page.pictures [DIRECTORY]`, with `--all` in all forms."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.paths import ROOT
from tests.proof.page import stage
from tests.proof.page.browser import Browser, chromium, missing

MAX_BYTES: Final = 150_000
SIZES: Final = {"desktop": (1280, 800), "phone": (390, 844)}
# What the documentation shows; `--all` draws each scene in each size, light and dark.
SHOWN: Final = (
    "training-desktop-light",
    "stuck-desktop-dark",
    "oom-phone-light",
    "fleet-desktop-light",
    "fleet-phone-dark",
)


class Painter:
    """Writes the pictures of one scene after the other."""

    def __init__(self, browser: Browser, directory: Path, *, everything: bool) -> None:
        self._browser, self._directory, self._everything = browser, directory, everything

    def paint(self, scene: str, daemon: DaemonInCloud) -> None:
        for size, (width, height) in SIZES.items():
            for light in ("light", "dark"):
                name = f"{scene}-{size}-{light}"
                if self._everything or name in SHOWN:
                    with self._browser.tab(width=width, height=height, dark=light == "dark") as tab:
                        tab.open(f"http://{daemon.address}/")
                        path = self._directory / f"{name}.png"
                        tab.picture(path, whole=False)
                        print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tpuwatch-page-") as name:
        yield Path(name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.page.pictures", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "docs" / "page")
    parser.add_argument("--all", action="store_true", help="each scene in each size, light and dark")
    args = parser.parse_args()
    if why := missing():
        print(f"skipped: {why}")
        return 0
    args.directory.mkdir(exist_ok=True)
    with _scratch() as scratch, chromium(scratch / "profile") as browser:
        painter = Painter(browser, args.directory, everything=args.all)
        with stage.node(scratch / "node") as daemon:
            painter.paint("training", daemon)
            stage.hbm_oom(daemon)
            painter.paint("oom", daemon)
        with stage.node(scratch / "stuck") as daemon:
            stage.stuck(daemon)
            stage.settle(daemon)
            painter.paint("stuck", daemon)
        with stage.fleet(scratch / "fleet") as daemon:
            painter.paint("fleet", daemon)
    large = [path.name for path in args.directory.glob("*.png") if path.stat().st_size > MAX_BYTES]
    if large:
        print(f"larger than {MAX_BYTES} bytes: {', '.join(large)}", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
