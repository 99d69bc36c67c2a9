"""Has xprof read a trace, and passes on the few tables of it that tpuwatch uses.

The interpreter that has xprof runs this file by its path: it imports nothing of tpuwatch, and needs Python 3.10. Its
argument is a JSON object with the files of one profile, which are copies: xprof writes its caches beside them. It
writes a JSON object a line to the descriptor `report`: {"stage": NAME}, {"tables": {...}}, or {"error": {...}}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_MAX_STEPS = 500
_MAX_OPERATIONS = 20
_MAX_TEXT = 400


def main(request: dict[str, Any]) -> int:
    """Returns the exit status."""
    out = os.fdopen(request["report"], "w", buffering=1)

    def report(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")

    report(stage="import")
    try:
        from xprof.convert import raw_to_tool_data
    except ImportError as error:
        report(error={"kind": "interpreter", "message": f"{sys.executable} cannot import xprof: {error}"})
        return 1
    tables: dict[str, Any] = {}
    for tool in ("overview_page", "input_pipeline_analyzer", "framework_op_stats"):
        report(stage=tool)
        try:
            data, _ = raw_to_tool_data.xspace_to_tool_data(request["files"], tool, {})
            tables[tool] = None if data is None else _tables(json.loads(data))
        except Exception as error:  # it raises what it likes for a file that is no trace
            report(error={"kind": "trace", "message": f"{type(error).__name__}: {error}"[:_MAX_TEXT]})
            return 1
    tables["categories"] = _categories(raw_to_tool_data, request["files"])
    report(tables=tables)
    return 0


def _categories(convert: Any, files: list[str]) -> dict[str, Any]:
    """The device's time by kind of operation, and its FLOPs as a share of the peak. Empty without a device."""
    try:
        data, _ = convert.xspace_to_tool_data(files, "op_profile", {})
        programs = json.loads(data)["byProgram"].get("children") or []
    except Exception:  # a trace of a CPU has none
        return {}
    found: dict[str, float] = {}
    for program in programs:
        for one in program.get("children") or []:
            found[one["name"]] = found.get(one["name"], 0.0) + float(one["metrics"].get("rawTime") or 0.0)
    longest = sorted(found.items(), key=lambda one: -one[1])[:_MAX_OPERATIONS]
    flops = sum(float(program["metrics"].get("flops") or 0.0) for program in programs)
    return {"picoseconds": {name[:_MAX_TEXT]: time for name, time in longest}, "flops_share": flops}


def _tables(document: Any) -> list[dict[str, Any]]:
    """Each table's properties and first rows, a row as an object by the columns' ids."""
    found = []
    for table in document if isinstance(document, list) else [document]:
        names = [column["id"] for column in table.get("cols", [])]
        most = _MAX_STEPS if "stepnum" in names else _MAX_OPERATIONS
        rows = [[cell.get("v") if cell else None for cell in row["c"]] for row in table.get("rows", [])[:most]]
        short = [{name: _short(value) for name, value in zip(names, row, strict=False)} for row in rows]
        found.append(
            {"properties": {name: _short(value) for name, value in (table.get("p") or {}).items()}, "rows": short}
        )
    return found


def _short(value: Any) -> Any:
    return value[:_MAX_TEXT] if isinstance(value, str) else value


if __name__ == "__main__":
    # This file's directory must not hide modules of the standard library.
    sys.path[:] = [place for place in sys.path if place != os.path.dirname(os.path.abspath(__file__))]
    sys.exit(main(json.loads(sys.argv[1])))
