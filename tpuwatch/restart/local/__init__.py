"""What is done on the machine itself: asking for a checkpoint, ending who holds the TPU, restarting the runtime."""
