"""The proof: on every compile, from the final hopper IR, that a kernel cannot hang or race.

    from tawa.simulator.proof import prove
    proof = prove(kernel, target)      # raises ProtocolError with a trace, or UnprovedProtocol

The method. Each role becomes a few agents (see `machine`); trip counts and conditions that depend
on the inputs are enumerated (`configuration`, `scalars`). One run of a configuration decides it:
the protocol is shown conflict-free as it runs, so that every order of the agents gives the same
synchronization; a run that ends excludes a hang, and what each agent and each asynchronous copy
knows when it touches memory excludes races, early release and stale phases. `rules` lists all that
is checked.
"""

from __future__ import annotations

from tawa.simulator.proof.rules import RULES, Rule
from tawa.simulator.proof.verdict import Proof, prove

__all__ = ["RULES", "Proof", "Rule", "prove"]
