"""`python -m deploy.grafana.build`: write the dashboards' JSON from their code; --check: say which is out of date."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.fleet import fleet
from deploy.grafana.launches import launches
from deploy.grafana.node import node
from deploy.grafana.restarts import restarts

DIRECTORY = Path(__file__).parent / "dashboards"
DASHBOARDS = {"fleet": fleet, "node": node, "launches": launches, "restarts": restarts}


def rendered() -> dict[str, str]:
    """Return each dashboard's JSON by its file's name, its panels numbered in their order."""
    texts = {}
    for name, dashboard in DASHBOARDS.items():
        document = json.loads(json.dumps(dashboard().build(), cls=JSONEncoder))
        for number, panel in enumerate(document["panels"], start=1):
            panel["id"] = number
        for variable in document["templating"]["list"]:
            for key in ("auto", "auto_min", "auto_count"):  # of intervals alone; the SDK writes them for each
                variable.pop(key, None)
        texts[f"{name}.json"] = json.dumps(document, indent=2) + "\n"
    return texts


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with --check compare them; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    check = parser.parse_args(arguments).check
    stale = {name: text for name, text in rendered().items() if _read(DIRECTORY / name) != text}
    if not check:
        DIRECTORY.mkdir(exist_ok=True)
        for name, text in stale.items():
            (DIRECTORY / name).write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{DIRECTORY.name}/{name}: {'out of date: run make dashboards' if check else 'written'}")
    return int(check and bool(stale))


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
