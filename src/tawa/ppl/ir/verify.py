"""The verifier: what a well-formed program is. It guards our own passes."""

from __future__ import annotations

from tawa.errors import InternalError
from tawa.ppl.ir.core import BOOL, I32, Op, Program, Region, Type, Value
from tawa.ppl.ir.operations import EFFECTS, ELEMENTARY, OTHERS, STRUCTURED
from tawa.ppl.ir.text import operation_text


def verify(program: Program, *, handled: bool = False) -> None:
    """Check types, scopes and regions of a program; `handled`: no effect may be left.

    Raises InternalError, which names the operation.
    """
    for region in program.regions():
        _Verifier(program, handled).region(region, set(program.params))


class _Verifier:
    def __init__(self, program: Program, handled: bool) -> None:
        self.program = program
        self.handled = handled

    def region(self, region: Region, known: set[Value]) -> None:
        known = known | set(region.args)
        for op in region.ops:
            for value in op.operands:
                self.expect(value in known, op, f"{value.name or value.type} is not defined here")
            self.operation(op)
            for inner in op.regions:
                self.region(inner, known)
            known |= set(op.results)
        for value in region.yields:
            if value not in known:
                raise InternalError(f"a region yields a {value.type} that is not defined in it")

    def expect(self, holds: bool, op: Op, why: str) -> None:
        if not holds:
            raise InternalError(f"ill-formed operation: {operation_text(op)}", why=why)

    def operation(self, op: Op) -> None:
        if (rule := ELEMENTARY.get(op.code)) is not None:
            types = {value.type for value in op.operands}
            self.expect(len(op.operands) == rule.arity, op, f"it takes {rule.arity} operands")
            self.expect(len(types) == 1, op, "its operands have one type")
            (type_,) = types
            self.expect(not type_.shape, op, "its operands are scalars")
            kind = "float" if type_.is_float else "bool" if type_ == BOOL else "int"
            allowed = {"number": ("float", "int"), "bits": ("int", "bool"), "any": (kind,)}
            self.expect(kind in allowed.get(rule.takes, (rule.takes,)), op, f"takes {rule.takes}")
            gives = BOOL if rule.gives else type_
            self.expect(op.result.type == gives, op, f"it gives {gives}")
            return
        self.expect(op.code in (*STRUCTURED, *EFFECTS, *OTHERS), op, "no such operation")
        self.expect(not (self.handled and op.code in EFFECTS), op, "an effect without a meaning")
        types = tuple(value.type for value in op.operands)
        results = tuple(value.type for value in op.results)
        match op.code:
            case "select":
                self.expect(types[0] == BOOL and types[1] == types[2] == results[0], op, "types")
            case "load":
                rank = len(types[0].shape)
                self.expect(len(types) == rank + 1, op, f"takes {rank} indices")
                self.expect(all(at == I32 for at in types[1:]), op, "indices are i32")
                self.expect(results == (Type(types[0].kind),), op, "it gives an element")
            case "if":
                self.expect(types == (BOOL,), op, "its condition is a bool")
                for region in op.regions:
                    self.yields(op, region, results)
            case "switch":
                self.expect(types == (I32,), op, "its selector is an i32")
            case "for":
                self.expect(types[0] == I32 and types[1:] == results, op, "carried types")
                self.yields(op, op.regions[0], results)
            case "while":
                self.expect(types == results, op, "carried types")
                self.yields(op, op.regions[0], (BOOL,))
                self.yields(op, op.regions[1], results)
            case "build":
                count = op.attrs["count"]
                inner = tuple(Type(t.kind, t.shape[1:]) for t in results)
                self.expect(all(t.shape[0] == count for t in results), op, "results: count rows")
                self.yields(op, op.regions[0], inner)
            case "get" | "set" | "loadvar" | "storevar" | "accumulate":
                declared = self.program.variables.get(op.attrs["name"])
                if declared is None:
                    raise InternalError(f"no variable: {operation_text(op)}")
                if op.code == "get":
                    self.expect(results == (declared,), op, f"the variable is {declared}")
                if op.code == "accumulate":
                    rank = len(declared.shape)
                    self.expect(declared.kind != "bool", op, "of numbers")
                    self.expect(types == (I32,) * rank + (Type(declared.kind),), op, "types")
                if op.code == "set":
                    self.expect(types == (declared,), op, f"the variable is {declared}")
            case "read" | "write":
                self.expect(op.attrs["name"] in self.program.buffers, op, "no such buffer")
            case "call":
                function = self.program.functions.get(op.attrs["name"])
                if function is None:
                    raise InternalError(f"no function: {operation_text(op)}")
                expected = tuple(value.type for value in function.body.args)
                self.expect(types == expected, op, f"its arguments are {expected}")
                returned = tuple(value.type for value in function.body.yields)
                self.expect(results == returned, op, f"it returns {returned}")
            case "run":
                self.expect(op.attrs["name"] in self.program.procedures, op, "no such procedure")
            case _:
                pass

    def yields(self, op: Op, region: Region, types: tuple[Type, ...]) -> None:
        given = tuple(value.type for value in region.yields)
        self.expect(given == types, op, f"a region yields {given}, not {types}")
