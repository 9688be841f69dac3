"""What comes out of a run: draws by name, evidence, diagnostics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from tawa.errors import ModelError
from tawa.ppl.frontend.model import Model, refuse_other
from tawa.ppl.infer import diagnostics
from tawa.ppl.infer.kept import Moments
from tawa.ppl.infer.options import Options
from tawa.ppl.infer.replay import replay

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of a posterior, shaped (chains, draws, ...) by name.

    `value` is what the model returned; `log_evidence` and `log_weights` are those of
    importance, smc and tempered
    (else nan and None). `statistics` are the method's own: acceptance, step sizes, divergences.
    `moments` are those of a run with `moments=True`, which has no draws.
    """

    model: Model
    arguments: tuple[Any, ...]
    options: Options
    draws: Mapping[str, Array]
    value: Any
    log_evidence: float = float("nan")
    log_weights: Array | None = None
    statistics: Mapping[str, Any] = field(default_factory=lambda: {})
    moments: Mapping[str, Moments] = field(default_factory=lambda: {})

    def __getitem__(self, name: str) -> Array:
        """Return the draws of a site."""
        try:
            return self.draws[name]
        except KeyError:
            known = ", ".join(self.draws) or "none"
            raise ModelError(
                f"{self.model.name} has no kept site {name}",
                why=f"kept sites: {known}; a site in recursion or in a loop of "
                f"unknown length has no fixed place",
                remedy="name a site by assigning its sample to a variable, or return the value"
                if not self.moments
                else f"moments=True keeps no draws: see post.moments[{name!r}]",
            ) from None

    def __repr__(self) -> str:
        """Name the sites with the shape of a draw; `summary()` is the table."""
        chains, draws = self.options.chains, self.options.draws
        shapes = {name: array.shape[2:] for name, array in self.draws.items()}
        shapes |= {name: np.shape(each.mean)[1:] for name, each in self.moments.items()}
        sites = ", ".join(name + (str(list(of)) if of else "") for name, of in shapes.items())
        return f"Posterior of {self.model.name}, {chains} x {draws} draws: {sites or 'no sites'}"

    def __contains__(self, name: object) -> bool:
        return name in self.draws

    def __iter__(self) -> Iterable[str]:  # type: ignore[override]
        return iter(self.draws)

    @property
    def divergences(self) -> int:
        """How many draws met a divergent trajectory."""
        return int(np.sum(self.statistics.get("divergent", 0)))

    @property
    def log_likelihood(self) -> Mapping[str, Array]:
        """The log density of each observation, for each draw: arrays (chains, draws, ...) by name.

        An observation has the name that `observe` was given, or `observed`. Terms of `factor`
        are not among them. Raises ModelError where a site has no kept draws.
        """
        return replay(self.model, self.arguments, self.options, self.draws, predictive=False)[0]

    def ess(self, name: str) -> Any:
        """Return the effective sample size of the mean of a site, one an element."""
        return diagnostics.over(diagnostics.ess, self[name])

    def rhat(self, name: str | None = None) -> Any:
        """Return the split rank-normalised R-hat of a site, or the largest of all."""
        if name is not None:
            return diagnostics.over(diagnostics.rhat, self[name])
        return max((float(np.max(self.rhat(n))) for n in self.draws), default=float("nan"))

    def summary(self) -> str:
        """Return mean, deviation, ess and R-hat of each element as a table, then divergences."""
        rows = [f"{'':24}{'mean':>12}{'sd':>12}{'ess':>10}{'rhat':>8}"]
        for name, array in self.draws.items():
            for at in np.ndindex(array.shape[2:]):
                part = array[(slice(None), slice(None), *at)].astype(np.float64)
                label = name + (str(list(at)) if at else "")
                rows.append(
                    f"{label:24}{part.mean():12.5g}{part.std():12.5g}"
                    f"{diagnostics.ess(part):10.0f}{diagnostics.rhat(part):8.3f}"
                )
        for name, each in self.moments.items():
            spread = np.sqrt(each.variance.mean(0) + each.mean.var(0))
            for at in np.ndindex(each.mean.shape[1:]):
                label = name + (str(list(at)) if at else "")
                mean, sd, rhat = each.mean.mean(0)[at], spread[at], each.rhat[at]
                rows.append(f"{label:24}{mean:12.5g}{sd:12.5g}{'':10}{rhat:8.3f}")
        if self.divergences:
            rows.append(f"{self.divergences} draws met a divergent trajectory")
        return "\n".join(rows)

    def to_arviz(self) -> Any:
        """Return the draws as ArviZ has them: a DataTree, InferenceData before its release 1."""
        try:
            convert: Any = import_module("arviz").from_dict
        except ImportError as error:
            raise ModelError("arviz is missing", remedy="pip install arviz") from error
        groups = {"posterior": dict(self.draws)}
        # ArviZ 1 takes one dictionary of groups, earlier releases an argument for each group.
        return convert(groups) if "data" in signature(convert).parameters else convert(**groups)


def predict(model: Model, post: Posterior, *arguments: Any, seed: int = 0) -> Posterior:
    """Run a model with the sites of a posterior's draws; its observations are drawn, not weighed.

    `arguments` are the model's own: other rows of data than those observed, of any length. Sites
    that `post` has no draws of are drawn from their distributions. What is returned has the drawn
    observations by name, the new sites, and what the model returned: one for each draw of `post`.
    Raises ModelError where a site of `post` has another shape here, or cannot be found again.
    """
    refuse_other(model)
    if not isinstance(post, Posterior):  # type: ignore[reportUnnecessaryIsInstance]
        raise ModelError(f"{post!r:.60} is no posterior", remedy="pass what ppl.infer returned")
    options = replace(post.options, seed=seed)
    named, value = replay(model, arguments, options, post.draws, predictive=True)
    return Posterior(model, arguments, options, named, value)
