"""Evaluation of programs: by NumPy, which is the oracle, or with another library's arrays."""
