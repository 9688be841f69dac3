"""What gives effects a meaning, cuts a program at checkpoints, and derives it."""
