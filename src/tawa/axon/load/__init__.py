"""Importers: graphs of other systems as programs of the language."""
