"""Restarting what is stuck: a pure policy, a durable ledger, and an executor that anybody can carry on."""
