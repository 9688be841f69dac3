"""The generated front of a launch: from the arguments of a call to the launcher of its signature.

Two functions are generated. One for each kernel binds arguments as Python does and looks up the
*form* of the call: the classes of the arguments, the constants and the options. One for each form
knows those classes, so it reads dtype, device, address and divisibility in line and looks up the
launcher. Written for speed: nothing is computed twice, no helper is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tawa.constants import freeze
from tawa.errors import ArgumentError
from tawa.frontend.source import UNSET, contents
from tawa.layouts.windows import Window
from tawa.runtime.arrays import is_array, is_tensor
from tawa.runtime.descriptors import is_descriptor, window_of
from tawa.runtime.expressions import value_of
from tawa.runtime.fingerprint import Binding
from tawa.runtime.kernel import KernelFunction, Parameter, is_jit
from tawa.runtime.tensors import opaque, probes, refuse_recorders


class Missing:
    """The class of `MISSING`, the value of an argument that a call does not give."""


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated function and its text, for reading and for tests."""

    function: Callable[..., Any]
    text: str


def generate(text: str, name: str, namespace: Mapping[str, Any]) -> Generated:
    """Execute generated text and return the function `name` that it defines."""
    scope = dict(namespace)
    exec(compile(text, f"<tawa launcher of {name}>", "exec"), scope)
    return Generated(opaque(scope[name]), text)


def make_binder(
    kernel: KernelFunction,
    bindings: Sequence[Binding],
    forms: Mapping[Any, Callable[..., Any]],
    learn: Callable[..., Any],
    renew: Callable[..., Any],
) -> Generated:
    """Generate the function that every launch of a kernel enters.

    `forms` is looked up by the key of a call; `learn(key, options, values, more)` makes a missing
    form, or refuses the call; `renew(grid, values, options)` is called when a variable in
    `bindings` was rebound.
    """
    namespace: dict[str, Any] = {
        "__tawa_forms": forms,
        "__tawa_learn": learn,
        "__tawa_renew": renew,
        "__tawa_missing": MISSING,
        "__tawa_type": type,
    }
    names = "".join(f"{name}, " for name in kernel.names)
    header = _header(kernel.parameters, namespace)
    lines = [f"def {kernel.name}(__tawa_grid, /, {header}**__tawa_options):"]
    given = f"__tawa_grid, ({names}), __tawa_options"
    if checks := changed(bindings, namespace):
        lines += [f"    if {checks}:", f"        return __tawa_renew({given})"]
    key = "".join(_form_key(parameter) for parameter in kernel.parameters)
    lines += [
        f"    __tawa_key = ({key})",
        "    if __tawa_options or __tawa_more:",
        "        __tawa_key += (*__tawa_more, *__tawa_options.items())",
        "    try:",
        "        __tawa_form = __tawa_forms[__tawa_key]",
        "    except (KeyError, TypeError):  # a new form, or one with an unhashable constant",
        f"        __tawa_form = __tawa_learn(__tawa_key, __tawa_options, ({names}), __tawa_more)",
        f"    return __tawa_form(__tawa_grid, __tawa_options, {names})",
    ]
    return generate("\n".join(lines) + "\n", kernel.name, namespace)


def _header(parameters: Sequence[Parameter], namespace: dict[str, Any]) -> str:
    """Spell the parameters with their defaults, which are put into `namespace`.

    What a call does not give becomes `MISSING`, what it gives too much lands in ``__tawa_more``:
    both are forms not seen before, so that the error can name the parameters.
    """
    items: list[str] = []
    for index, parameter in enumerate(parameters):
        if parameter.required:
            items.append(f"{parameter.name}=__tawa_missing")
        else:
            namespace[f"__tawa_default{index}"] = parameter.default
            items.append(f"{parameter.name}=__tawa_default{index}")
    return "".join(f"{item}, " for item in (*items, "*__tawa_more"))


def changed(bindings: Sequence[Binding], namespace: dict[str, Any], tag: str = "") -> str:
    """Spell the test whether a variable in `bindings` was rebound; "" where there is none.

    `namespace` gets what the test names, under names with `tag`.
    """
    checks: list[str] = []
    for index, binding in enumerate(bindings):
        place = f"{tag}{index}"
        namespace[f"__tawa_was{place}"] = binding.value
        if binding.cell is not None:
            namespace |= {f"__tawa_cell{place}": binding.cell, "__tawa_contents": contents}
            checks.append(f"__tawa_contents(__tawa_cell{place}) is not __tawa_was{place}")
        elif binding.namespace is not None:
            namespace |= {f"__tawa_module{place}": binding.namespace, "__tawa_unset": UNSET}
            checks.append(
                f"__tawa_module{place}.get({binding.name!r}, __tawa_unset) is not __tawa_was{place}"
            )
    return " or ".join(checks)


