"""Tile IR to aref IR to hopper IR; `pipeline` lists the passes in order."""
