"""`python -m tpuwatch.config > config.example.toml` regenerates the example."""

from __future__ import annotations

import sys

from tpuwatch.config.render import render_example

sys.stdout.write(render_example())
