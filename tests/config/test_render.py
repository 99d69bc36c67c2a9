from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

from tpuwatch.config import Config, as_dict, load_config, render_example, show
from tpuwatch.config.schema import settings

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"


def test_the_example_in_the_repository_is_that_of_the_schema() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "tpuwatch.config"], capture_output=True, text=True, timeout=30, check=True
    )
    assert made.stdout == render_example()
    assert EXAMPLE.read_text() == render_example(), "run: python -m tpuwatch.config > config.example.toml"


def test_the_example_as_it_is_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(render_example())
    assert as_dict(load_config(tmp_path / "config.toml", {}))["values"] == as_dict(Config())["values"]


def test_the_example_without_its_signs_says_every_default() -> None:
    spoken = re.sub(r"^#(?=\w)", "", render_example(), flags=re.MULTILINE)
    assert tomli.loads(spoken) == as_dict(Config())["values"]


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.name)
def test_each_key_has_a_meaning_and_says_what_it_allows(setting: object) -> None:
    meaning, allowed = setting.meaning, setting.allowed  # type: ignore[attr-defined]  # a Setting
    assert meaning.endswith(".")
    assert allowed
    assert f"# Give {allowed}."[:60] in render_example()


def test_what_holds_is_shown_as_toml_with_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[logs]\npaths = ["/q\\"uote\\u007f ü"]\n[log]\nlevel = "info"\n')
    config = load_config(path, {})
    text = show(config)
    assert tomli.loads(text) == as_dict(config)["values"]
    assert text.startswith(f'# read from "{path}"\n')
    assert 'level = "info"  # file\n' in text
    assert 'format = "line"  # default\n' in text
    assert show(Config()).startswith("# no configuration file: all defaults\n")


def test_the_json_form_names_source_and_origins(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[state]\nmax_mib = 64\n")
    told = json.loads(json.dumps(as_dict(load_config(path, {}))))
    assert told["source"] == str(path)
    assert told["from_file"] == ["state.max_mib"]
    assert told["values"]["state"] == {"dir": "/var/lib/tpuwatch", "max_age_days": 30, "max_mib": 64}
