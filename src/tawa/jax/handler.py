"""The handler that XLA calls at each launch: machine code, which enters no Python.

There is one. What differs from launch to launch is its attribute, an array of 64-bit words that
`words` makes of an image (`tawa.runtime.image`): the bytes handed to the driver, which words of
them are sums of an address and a number, the tensor maps to encode, and what to check first. An
array of words belongs to one process, whose addresses it holds; in another the handler refuses it.

Offsets are those of XLA's ``c_api.h`` (`jax.ffi.include_dir()`, "xla/ffi/api/c_api.h"), version 0.
"""

from __future__ import annotations

import ctypes
import secrets
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tawa.errors import ArgumentError
from tawa.ppl.emit.machine import Machine
from tawa.runtime.image import COUNTERS, Image

_WORD = 8
# Words at the front of an attribute.
_FRONT = (
    *(
        "token",
        "arrays",
        "function",
        "content",
        "bytes",
        "sums",
        "sum_count",
        "tiled",
        "tiled_count",
    ),
    *(
        "windows",
        "windows_count",
        "aligned",
        "aligned_count",
        "distinct",
        "distinct_count",
        "counters",
        "pointers",
    ),
    *("refused", "no_map"),
)
_AT = {name: _WORD * place for place, name in enumerate(_FRONT)}
_SYMBOLS = ("block", "stream", "counter")
"""What comes before the arrays among the symbols of a sum."""
_SUM, _ALIGNED, _DISTINCT = 3, 2, 7
"""Words of one entry of each list."""
_MAPS = {"tiled": "ppppiiii", "windows": "ppppiipiiii"}
"""What the driver's functions that encode maps take after the address: pointers and numbers."""
_INVALID, _EXHAUSTED, _PRECONDITION, _INTERNAL = 3, 8, 9, 13  # XLA_FFI_Error_Code
_METADATA = 1  # XLA_FFI_Extension_Metadata
_ARRAY = 1  # XLA_FFI_AttrType_ARRAY
# XLA_FFI_CallFrame, with its arguments, results and attributes within
_EXTENSION, _API, _CONTEXT = 8, 16, 24
_ARGS, _ARG_PLACES, _RETS, _RET_PLACES = 56, 72, 96, 112
_ATTRS, _ATTR_TYPES, _ATTR_PLACES = 136, 144, 160
_ERROR_CREATE, _STREAM_GET = 48, 80  # in XLA_FFI_Api
_DATA = 24  # in XLA_FFI_Buffer
_ARRAY_DATA = 16  # in XLA_FFI_Array


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of the driver's functions that a launch calls, in this process."""

    launch: int
    encode_tiled: int
    encode_im2col: int


def words(image: Image, arrays: int, function: int, counters: int, token: int) -> list[int]:
    """Return the attribute of a launch.

    `arrays` is how many it has, arguments and results; `function` is the driver's handle of the
    kernel, `counters` the address of a table of `COUNTERS` zero words that lives as long as the
    process (0 where the kernel counts nothing), `token` the handler's own.
    """
    name = image.kernel.name
    tail = bytearray()
    start = _WORD * len(_FRONT)

    def put(data: bytes, alignment: int = _WORD) -> int:
        tail.extend(bytes(-(start + len(tail)) % alignment))
        place = start + len(tail)
        tail.extend(data)
        return place

    def say(text: str) -> int:
        return put(text.encode() + b"\0")

    def symbol(given: int | str) -> int:
        return _SYMBOLS.index(given) if isinstance(given, str) else len(_SYMBOLS) + given

    def pack(rows: Sequence[Sequence[int]]) -> int:
        flat = [number for row in rows for number in row]
        return put(struct.pack(f"<{len(flat)}q", *flat))

    maps: dict[str, list[tuple[int, ...]]] = {name: [] for name in _MAPS}
    for each in image.maps:
        where = each.at, symbol(each.number), each.addend, each.dtype, each.rank
        maps["windows" if each.windows else "tiled"].append((*where, *each.arguments))
    aligned = [
        (symbol(number), say(f"{name}: XLA's array {number} is not aligned to 16 bytes"))
        for number in image.aligned
    ]
    distinct = [
        (
            *(symbol(each.numbers[0]), *each.spans[0]),
            *(symbol(each.numbers[1]), *each.spans[1]),
            say(each.message),
        )
        for each in image.distinct
    ]
    content = put(image.content)
    front = {
        "token": token,
        "arrays": arrays,
        "function": function,
        "content": content,
        "bytes": len(image.content),
        "sums": pack([(each.at, symbol(each.symbol), each.addend) for each in image.sums]),
        "sum_count": len(image.sums),
        **{name: pack(rows) for name, rows in maps.items()},
        **{f"{name}_count": len(rows) for name, rows in maps.items()},
        "aligned": pack(aligned),
        "aligned_count": len(aligned),
        "distinct": pack(distinct),
        "distinct_count": len(distinct),
        "counters": counters,
        "pointers": image.pointers,
        "refused": say(f"{name}: the driver refused the launch, error "),
        "no_map": say(f"{name}: the driver made no tensor map, error "),
    }
    tail.extend(bytes(-len(tail) % _WORD))
    packed = struct.pack(f"<{len(_FRONT)}q", *(front[each] for each in _FRONT))
    return list(struct.unpack(f"<{(start + len(tail)) // _WORD}q", packed + bytes(tail)))


