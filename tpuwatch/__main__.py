"""`python -m tpuwatch`."""

from __future__ import annotations

import sys

import tpuwatch.cli.main

sys.exit(tpuwatch.cli.main.main())
