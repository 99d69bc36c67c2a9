"""Alerts from the fault to the webhook: real Prometheus and Alertmanager, real daemons, a simulated cloud."""
