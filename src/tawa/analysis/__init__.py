"""Facts about a program: effects, addresses, roles of statements, names, liveness."""
