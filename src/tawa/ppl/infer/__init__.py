"""Inference methods, how programs are run, and what comes out."""
