"""The parser: recursive descent, one function a phrase of the grammar in `docs/axon.md`.

Length: the grammar is read as a whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, NoReturn, TypeVar

from tawa.axon.shapes.words import Span
from tawa.axon.syntax.tree import (
    Annotated,
    Binary,
    Call,
    Declaration,
    Fun,
    Group,
    Lambda,
    Let,
    Listed,
    Literal,
    Name,
    Number,
    Operation,
    Pattern,
    Record,
    Relation,
    Size,
    Tree,
    TypeNode,
    Val,
    Variable,
)
from tawa.errors import AxonError

ELEMENTS = (
    "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool",
)  # fmt: skip
_WORDS = (
    "fun", "val", "let", "in", "end", "fn", "forall", "where", "requires", "true", "false", "list",
)  # fmt: skip
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)|(?P<line>\n)|(?P<comment>\(\*)
    |(?P<float>\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)|(?P<int>\d+)
    |(?P<text>"[^"\n]*")|(?P<type>'[A-Za-z]\w*)|(?P<row>\.\.\w*)|(?P<name>[A-Za-z_][\w']*)
    |(?P<sign>->|=>|//|>=|<=|\+\+|[-+*/%(){}\[\],:=.<>~|])""",
    re.VERBOSE,
)
# `where` begins the conditions of a type; in an expression it is the operator of that name.
_ARGUMENT = ("name", "where", "int", "float", "text", "true", "false", "(", "[", "{", "~")
T = TypeVar("T")


class Token(NamedTuple):
    """A word of the text; `kind` is int, float, text, type, row, name, end, or the sign itself."""

    kind: str
    text: str
    place: Span


def parse_program(text: str, file: str = "program.axon") -> list[Declaration]:
    """Return the declarations of a program; raises AxonError with a place."""
    return _Parser(text, file).program()


def parse_type(text: str, file: str = "type") -> TypeNode:
    """Return a type; raises AxonError with a place."""
    parser = _Parser(text, file)
    found = parser.type_with_where()
    parser.expect("end")
    return found