def _form_key(parameter: Parameter) -> str:
    if parameter.constexpr:
        return f"__tawa_type({parameter.name}), {parameter.name}, "
    return f"__tawa_type({parameter.name}), "


def make_form(
    kernel: KernelFunction,
    values: Mapping[str, Any],
    table: Mapping[Any, Callable[..., Any]],
    specialize: Callable[..., Any],
) -> Generated:
    """Generate the function for calls whose arguments have the classes of `values`.

    `table` is looked up by the facts of the arguments; `specialize(key, options, values)` compiles
    a missing entry. The launcher is called with grid, options, and what `launch_names` says.
    """
    from tawa.runtime.arrays import look
    from tawa.runtime.specialize import integer_type, named_error

    namespace: dict[str, Any] = {
        "__table": table,
        "__freeze": freeze,
        "__specialize": specialize,
        "__look": look,
        "__ArgumentError": ArgumentError,
        "__named_error": partial(named_error, kernel.name),
        "__tensor": _tensor_class(),
    }
    reads: list[str] = []
    key: list[str] = []
    aligned: list[str] = []
    narrow: list[str] = []
    for parameter in kernel.parameters:
        facts = _facts(parameter, values[parameter.name])
        reads += facts.reads
        key += facts.key
        if facts.aligned:
            aligned.append(f"{parameter.name}__at")
        if facts.wide:
            narrow.append(value_of(parameter.name))
            namespace[f"__wide_{narrow[-1]}"] = _wide(kernel.name, parameter, integer_type)
    key += _together(aligned, narrow)
    names = "".join(f"{value_of(name)}, " for name in kernel.names)
    given = "".join(f"{name}, " for name in launch_names(values))
    lines = [
        f"def {kernel.name}(__grid, __options, {names}):",
        *(f"    {line}" for line in _guarded(values, reads, namespace)),
        f"    __key = ({''.join(f'{item}, ' for item in key)})",
        "    try:",
        "        __enter = __table[__key]",
        "    except KeyError:",
        f"        __enter = __specialize(__key, __options, ({names}))",
        f"    return __enter(__grid, __options, {given})",
    ]
    return generate("\n".join(lines) + "\n", kernel.name, namespace)


def _guarded(
    values: Mapping[str, Any], reads: Sequence[str], namespace: dict[str, Any]
) -> Sequence[str]:
    """Return the statements that read the arguments, for tensors of torch between tests that they
    have memory, where they have elements, and that torch runs a program and does not record one.
    """
    from tawa.runtime.arrays import look

    tensors = {
        name: value_of(name) + (".base" if is_descriptor(value) else "")
        for name, value in values.items()
        if is_tensor(value) or (is_descriptor(value) and is_tensor(value.base))
    }
    if not tensors:
        return reads
    namespace |= {**probes(), "__refuse": refuse_recorders, "__look": look}
    looked = [f"    __look({array})" for array in tensors.values()]
    return [
        "if __modes() or __levels() is not None:",
        "    __refuse()",
        "try:",
        *(f"    {line}" for line in reads),
        "except RuntimeError:",
        *looked,
        "    raise",
        f"if not ({' and '.join(f'{name}__at' for name in tensors)}):",
        *(
            f"    if not {name}__at and {array}.numel(): __look({array})"
            for name, array in tensors.items()
        ),
    ]


def _together(aligned: Sequence[str], narrow: Sequence[str]) -> list[str]:
    """Return the facts tested for all arguments at once, one by one only where that fails.

    True when every address is a multiple of 16; True when every int is in 0 .. 2^31 - 1.
    """
    key: list[str] = []
    if aligned:
        each = "".join(f"not {name} & 15, " for name in aligned)
        key.append(f"not ({' | '.join(aligned)}) & 15 or ({each})")
    if narrow:
        each = "".join(
            f"-0x80000000 <= {name} <= 0x7FFFFFFF or __wide_{name}({name}), " for name in narrow
        )
        key.append(f"0 <= ({' | '.join(narrow)}) <= 0x7FFFFFFF or ({each})")
    return key


