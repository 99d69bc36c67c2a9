"""The dashboards as Grafana's own schema has them, checked by the TypeScript compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
PACKAGES = ("@grafana/schema@11.6.0", "typescript@5.8.3")
SECONDS = 300
RAW = "./node_modules/@grafana/schema/dist/esm/raw/composable"
CONFIGS = {
    "heatmap": "Heatmap",
    "stat": "Stat",
    "state-timeline": "StateTimeline",
    "table": "Table",
    "timeseries": "TimeSeries",
}
# JSON has strings where the schema has enums.
PLAIN = """
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
"""
SETTINGS = {
    "compilerOptions": {
        "strict": True,
        "noEmit": True,
        "module": "esnext",
        "moduleResolution": "bundler",
        "target": "es2022",
        "skipLibCheck": True,
        "types": [],
    },
    "include": ["*.ts"],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the schema and the compiler, from the package registry."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    directory = tmp_path_factory.mktemp("types")
    (directory / "package.json").write_text('{"private": true}')
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        pytest.skip(f"the schema cannot be installed: {done.stderr.strip()[-200:]}")
    (directory / "tsconfig.json").write_text(json.dumps(SETTINGS))
    return directory


def module(document: dict[str, Any]) -> str:
    """TypeScript in which the dashboard, and each panel's options, have their types."""
    lines = ['import type { Dashboard } from "@grafana/schema";']
    for type_, name in CONFIGS.items():
        source = f"{RAW}/{type_.replace('-', '')}/panelcfg/x/{name}PanelCfg_types.gen"
        lines.append(f'import type {{ Options as {name} }} from "{source}";')
    lines += [PLAIN, f"export const dashboard: Plain<Dashboard> = {json.dumps(document)};"]
    for panel in document["panels"]:
        if panel["type"] == "row":
            continue
        options = json.dumps(panel.get("options", {}))
        lines.append(f"export const options{panel['id']}: Plain<Partial<{CONFIGS[panel['type']]}>> = {options};")
    return "\n".join(lines)


def compiled(project: Path) -> str:
    command = [str(project / "node_modules" / ".bin" / "tsc"), "-p", "."]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=SECONDS, check=False).stdout


def test_the_dashboards_have_the_types_of_grafanas_schema(project: Path) -> None:
    for path in DASHBOARDS.glob("*.json"):
        (project / f"{path.stem}.ts").write_text(module(json.loads(path.read_text(encoding="utf-8"))))
    assert compiled(project) == ""
