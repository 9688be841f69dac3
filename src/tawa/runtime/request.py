"""What is asked of the compiler, and the keys by which what it made is found again.

The key on disk holds the text of the kernel with its helpers and globals, the signature, options,
pins and target, and the compiler's own sources; so a change of any of them compiles anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tawa.constants import freeze
from tawa.frontend.signature import ConstantArg, Signature
from tawa.plan.pins import Pins
from tawa.runtime.cubins import nvrtc_version
from tawa.runtime.fingerprint import NAMELESS, compiler_digest, describe
from tawa.runtime.specialize import signature_key
from tawa.target import Target

if TYPE_CHECKING:
    from tawa.ir import tile


@dataclass(frozen=True, slots=True)
class Request:
    """Everything one compilation depends on.

    `text` is that of `function`, a Python one, or tile IR, which has its signature and options
    already; "" where it is not known. `strict` forbids re-association. `descriptors` False keeps
    pointer accesses as they are: the launcher's way out when a guard does not hold. Without `cubin`
    NVRTC, whose word on registers may refuse a plan, is not asked: the simulator takes IR.
    """

    function: Callable[..., Any] | tile.Kernel
    text: str
    signature: Signature
    options: Mapping[str, Any]
    pins: Pins
    target: Target
    strict: bool = False
    descriptors: bool = True
    cubin: bool = True

    @property
    def _how(self) -> tuple[object, ...]:
        how = self.pins, self.target, self.strict, self.descriptors, self.cubin
        return freeze(dict(self.options)), *how

    @property
    def memory_key(self) -> object:
        """The key within the process."""
        return self.text, signature_key(self.signature), *self._how

    @property
    def disk_key(self) -> str:
        """The key on disk; empty when the text is not known, or means nothing elsewhere."""
        if not self.text:
            return ""
        arguments = [
            (name, describe(argument.value) if isinstance(argument, ConstantArg) else argument)
            for name, argument in self.signature.items()
        ]
        text = repr((compiler_digest(), nvrtc_version(), self.text, arguments, *self._how))
        return "" if NAMELESS in text else text
