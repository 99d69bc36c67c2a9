"""`tpuwatch config check` and `tpuwatch config show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    for name, text in (
        ("check", "check the configuration and the rules, and name settings that have no effect"),
        ("show", "print every effective setting and where it comes from"),
    ):
        action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        file = action.add_mutually_exclusive_group()
        file.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the same as --config FILE")
        options.add_config(file)
        options.add_json(action)


def run(args: argparse.Namespace) -> int:
    """0 if it is valid, 1 if a rule is refused; a ConfigError lists all errors."""
    args.config = args.file or args.config
    config = options.load(args)
    if args.action == "show":
        from tpuwatch.config import as_dict, show

        if args.json:
            options.print_json(as_dict(config))
        else:
            print(show(config), end="")
        return 0
    from tpuwatch.config import inconsistencies
    from tpuwatch.core import counted, printable, printable_lines
    from tpuwatch.logs import load_catalogue

    warnings = inconsistencies(config)
    catalogue = load_catalogue(config.logs.rules)
    refused = [str(error) for error in catalogue.refused]
    if args.json:
        options.print_json(
            {
                "source": config.source and str(config.source),
                "warnings": warnings,
                "rules": len(catalogue.rules),
                "refused": refused,
                "slow": list(catalogue.slow),
            }
        )
    else:
        counts = [counted(len(warnings), "warning")] if warnings else []
        counts += [f"{counted(len(refused), 'rule')} refused"] if refused else []
        outcome = ", ".join(["valid", *counts] if counts else ["valid", "consistent"])
        print(f"{printable(str(config.source or 'The defaults'))}: {outcome}; {len(catalogue.rules)} rules loaded.")
        for title, sentences in (("Warning", warnings), ("Refused", refused), ("Slow", catalogue.slow)):
            for sentence in sentences:
                print(f"{title}: {printable_lines(sentence)}")
    return 1 if refused else 0
