"""Register layouts, shared-memory placements, and what instructions ask of both."""
