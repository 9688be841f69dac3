"""From the Python subset of a model to model IR."""
