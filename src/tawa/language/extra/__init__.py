"""Functions of the device library, under the names Triton gives them."""

from __future__ import annotations

from tawa.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