def launch_names(values: Mapping[str, Any]) -> list[str]:
    """Return the names of what a launcher gets: the values, then for each array its address, for
    each descriptor address, shape and strides.
    """
    names = [value_of(name) for name in values]
    for name, value in values.items():
        if is_descriptor(value):
            names += [f"{name}__at", f"{name}__shape", f"{name}__strides"]
        elif is_array(value):
            names.append(f"{name}__at")
    return names


def launch_values(values: Mapping[str, Any]) -> list[Any]:
    """Return what a launcher gets, as `launch_names` names it."""
    from tawa.runtime.arrays import look

    given = list(values.values())
    for value in values.values():
        if is_descriptor(value):
            given += [look(value.base).address, tuple(value.shape), tuple(value.strides)]
        elif is_array(value):
            given.append(look(value).address)
    return given


@dataclass(frozen=True, slots=True)
class _Facts:
    """Statements that read an argument, what of it goes into the key, and what is tested for all:
    whether its address is aligned, whether it is an int of 32 bits.
    """

    reads: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    aligned: bool = False
    wide: bool = False


def _facts(parameter: Parameter, value: Any) -> _Facts:
    name = parameter.name
    if parameter.constexpr or value is None or isinstance(value, bool):
        return _Facts()
    if is_descriptor(value):
        return _descriptor_facts(name, window_of(value))
    if is_array(value):
        return _array_facts(parameter, is_tensor(value))
    if is_jit(value) or type(value).__name__ in ("constexpr", "dtype"):
        return _Facts(key=(f"__freeze({value_of(name)})",))
    return _number_facts(parameter, value)


def _array_facts(parameter: Parameter, tensor: bool) -> _Facts:
    name = parameter.name
    at, value = f"{name}__at", value_of(name)
    aligned = parameter.specialize_pointer
    if tensor:
        reads = (f"{at} = {value}.data_ptr()",)
        return _Facts(reads, (f"{value}.dtype", f"{value}.get_device()"), aligned)
    view = f"{name}__view"
    reads = (
        "try:",
        f"    {view} = __look({value})",
        "except __ArgumentError as __error:",
        f"    raise __named_error({name!r}, __error) from None",
        f"{at} = {view}.address",
    )
    return _Facts(reads, (f"{view}.dtype", f"{view}.device"), aligned)


def _descriptor_facts(name: str, window: Window | None) -> _Facts:
    base, at, kind, value = f"{name}__base", f"{name}__at", f"{name}__kind", value_of(name)
    reads = (
        f"{base} = {value}.base",
        f"if type({base}) is __tensor:",
        f"    {at} = {base}.data_ptr()",
        f"    {kind} = {base}.dtype, {base}.get_device()",
        "else:",
        f"    {base} = __look({base})",
        f"    {at} = {base}.address",
        f"    {kind} = {base}.dtype, {base}.device",
        f"{name}__shape = tuple({value}.shape)",
        f"{name}__strides = tuple({value}.strides)",
    )
    ragged = f"{name}__shape and {name}__shape[-1] & 15"  # where rows end, of elements of any size
    facts = (kind, f"tuple({value}.block_shape)", f"{value}.padding")
    facts += (ragged,) if window is None else (f"{value}.window",)
    return _Facts(reads, facts)


def _number_facts(parameter: Parameter, value: Any) -> _Facts:
    from tawa.runtime.specialize import number

    name = value_of(parameter.name)

    plain = number(value)
    # A NumPy scalar becomes a Python number first.
    reads = () if type(value) is type(plain) or plain is None else (f"{name} = {name}.item()",)
    if not isinstance(plain, int) or isinstance(plain, bool):
        return _Facts(reads)
    key: tuple[str, ...] = ()
    if parameter.specialize_pointer:
        # True: divisible by 16, 2: one, 8: divisible by 8.
        key = (f"not {name} & 15 or {name} == 1 and 2 or not {name} & 7 and 8",)
    elif parameter.specialize:
        key = (f"{name} == 1",)
    return _Facts(reads, key, wide=not parameter.dtype)


def _wide(kernel: str, parameter: Parameter, integer_type: Any) -> Callable[[int], str]:
    return lambda value: integer_type(kernel, parameter.name, value)


def _tensor_class() -> Any:
    import sys

    torch = sys.modules.get("torch")
    return None if torch is None else torch.Tensor
