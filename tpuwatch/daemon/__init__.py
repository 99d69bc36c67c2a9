"""The daemon: what it wires together, a side for each of logs, node, restarts and tuning."""
