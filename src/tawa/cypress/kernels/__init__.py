"""The six programs that the paper evaluates, each with two mappings or more."""
