"""The CUDA side of `tawa.language.extra`: the same device library."""

from __future__ import annotations

from tawa.language.extra import libdevice

__all__ = ["libdevice"]
