"""`python -m tpuwatch`."""

from __future__ import annotations

import sys

from tpuwatch.cli.main import main

sys.exit(main())