class Handler:
    """The handler of this process; `address` is that of its function, `token` marks its words."""

    def __init__(self, addresses: Addresses, version: tuple[int, int]) -> None:
        self.token = secrets.randbits(62) | 1
        self._machine = Machine(_text(addresses, version, self.token), level=2)
        self.address = self._machine.address


def version_of(header: Path) -> tuple[int, int]:
    """Return the major and minor version of XLA's FFI in a header; ArgumentError where the major
    one is not 0, whose layout is known here.
    """
    found = dict[str, int]()
    for line in header.read_text("utf-8").splitlines():
        match line.split():
            case ["#define", "XLA_FFI_API_MAJOR" | "XLA_FFI_API_MINOR" as name, number]:
                found[name] = int(number)
            case _:
                pass
    if found.get("XLA_FFI_API_MAJOR") != 0:
        raise ArgumentError(
            f"XLA's FFI has version {found.get('XLA_FFI_API_MAJOR')} in this jaxlib",
            why="the handler is written for version 0",
            remedy="use a jaxlib that the extra tawa[jax] allows",
        )
    return 0, found["XLA_FFI_API_MINOR"]


class _Code:
    """LLVM text of one function, written from the top down."""

    def __init__(self) -> None:
        self.locals: list[str] = []
        self.lines: list[str] = []
        self.constants: list[str] = []
        self._count = 0

    def name(self) -> int:
        """Return a number that no name has yet."""
        self._count += 1
        return self._count

    def value(self, text: str) -> str:
        """Return the name of what an instruction gives."""
        made = f"%v{self.name()}"
        self.lines.append(f"  {made} = {text}")
        return made

    def do(self, text: str) -> None:
        """Add an instruction that gives nothing."""
        self.lines.append(f"  {text}")

    def at(self, base: str, offset: int | str) -> str:
        """Return the address `offset` bytes past `base`."""
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, kind: str, base: str, offset: int | str = 0) -> str:
        """Return what lies in memory."""
        return self.value(f"load {kind}, ptr {self.at(base, offset)}, align 1")

    def store(self, kind: str, value: int | str, base: str, offset: int | str = 0) -> None:
        """Write to memory."""
        self.do(f"store {kind} {value}, ptr {self.at(base, offset)}, align 1")

    def room(self, size: int) -> str:
        """Return memory of the frame, of a fixed size."""
        made = f"%v{self.name()}"
        self.locals.append(f"  {made} = alloca [{size} x i8], align 16")
        return made

    def text(self, text: str) -> str:
        """Return the address of a text."""
        data = text.encode() + b"\0"
        made = f"@t{self.name()}"
        spelled = "".join(f"\\{byte:02x}" for byte in data)
        self.constants.append(f'{made} = private constant [{len(data)} x i8] c"{spelled}"')
        return made

    def start(self, block: str) -> None:
        """Begin a block, where the one before it goes on."""
        self.do(f"br label %{block}")
        self.lines.append(f"{block}:")

    @contextmanager
    def when(self, condition: str) -> Generator[None]:
        """Write what is done where an i1 is true; it returns, or goes on after."""
        number = self.name()
        self.do(f"br i1 {condition}, label %then{number}, label %else{number}")
        self.lines.append(f"then{number}:")
        yield
        self.start(f"else{number}")

    @contextmanager
    def each(self, count: str) -> Generator[tuple[str, str]]:
        """Write a loop over 0 .. count - 1; gives its number, and the block to leave for."""
        number, place = self.name(), self.room(_WORD)
        self.store("i64", 0, place)
        self.start(f"head{number}")
        index = self.load("i64", place)
        more = self.value(f"icmp ult i64 {index}, {count}")
        self.do(f"br i1 {more}, label %body{number}, label %done{number}")
        self.lines.append(f"body{number}:")
        yield index, f"done{number}"
        self.store("i64", self.value(f"add i64 {index}, 1"), place)
        self.do(f"br label %head{number}")
        self.lines.append(f"done{number}:")

    def entry(self, base: str, index: str, size: int) -> str:
        """Return the address of an entry of `size` words of a list."""
        return self.at(base, self.value(f"mul i64 {index}, {_WORD * size}"))


