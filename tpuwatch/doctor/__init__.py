"""`tpuwatch doctor`: everything that tpuwatch and a TPU job need, looked at once, with the fix for what is wrong."""
