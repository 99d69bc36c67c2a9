"""The state machine of a restart. Pure: what the API shows goes in, what to write and to call next comes out."""