def _text(addresses: Addresses, version: tuple[int, int], token: int) -> str:
    code = _Code()
    _metadata(code, version)
    words = _attribute(code, token)
    symbols, block = _symbols(code, words)
    _checks(code, words, symbols)
    for name, function in zip(_MAPS, (addresses.encode_tiled, addresses.encode_im2col)):
        _encode(code, words, symbols, block, name, function)
    pointers = code.at(block, code.load("i64", words, _AT["pointers"]))
    kernel = code.load("ptr", words, _AT["function"])
    status = code.value(
        f"call i32 inttoptr (i64 {addresses.launch} to ptr)(ptr {block}, ptr {kernel},"
        f" ptr {pointers}, ptr null)"
    )
    _driver(code, words, status, "refused")
    code.do("ret ptr null")
    body = "\n".join([*code.locals, "  br label %begin", "begin:", *code.lines])
    return "\n".join([*code.constants, _FAIL, f"define ptr @kernel(ptr %frame) {{\n{body}\n}}", ""])


_FAIL = f"""
define private ptr @fail(ptr %frame, ptr %message, i32 %code) {{
  %given = alloca [32 x i8], align 16
  store i64 28, ptr %given
  %next = getelementptr i8, ptr %given, i64 8
  store ptr null, ptr %next
  %text = getelementptr i8, ptr %given, i64 16
  store ptr %message, ptr %text
  %kind = getelementptr i8, ptr %given, i64 24
  store i32 %code, ptr %kind
  %api_at = getelementptr i8, ptr %frame, i64 {_API}
  %api = load ptr, ptr %api_at
  %create_at = getelementptr i8, ptr %api, i64 {_ERROR_CREATE}
  %create = load ptr, ptr %create_at
  %error = call ptr %create(ptr %given)
  ret ptr %error
}}
"""


def _refuse(code: _Code, condition: str, message: str, kind: int) -> None:
    with code.when(condition):
        error = code.value(f"call ptr @fail(ptr %frame, ptr {message}, i32 {kind})")
        code.do(f"ret ptr {error}")
        code.lines.append(f"never{code.name()}:")


def _metadata(code: _Code, version: tuple[int, int]) -> None:
    """Answer what XLA asks when a handler is registered."""
    extension = code.load("ptr", "%frame", _EXTENSION)
    with code.when(code.value(f"icmp ne ptr {extension}, null")):
        kind = code.load("i32", extension, 8)
        with code.when(code.value(f"icmp eq i32 {kind}, {_METADATA}")):
            metadata = code.load("ptr", extension, 24)
            code.store("i32", version[0], metadata, 24)
            code.store("i32", version[1], metadata, 28)
            code.store("i32", 0, metadata, 32)  # no trait: nothing is recorded into graphs
            code.do("ret ptr null")
            code.lines.append(f"never{code.name()}:")


