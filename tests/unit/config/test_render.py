from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomli

from tests.paths import ROOT
from tpuwatch.config import Config, as_dict, load_config, show
from tpuwatch.config.render import render_example
from tpuwatch.config.schema import ConfigKey, config_keys

EXAMPLE = ROOT / "config.example.toml"


def test_the_example_in_the_repository_is_that_of_the_schema() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "tpuwatch.config"], capture_output=True, text=True, timeout=30, check=True
    )
    assert made.stdout == render_example()
    assert EXAMPLE.read_text() == render_example(), "run: python -m tpuwatch.config > config.example.toml"


def test_the_example_gives_the_defaults_and_lists_each(tmp_path: Path) -> None:
    uncommented = re.sub(r"^#(?=\w)", "", render_example(), flags=re.MULTILINE)
    assert tomli.loads(uncommented) == as_dict(Config())["values"]
    for text in (render_example(), uncommented):
        (tmp_path / "config.toml").write_text(text)
        assert as_dict(load_config(tmp_path / "config.toml", {}))["values"] == as_dict(Config())["values"]


@pytest.mark.parametrize("key", config_keys(), ids=lambda key: key.name)
def test_each_key_has_a_meaning_and_states_what_it_allows(key: ConfigKey) -> None:
    meaning, allowed = key.meaning, key.allowed
    assert meaning.endswith(".")
    assert allowed
    assert f"# Give {allowed}."[:60] in render_example()


def test_effective_values_are_shown_as_toml_with_its_origin(tmp_path: Path) -> None:
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
    document = json.loads(json.dumps(as_dict(load_config(path, {}))))
    assert document["source"] == str(path)
    assert document["from_file"] == ["state.max_mib"]
    assert document["values"]["state"] == {"dir": "/var/lib/tpuwatch", "max_age_days": 30, "max_mib": 64}
