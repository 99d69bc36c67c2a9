"""Rules for Prometheus; those for findings are made from the table of causes: `make alerts`."""
