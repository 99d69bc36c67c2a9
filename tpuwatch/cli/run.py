"""`tpuwatch run`: the daemon, in the foreground."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_config(parser)
    parser.epilog = (
        "SIGTERM and Ctrl-C store what was read and end it; SIGHUP reads the configuration and the rules again."
    )


def run(args: argparse.Namespace) -> int:
    """Work until a signal comes; 0 after an orderly end."""
    from tpuwatch.core import SystemClock, set_up_logging
    from tpuwatch.daemon import Daemon

    config = options.load(args)
    set_up_logging(config.log.format, config.log.level)
    daemon = Daemon(lambda: options.load(args), clock=SystemClock())
    daemon.handle_signals()
    gc.collect()
    gc.freeze()  # what start-up left behind stays; the collector need not look at it again
    daemon.run()
    return 0
