"""Programs that run inside of the booted machine, each by itself, with the Python that tpuwatch is installed in."""