def quoted(lines: Sequence[str], place: Span, note: str = "") -> str:
    """Return the line of a place with carets under it, and a note after them."""
    text = lines[place.line - 1] if place.line <= len(lines) else ""
    carets = "^" * max(1, place.end - place.column)
    return f"{place.line:>4} | {text}\n     | {' ' * (place.column - 1)}{carets} {note}".rstrip()


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self._lines = text.split("\n")
        self._file = file
        self._tokens = self._scan(text)
        self._at = 0

    # Tokens.

    def _scan(self, text: str) -> list[Token]:
        found: list[Token] = []
        at, line, start = 0, 1, 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self._fail(
                    Span(line, at - start + 1, at - start + 2), f"{text[at]!r} means nothing"
                )
            place = Span(line, at - start + 1, match.end() - start + 1)
            kind = match.lastgroup or ""
            if kind == "comment":
                end = self._comment_end(text, at, place)
                line += text.count("\n", at, end)
                start = max(start, text.rfind("\n", 0, end) + 1)
                at = end
                continue
            if kind == "line":
                line, start = line + 1, match.end()
            elif kind != "space":
                word = match.group()
                special = kind == "sign" or word in _WORDS
                found.append(Token(word if special else kind, word, place))
            at = match.end()
        found.append(Token("end", "", Span(line, at - start + 1, at - start + 2)))
        return found

    def _comment_end(self, text: str, at: int, place: Span) -> int:
        depth = 0
        for match in re.compile(r"\(\*|\*\)").finditer(text, at):
            depth += 1 if match.group() == "(*" else -1
            if depth == 0:
                return match.end()
        self._fail(place, "the comment has no end")

    def _fail(self, place: Span, why: str, remedy: str = "") -> NoReturn:
        shown = quoted(self._lines, place)
        text = f"{self._file}:{place}: error: {why}\n{shown}"
        raise AxonError(text, remedy=remedy)

    @property
    def now(self) -> Token:
        return self._tokens[self._at]

    def take(self, *kinds: str) -> Token | None:
        """Take the token if it is of one of these kinds."""
        token = self.now
        if token.kind not in kinds:
            return None
        self._at += 1
        return token

    def expect(self, kind: str, what: str = "") -> Token:
        """Take a token of this kind; else the text is wrong here."""
        token = self.take(kind)
        if token is None:
            self._wrong(what or ("the end" if kind == "end" else f"`{kind}`"))
        return token

    def _wrong(self, wanted: str) -> NoReturn:
        now = self.now
        got = "the end of the text" if now.kind == "end" else f"`{now.text}`"
        self._fail(now.place, f"{wanted} is wanted here, not {got}")

    def _integer(self, token: Token) -> int:
        if len(token.text.lstrip("0")) > 18:
            self._fail(token.place, "a number of more than 18 digits")
        return int(token.text)

    def _float(self, token: Token) -> float:
        value = float(token.text)
        if value == math.inf:
            self._fail(token.place, "a number greater than any float")
        return value

    def _once(self, names: Iterable[tuple[str, Span]], what: str) -> None:
        """Refuse a name that is bound twice at one place."""
        seen: set[str] = set()
        for name, place in names:
            if name in seen:
                self._fail(place, f"{what} `{name}` stands twice", "give it another name")
            seen.add(name)

    def _since(self, start: Span) -> Span:
        last = self._tokens[self._at - 1].place
        end = last.end if last.line == start.line else len(self._lines[start.line - 1]) + 1
        return Span(start.line, start.column, end)

    def _between(self, item: Callable[[], T], close: str, comma: str = ",") -> tuple[T, ...]:
        found: list[T] = []
        while not self.take(close):
            if found and not self.take(comma):
                self._wrong(f"`{comma}` or `{close}`")
            found.append(item())
        return tuple(found)

    # Declarations.

    def program(self) -> list[Declaration]:
        try:
            found = self.declarations()
        except RecursionError:
            self._fail(self.now.place, "this is nested too deeply", "name parts of it with `let`")
        self.expect("end", "`fun` or `val`")
        return found

    def declarations(self) -> list[Declaration]:
        found: list[Declaration] = []
        while token := self.take("fun", "val"):
            found.append(self._fun(token) if token.kind == "fun" else self._val(token))
        return found

    def _val(self, start: Token) -> Declaration:
        name = self.now
        if name.kind == "name" and self._tokens[self._at + 1].kind == ":":
            self._at += 2
            kind = self.type_with_where()
            self.expect("=", "a value, after `=`,")
            pattern = Pattern(name.place, name.text, type=kind)
            return Val(pattern, self.expression(), self._since(start.place))
        pattern = self._pattern()
        self.expect("=")
        return Val(pattern, self.expression(), self._since(start.place))

    def _fun(self, start: Token) -> Fun:
        name = self.expect("name", "the function's name")
        promised: list[Token] = []
        if self.take(":"):
            self.expect("forall")
            while not self.take("."):
                promised.append(self.expect("name", "a dimension variable or `.`"))
            self._once([(token.text, token.place) for token in promised], "the promised size")
        parameters: list[Pattern] = []
        while self.now.kind in ("name", "("):
            parameters.append(self.pattern())
        if not parameters:
            self._wrong("a parameter")
        self._once(_names(parameters), "the name")
        result = self.type() if self.take(":") else None
        requires = self.relations() if self.take("requires") else ()
        self.expect("=")
        body = self.expression()
        sizes = tuple([token.text for token in promised])
        return Fun(name.text, tuple(parameters), body, name.place, sizes, result, requires)

    def _pattern(self) -> Pattern:
        found = self.pattern()
        self._once(_names([found]), "the name")
        return found

    def pattern(self) -> Pattern:
        start = self.now.place
        if token := self.take("name"):
            return Pattern(token.place, token.text)
        self.expect("(", "a name or `(`")
        items = self._between(self._typed_pattern, ")")
        if len(items) == 1:
            return items[0]
        return Pattern(self._since(start), parts=items)

    def _typed_pattern(self) -> Pattern:
        inner = self.pattern()
        if not self.take(":"):
            return inner
        return Pattern(inner.place, inner.name, inner.parts, self.type())

    # Expressions.

    def expression(self) -> Tree:
        start = self.now.place
        if self.take("fn"):
            pattern = self._pattern()
            self.expect("=>")
            return Lambda(pattern, self.expression(), self._since(start))
        value = self._comparison()
        if self.take(":"):
            return Annotated(value, self.type(), self._since(start))
        return value

    def _chain(self, signs: tuple[str, ...], inner: Callable[[], Tree]) -> Tree:
        start = self.now.place
        left = inner()
        while token := self.take(*signs):
            left = Binary(token.text, left, inner(), self._since(start), token.place)
        return left

    def _comparison(self) -> Tree:
        return self._chain(("<", "<=", ">", ">="), self._sum)

    def _sum(self) -> Tree:
        return self._chain(("+", "-", "++"), self._product)

    def _product(self) -> Tree:
        return self._chain(("*", "/", "//", "%"), self._negative)

    def _negative(self) -> Tree:
        start = self.now.place
        if token := self.take("-", "~"):
            return self._minus(start, self._negative(), token)
        return self._application()

    def _minus(self, start: Span, inner: Tree, token: Token) -> Tree:
        if isinstance(inner, Literal) and not isinstance(inner.value, str):
            return Literal(-inner.value, self._since(start))
        return Call(Name("neg", token.place), inner, self._since(start))

    def _application(self) -> Tree:
        start = self.now.place
        found = self._atom()
        while self.now.kind in _ARGUMENT:
            argument = self._atom()
            found = Call(found, argument, self._since(start))
        return found

    def _atom(self) -> Tree:
        token = self.now
        self._at += 1
        match token.kind:
            case "name" | "where":
                return Name(token.text, token.place)
            case "int":
                return Literal(self._integer(token), token.place)
            case "float":
                return Literal(self._float(token), token.place)
            case "text":
                return Literal(token.text[1:-1], token.place)
            case "true" | "false":
                return Literal(int(token.kind == "true"), token.place)
            case "~":
                return self._minus(token.place, self._atom(), token)
            case "(":
                items = self._between(self.expression, ")")
                if len(items) == 1:
                    return items[0]
                return Group(items, self._since(token.place))
            case "[":
                items = self._between(self.expression, "]")
                return Group(items, self._since(token.place), is_list=True)
            case "{":
                fields = self._between(self._field, "}")
                self._once([(name, tree.place) for name, tree in fields], "the option")
                return Record(fields, self._since(token.place))
            case "let":
                declarations = tuple(self.declarations())
                self.expect("in", "`fun`, `val` or `in`")
                body = self.expression()
                self.expect("end")
                return Let(declarations, body, self._since(token.place))
            case _:
                self._at -= 1
                self._wrong("an expression")

    def _field(self) -> tuple[str, Tree]:
        name = self.expect("name", "an option's name")
        self.expect("=")
        return name.text, self.expression()

    # Types.

    def type_with_where(self) -> TypeNode:
        found = self.type()
        if not self.take("where"):
            return found
        return TypeNode("where", found.place, parts=(found,), where=self.relations())

    def type(self) -> TypeNode:
        start = self.now.place
        left = self._product_type()
        if self.take("->"):
            return TypeNode("fun", self._since(start), parts=(left, self.type()))
        return left

    def _product_type(self) -> TypeNode:
        start = self.now.place
        items = [self._list_type()]
        while self.take("*"):
            items.append(self._list_type())
        return (
            items[0]
            if len(items) == 1
            else TypeNode("tuple", self._since(start), parts=tuple(items))
        )

    def _list_type(self) -> TypeNode:
        start = self.now.place
        found = self._atomic_type()
        while self.take("list"):
            count = self.take("name")
            sizes = (Variable(count.text, count.place),) if count else ()
            found = TypeNode("list", self._since(start), parts=(found,), sizes=sizes)
        return found

    def _atomic_type(self) -> TypeNode:
        token = self.now
        start = token.place
        if self.take("("):
            inner = self.type()
            self.expect(")")
            return inner
        if self.take("{"):
            return TypeNode("options", self._since(start), options=self._between(self._option, "}"))
        if token := self.take("type"):
            if not self.take("["):
                return TypeNode("var", token.place, token.text)
            return self._tensor(token)
        token = self.expect("name", "a type")
        match token.text:
            case "int":
                sizes = (self._size_atom(),) if self.now.kind in ("name", "(", "int") else ()
                return TypeNode("int", self._since(start), sizes=sizes)
            case "shape":
                sizes = () if self.now.kind not in ("row", "[") else (self._size_atom(),)
                return TypeNode("shape", self._since(start), sizes=sizes)
            case "each":
                row = self.expect("row", "a row variable")
                return TypeNode("each", self._since(start), sizes=(_row(row),))
            case "text":
                return TypeNode("text", token.place)
            case text if text in ELEMENTS:
                if self.take("["):
                    return self._tensor(token)
                return TypeNode("tensor", token.place, token.text)
            case _:
                self._at -= 1
                self._wrong("a type")

    def _tensor(self, token: Token) -> TypeNode:
        sizes = self._between(self._item, "]")
        return TypeNode("tensor", self._since(token.place), token.text, sizes=sizes)

    def _option(self) -> tuple[str, TypeNode, Tree | None]:
        name = self.expect("name", "an option's name").text
        self.expect(":")
        kind = self.type()
        return name, kind, self.expression() if self.take("=") else None

    def _item(self) -> Size:
        if self.now.kind == "name" and self.now.text == "each":
            self._at += 1
            name = self.expect("name", "a dimension variable")
            return Variable(name.text, name.place, each=True)
        return self.size()

    def relations(self) -> tuple[Relation, ...]:
        found = [self._relation()]
        while self.take(","):
            found.append(self._relation())
        return tuple(found)

    def _relation(self) -> Relation:
        start = self.now.place
        left = self.size()
        token = self.take("=", ">=", "<=")
        if token is None:
            if isinstance(left, Operation):
                return Relation("", left, None, self._since(start))
            self._wrong("`=`, `>=` or `<=`")
        return Relation(token.text, left, self.size(), self._since(start))

    def size(self) -> Size:
        start = self.now.place
        left = self._size_product()
        while token := self.take("+", "-", "++"):
            left = Operation(token.text, (left, self._size_product()), self._since(start))
        return left

    def _size_product(self) -> Size:
        start = self.now.place
        left = self._size_atom()
        while token := self.take("*", "//", "%"):
            left = Operation(token.text, (left, self._size_atom()), self._since(start))
        return left

    def _size_atom(self) -> Size:
        token = self.now
        start = token.place
        if self.take("-", "~"):
            return Operation("-", (Number(0, start), self._size_atom()), self._since(start))
        if self.take("int"):
            return Number(self._integer(token), start)
        if self.take("row"):
            found: Size = _row(token)
            if self.now.kind == "name" and self.now.text == "at":
                self._at += 1
                found = Operation("at", (found, self._size_atom()), self._since(start))
            return found
        if self.take("("):
            inner = self.size()
            self.expect(")")
            return inner
        if self.take("["):
            return Listed(self._between(self.size, "]"), self._since(start))
        name = self.expect("name", "a dimension")
        if name.text in ("sum", "prod", "rank"):
            return Operation(name.text, (self._size_atom(),), self._since(start))
        if self.now.kind == "(":
            self._at += 1
            inputs = self._between(self.size, ")")
            return Operation(name.text, inputs, self._since(start))
        return Variable(name.text, name.place)


def _row(token: Token) -> Variable:
    return Variable(token.text[2:], token.place, row=True)


def _names(patterns: Iterable[Pattern]) -> Iterator[tuple[str, Span]]:
    """Give the names that patterns bind, with their places."""
    for pattern in patterns:
        if pattern.name not in ("", "_"):
            yield pattern.name, pattern.place
        yield from _names(pattern.parts)