def _attribute(code: _Code, token: int) -> str:
    """Return the address of the words, once it is sure that they are ours."""
    count = code.load("i64", "%frame", _ATTRS)
    strange = code.text("tawa: a launch has one attribute, an array of words")
    _refuse(code, code.value(f"icmp ne i64 {count}, 1"), strange, _INVALID)
    kind = code.load("i32", code.load("ptr", "%frame", _ATTR_TYPES))
    _refuse(code, code.value(f"icmp ne i32 {kind}, {_ARRAY}"), strange, _INVALID)
    array = code.load("ptr", code.load("ptr", "%frame", _ATTR_PLACES))
    words = code.load("ptr", array, _ARRAY_DATA)
    other = code.value(f"icmp ne i64 {code.load('i64', words)}, {token}")
    _refuse(
        code,
        other,
        code.text(
            "tawa: this executable was compiled by another process, whose loaded kernels it holds;"
            " compile it anew"
        ),
        _PRECONDITION,
    )
    given = code.load("i64", "%frame", _ARGS)
    total = code.value(f"add i64 {given}, {code.load('i64', '%frame', _RETS)}")
    expected = code.load("i64", words, _AT["arrays"])
    text = code.text("tawa: the launch has another number of arrays than it was traced with")
    _refuse(code, code.value(f"icmp ne i64 {total}, {expected}"), text, _INVALID)
    return words


def _symbols(code: _Code, words: str) -> tuple[str, str]:
    """Return the symbols' values, and the block: the image, with its sums in their places."""
    arrays = code.load("i64", words, _AT["arrays"])
    room = code.value(f"add i64 {arrays}, {len(_SYMBOLS)}")
    symbols = code.value(f"alloca i64, i64 {room}, align 8")
    size = code.load("i64", words, _AT["bytes"])
    block = code.value(f"alloca i8, i64 {size}, align 64")
    content = code.at(words, code.load("i64", words, _AT["content"]))
    with code.each(size) as (index, _):
        code.store("i8", code.load("i8", content, index), block, index)
    code.store("i64", code.value(f"ptrtoint ptr {block} to i64"), symbols)

    asked = code.room(32)
    code.store("i64", 32, asked)
    code.store("ptr", "null", asked, 8)
    code.store("ptr", code.load("ptr", "%frame", _CONTEXT), asked, 16)
    code.store("ptr", "null", asked, 24)
    get = code.load("ptr", code.load("ptr", "%frame", _API), _STREAM_GET)
    error = code.value(f"call ptr {get}(ptr {asked})")
    with code.when(code.value(f"icmp ne ptr {error}, null")):
        code.do(f"ret ptr {error}")
        code.lines.append(f"never{code.name()}:")
    stream = code.load("i64", asked, 24)
    code.store("i64", stream, symbols, _WORD)
    _counter(code, words, symbols, stream)

    given = code.load("i64", "%frame", _ARGS)
    for count, offset, first in (
        (given, _ARG_PLACES, "0"),
        (code.load("i64", "%frame", _RETS), _RET_PLACES, given),
    ):
        places = code.load("ptr", "%frame", offset)
        with code.each(count) as (index, _):
            buffer = code.load("ptr", code.entry(places, index, 1))
            number = code.value(f"add i64 {index}, {first}")
            place = code.value(f"add i64 {number}, {len(_SYMBOLS)}")
            code.store("i64", code.load("i64", buffer, _DATA), code.entry(symbols, place, 1))

    sums = code.at(words, code.load("i64", words, _AT["sums"]))
    with code.each(code.load("i64", words, _AT["sum_count"])) as (index, _):
        entry = code.entry(sums, index, _SUM)
        base = code.load("i64", code.entry(symbols, code.load("i64", entry, _WORD), 1))
        value = code.value(f"add i64 {base}, {code.load('i64', entry, 2 * _WORD)}")
        code.store("i64", value, block, code.load("i64", entry))
    return symbols, block


def _counter(code: _Code, words: str, symbols: str, stream: str) -> None:
    """Find the counter of a stream: launches of one stream follow one another, and share it.

    A stream takes the first place of the table that nobody has, and keeps it.
    """
    code.store("i64", 0, symbols, 2 * _WORD)
    table = code.load("ptr", words, _AT["counters"])
    with code.when(code.value(f"icmp ne ptr {table}, null")):
        key = code.value(f"add i64 {stream}, 1")  # 0 is nobody's
        found = code.room(_WORD)
        code.store("i64", COUNTERS, found)
        with code.each(str(COUNTERS)) as (index, done):
            place = code.entry(table, index, 1)
            pair = code.value(f"cmpxchg ptr {place}, i64 0, i64 {key} acq_rel acquire, align 8")
            before = code.value(f"extractvalue {{i64, i1}} {pair}, 0")
            free = code.value(f"icmp eq i64 {before}, 0")
            mine = code.value(f"icmp eq i64 {before}, {key}")
            with code.when(code.value(f"or i1 {free}, {mine}")):
                code.store("i64", index, found)
                code.do(f"br label %{done}")
                code.lines.append(f"never{code.name()}:")
        number = code.load("i64", found)
        text = code.text(f"tawa: a kernel that counts its programs ran on {COUNTERS} streams")
        _refuse(code, code.value(f"icmp eq i64 {number}, {COUNTERS}"), text, _EXHAUSTED)
        code.store("i64", number, symbols, 2 * _WORD)


