"""tpuwatch keeps Cloud TPU VMs training."""

__version__ = "0.1.0"
