"""Whether something is done about a node, and what. Pure: evidence, ledger and settings go in, a decision comes out."""
