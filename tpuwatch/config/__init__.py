"""The configuration: one schema that feeds validation, the example file and what `tpuwatch config show` prints.

Only this package needs pydantic, whose import takes a quarter of a second: import it where the configuration is needed.
"""

from __future__ import annotations

from tpuwatch.config.load import load_config
from tpuwatch.config.render import as_dict, render_example, show
from tpuwatch.config.schema import Config

__all__ = ["Config", "as_dict", "load_config", "render_example", "show"]
