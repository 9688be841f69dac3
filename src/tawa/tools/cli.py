"""The command line: `tawa demo`, `tawa explain FILE:KERNEL`, `tawa trace FILE:KERNEL`,
`tawa build FILE:KERNEL`, `tawa lift FILE:KERNEL`, `tawa opt FILE.mlir`, `tawa cache list`,
`tawa axon check FILE`, `tawa ppl run FILE:MODEL` and `tawa doctor`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tawa.errors import TawaError
from tawa.version import __version__

STAGES = ("tile", "aref", "hopper", "cuda", "ptx", "sass")
_METHODS = "importance mh smc hmc nuts pmmh tempered"
_GIVEN = "arguments and pins: x=f32[1024] BLOCK=128 num_stages=3"
_ARGUMENTS = """\
how arguments are written:
  x=bf16[8192,4096]           an array of that shape and element type, without data
  x=bf16[8192,4096]/t         the same stored transposed
  x=bf16[8192,4096]:128x64    a descriptor of it with block_shape [128, 64]
  K=4096 eps=1e-5 T=True b=None ACTIVATION="'silu'"    what Python writes so
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="tawa", description="Plain tile kernels in, proved warp-specialized kernels out."
    )
    parser.add_argument("--version", action="version", version=f"tawa {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, help: str, description: str = "") -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help, description=description or help)

    def of_kernel(name: str, help: str, description: str) -> argparse.ArgumentParser:
        """Add a command that compiles a kernel for arguments given as text."""
        made = commands.add_parser(
            name,
            help=help,
            description=f"Compile a kernel for arguments given as text, {description}",
            epilog=_ARGUMENTS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.add_argument("kernel", metavar="FILE:KERNEL", help="FILE.py or a module, and the name")
        made.add_argument("--args", nargs="*", default=[], metavar="NAME=VALUE", help=_GIVEN)
        return made

    def json_facts(made: Any) -> None:
        made.add_argument("--json", action="store_true", help="print facts instead of prose")

    text = "compile, prove and run a GEMM and attention"
    json_facts(command("demo", text, f"{text}, on the GPU or in the simulator"))
    explain = of_kernel(
        "explain", "say what the compiler does with a kernel, and why", "and print its report."
    )
    what = explain.add_mutually_exclusive_group()
    what.add_argument("--show", choices=STAGES, help="print a stage instead of the report")
    what.add_argument("--after", metavar="PASS", help="print the IR that a pass left")
    what.add_argument("--passes", action="store_true", help="print what each pass changed")
    json_facts(what)
    what.add_argument("--html", metavar="FILE", help="write source and all stages as one page")
    text = "with --html: run these programs in the simulator, and show the timeline"
    explain.add_argument("--grid", nargs="*", type=int, metavar="N", help=text)
    trace = of_kernel(
        "trace",
        "run a kernel in the simulator and write its timeline",
        "run it in the simulator on\n"
        "small integers, and write the timeline as Chrome trace JSON for ui.perfetto.dev:\n"
        "a track for each warpgroup of each role, for TMA and the tensor cores.",
    )
    text = "programs along x, y, z (1)"
    trace.add_argument("--grid", nargs="*", type=int, default=[1], metavar="N", help=text)
    text = "the timeline (timeline.json)"
    trace.add_argument("--out", default="timeline.json", metavar="FILE", help=text)
    trace.add_argument("--seed", type=int, default=0, help="of the order of roles and the data (0)")
    text = "the order of roles, as of tawa.simulate (random)"
    trace.add_argument("--schedule", default="random", help=text)
    json_facts(trace)
    axon = command(
        "axon",
        "infer the shapes of a program of tawa.axon, or run it",
        "Check a program, or say what a function of it gives for shapes, or run it.",
    )
    axon.add_argument("action", choices=("check", "infer", "run"))
    axon.add_argument("program", metavar="FILE[:FUNCTION]", help="FILE.axon, and for infer and run")
    text = "f32[2,3] (an array), 4, 0.5, '(f32[2,3], 4)'"
    axon.add_argument("--args", nargs="*", default=[], metavar="VALUE", help=text)
    axon.add_argument("--seed", type=int, default=0, help="of the data of arrays (0)")
    json_facts(axon)
    build = of_kernel(
        "build",
        "write a kernel with a launcher in C, for programs without Python",
        "and write its binary,\n"
        "a launcher in C (C99 that is C++ too) and an example in C++ that links with it.",
    )
    build.add_argument("--out", required=True, metavar="DIR", help="the folder, made if need be")
    json_facts(build)
    of_kernel(
        "lift",
        "print a kernel and the planner's decisions as tasks and a mapping",
        "and print it as a program of\ntawa.cypress, whose mapping says what the planner decided.",
    )
    opt = command(
        "opt",
        "run passes of the compiler on IR as text",
        "Read one kernel, run passes on it in the order given, and print it.",
    )
    opt.add_argument("file", nargs="?", default="-", metavar="FILE.mlir", help="- for a pipe (-)")
    opt.add_argument(
        "--pass", dest="passes", action="append", default=[], metavar="NAME", help="may be repeated"
    )
    opt.add_argument("--plan", default="", metavar="FILE", help="a plan; else the planner's")
    opt.add_argument("--list", action="store_true", help="print the passes instead")
    kept = command(
        "cache",
        "the kernels and tunings on disk: list them, show the tables of tunings, remove all",
    )
    kept.add_argument("action", choices=("list", "clear", "tunings"))
    json_facts(command("doctor", "say what this machine can do, and what is missing"))
    ppl = command("ppl", "draw from the posterior of a model of tawa.ppl, or print its IR")
    ppl.add_argument("action", choices=("run", "show"), help="draw from a posterior; print the IR")
    ppl.add_argument("model", metavar="FILE:MODEL", help="FILE.py or a module, and the name")
    ppl.add_argument(
        "--args", nargs="*", default=[], metavar="VALUE", help="such as 3 0.5 [28,8,-3]"
    )
    ppl.add_argument("--method", default="nuts", help=f"{_METHODS} (nuts)")
    ppl.add_argument("--options", nargs="*", default=[], metavar="NAME=VALUE", help="draws=1000")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, 1 for a bad result, 2 for an error."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        match options.command:
            case "demo":
                return _demo(options.json)
            case "explain":
                return _explain(options)
            case "trace":
                return _trace(options)
            case "ppl":
                return _ppl(options)
            case "axon":
                from tawa.axon.command import main as axon

                return axon(options)
            case "build":
                return _build(options)
            case "lift":
                return _lift(options)
            case "cache":
                from tawa.tools.cache import main as cache

                return cache(options.action)
            case "opt":
                return _opt(options)
            case _:
                return _doctor(options.json)
    except TawaError as error:
        print(f"tawa: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        sys.stderr.close()
        return 0


def _demo(as_json: bool) -> int:
    from tawa.tools import demo, demo_attention

    if not as_json:
        return demo.main()
    from tawa.tools.explain import describe

    torch = demo.torch_with_hopper()
    facts: dict[str, object] = {}
    right = True
    for name, part in (("product", demo), ("attention", demo_attention)):
        compiled = part.compile_sample()
        outcome = part.simulate() if torch is None else part.run_on_gpu(torch)
        facts[name] = {"compiled": describe(compiled), "result": asdict(outcome)}
        right = right and outcome.ok
    print(json.dumps(facts, indent=1))
    return 0 if right else 1


def _asked(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return the kernel that a command names, and its arguments by name."""
    from tawa.tools.arguments import read_arguments
    from tawa.tools.explain import check_arguments, find_kernel

    kernel, given = find_kernel(options.kernel), read_arguments(options.args)
    check_arguments(kernel, given)
    return kernel, given


def _explain(options: argparse.Namespace) -> int:
    from tawa.runtime.progress import line_on
    from tawa.tools.explain import describe

    kernel, given = _asked(options)
    with line_on(sys.stderr):
        compiled = kernel.compile(**given)
    if options.html:
        timeline = None
        if options.grid is not None:
            from tawa.runtime.simulation import simulate
            from tawa.tools.arguments import filled

            timeline = simulate(kernel, grid=tuple(options.grid), **filled(given))
        Path(options.html).write_text(compiled.html(timeline), encoding="utf-8")
        print(f"wrote {options.html}")
    elif options.after:
        from tawa.runtime.replay import after_pass

        print(after_pass(compiled, options.after))
    elif options.passes:
        from tawa.runtime.replay import replay

        for step in replay(compiled):
            print(step)
    elif options.show:
        print(compiled.asm.text(options.show))
    elif options.json:
        print(json.dumps(describe(compiled), indent=1))
    else:
        print(compiled)
    return 0


def _trace(options: argparse.Namespace) -> int:
    from tawa.runtime.progress import line_on
    from tawa.runtime.simulation import simulate
    from tawa.tools.arguments import busy, filled

    kernel, given = _asked(options)
    how = {"seed": options.seed, "schedule": options.schedule, "timeline": options.out}
    with line_on(sys.stderr):
        timeline = simulate(kernel, grid=tuple(options.grid), **how, **filled(given, options.seed))
    tracks = busy(timeline)
    if options.json:
        print(json.dumps({"end": timeline.end, "tracks": tracks, "file": options.out}, indent=1))
        return 0
    width = max((len(name) for name in tracks), default=0)
    for name, spent in tracks.items():
        print(f"{name:<{width}}  works {spent['work']:8.0f}, waits {spent['wait']:8.0f} ns")
    print(f"{timeline.end:.0f} ns of the simple machine; timeline in {options.out}")
    return 0


def _build(options: argparse.Namespace) -> int:
    from tawa.runtime.progress import line_on
    from tawa.tools.aot.build import build
    from tawa.tools.arguments import read_arguments
    from tawa.tools.explain import find_kernel

    with line_on(sys.stderr):
        files = build(find_kernel(options.kernel), read_arguments(options.args), Path(options.out))
    if options.json:
        print(json.dumps({"files": [str(path) for path in files]}, indent=1))
        return 0
    for path in files:
        print(f"wrote {path}")
    print(f"c++ -std=c++17 {files[0].with_suffix('.c')} {files[-1]} -lcuda")
    return 0


def _lift(options: argparse.Namespace) -> int:
    from tawa.runtime.progress import line_on
    from tawa.tools.lift import lift

    kernel, given = _asked(options)
    with line_on(sys.stderr):
        text = lift(kernel.compile(**given))
    print(text, end="")
    return 0


def _ppl(options: argparse.Namespace) -> int:
    from tawa.ppl.command import command
    from tawa.ppl.frontend.model import Model
    from tawa.tools.explain import find_named

    model = find_named(options.model, "model", lambda each: isinstance(each, Model))
    return command(model, options)


def _opt(options: argparse.Namespace) -> int:
    from tawa.tools.opt import list_passes, opt

    if options.list:
        for line in list_passes():
            print(line)
        return 0
    text, declined = opt(options.file, options.passes, options.plan)
    print(text)
    for note in declined:
        print(f"declined {note.feature}: {note.reason}", file=sys.stderr)
    return 0


def _doctor(as_json: bool) -> int:
    from tawa.tools.doctor import abilities, examine

    findings = examine()
    able = abilities(findings)
    broken = any(finding.verdict == "broken" for finding in findings)
    if as_json:
        print(json.dumps({"findings": [asdict(f) for f in findings], "able": able}, indent=1))
        return 1 if broken else 0
    for finding in findings:
        print(f"{finding.verdict:<8} {finding.subject:<22} {finding.detail}")
    print()
    for what, yes in able.items():
        print(f"{what}: {'yes' if yes else 'no'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
