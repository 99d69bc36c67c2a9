"""Tuning: the TPU_* variables of the next launch, decided from what the last ones showed."""
