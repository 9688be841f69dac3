"""What is decided about a kernel, by whom, and from which facts."""
