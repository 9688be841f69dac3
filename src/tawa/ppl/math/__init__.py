"""Functions and distributions, written in the subset itself: the same bits wherever they run."""
