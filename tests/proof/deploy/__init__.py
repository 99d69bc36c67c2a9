"""What is in deploy/, checked by the tools of those who made its languages. `make deploy` has them."""
