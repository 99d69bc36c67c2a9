"""`tpuwatch config check` and `tpuwatch config show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    for name, text in (
        ("check", "check that the configuration and the rules are valid"),
        ("show", "print every effective setting and where it comes from"),
    ):
        action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        options.add_config(action)
        options.add_json(action)


def run(args: argparse.Namespace) -> int:
    """0 if it is valid; a ConfigError lists all errors."""
    config = options.load(args)
    if args.action == "show":
        from tpuwatch.config import as_dict, show

        if args.json:
            options.print_json(as_dict(config))
        else:
            print(show(config), end="")
        return 0
    from tpuwatch.logs import load_catalogue

    catalogue = load_catalogue(config.logs.rules)
    if args.json:
        refused = [str(error) for error in catalogue.refused]
        options.print_json(
            {
                "source": config.source and str(config.source),
                "rules": len(catalogue.rules),
                "refused": refused,
                "slow": list(catalogue.slow),
            }
        )
    else:
        print(f"{config.source or 'The defaults'}: good; {len(catalogue.rules)} rules.")
        for error in catalogue.refused:
            print(f"Refused: {error}")
        for sentence in catalogue.slow:
            print(f"Slow: {sentence}")
    return 1 if catalogue.refused else 0