def _checks(code: _Code, words: str, symbols: str) -> None:
    """Refuse arrays that are not as the kernel was promised."""
    aligned = code.at(words, code.load("i64", words, _AT["aligned"]))
    with code.each(code.load("i64", words, _AT["aligned_count"])) as (index, _):
        entry = code.entry(aligned, index, _ALIGNED)
        address = code.load("i64", code.entry(symbols, code.load("i64", entry), 1))
        odd = code.value(f"icmp ne i64 {code.value(f'and i64 {address}, 15')}, 0")
        _refuse(code, odd, code.at(words, code.load("i64", entry, _WORD)), _PRECONDITION)
    distinct = code.at(words, code.load("i64", words, _AT["distinct"]))
    with code.each(code.load("i64", words, _AT["distinct_count"])) as (index, _):
        entry = code.entry(distinct, index, _DISTINCT)
        ends: list[tuple[str, str]] = []
        for first in (0, 3 * _WORD):
            base = code.load("i64", code.entry(symbols, code.load("i64", entry, first), 1))
            low = code.value(f"add i64 {base}, {code.load('i64', entry, first + _WORD)}")
            high = code.value(f"add i64 {base}, {code.load('i64', entry, first + 2 * _WORD)}")
            ends.append((low, high))
        (low, high), (other_low, other_high) = ends
        one = code.value(f"icmp ult i64 {low}, {other_high}")
        two = code.value(f"icmp ult i64 {other_low}, {high}")
        message = code.at(words, code.load("i64", entry, 6 * _WORD))
        _refuse(code, code.value(f"and i1 {one}, {two}"), message, _PRECONDITION)


def _encode(code: _Code, words: str, symbols: str, block: str, name: str, function: int) -> None:
    maps, kinds = code.at(words, code.load("i64", words, _AT[name])), _MAPS[name]
    with code.each(code.load("i64", words, _AT[f"{name}_count"])) as (index, _):
        size = 5 + len(kinds)
        entry = code.entry(maps, index, size)
        numbers = [code.load("i64", entry, _WORD * place) for place in range(size)]
        at, symbol, addend, dtype, rank, *arguments = numbers
        base = code.load("i64", code.entry(symbols, symbol, 1))

        def small(number: str) -> str:
            return f"i32 {code.value(f'trunc i64 {number} to i32')}"

        given = [f"ptr {code.at(block, at)}", small(dtype), small(rank)]
        given.append(f"i64 {code.value(f'add i64 {base}, {addend}')}")
        given += [
            f"ptr {code.at(block, each)}" if kind == "p" else small(each)
            for kind, each in zip(kinds, arguments, strict=True)
        ]
        status = code.value(f"call i32 inttoptr (i64 {function} to ptr)({', '.join(given)})")
        _driver(code, words, status, "no_map")


def _driver(code: _Code, words: str, status: str, message: str) -> None:
    """Fail with the driver's number where there is one."""
    with code.when(code.value(f"icmp ne i32 {status}, 0")):
        text = code.room(512)
        said = code.at(words, code.load("i64", words, _AT[message]))
        form = code.text("%s%d")
        print_at = ctypes.cast(ctypes.CDLL(None).snprintf, ctypes.c_void_p).value
        code.do(
            f"call i32 (ptr, i64, ptr, ...) inttoptr (i64 {print_at} to ptr)(ptr {text}, i64 512,"
            f" ptr {form}, ptr {said}, i32 {status})"
        )
        error = code.value(f"call ptr @fail(ptr %frame, ptr {text}, i32 {_INTERNAL})")
        code.do(f"ret ptr {error}")
        code.lines.append(f"never{code.name()}:")


__all__ = ["Addresses", "Handler", "version_of", "words"]
