"""A universal probabilistic language for CPU and GPU.

A model is a Python function under `@ppl.model`; its source is compiled with LLVM to a program
that runs as one
chain or one particle a lane: `ppl.infer` runs it. Distributions are `ppl.Normal`, `ppl.Gamma`, ...
"""

from __future__ import annotations

from tawa.ppl.frontend.model import Model as Model
from tawa.ppl.frontend.model import model as model
from tawa.ppl.frontend.words import cholesky as cholesky
from tawa.ppl.frontend.words import cons as cons
from tawa.ppl.frontend.words import digamma as digamma
from tawa.ppl.frontend.words import empty as empty
from tawa.ppl.frontend.words import erf as erf
from tawa.ppl.frontend.words import exp as exp
from tawa.ppl.frontend.words import expm1 as expm1
from tawa.ppl.frontend.words import factor as factor
from tawa.ppl.frontend.words import filter as filter
from tawa.ppl.frontend.words import floor as floor
from tawa.ppl.frontend.words import head as head
from tawa.ppl.frontend.words import lgamma as lgamma
from tawa.ppl.frontend.words import log as log
from tawa.ppl.frontend.words import log1p as log1p
from tawa.ppl.frontend.words import log_prob as log_prob
from tawa.ppl.frontend.words import map as map
from tawa.ppl.frontend.words import nil as nil
from tawa.ppl.frontend.words import observe as observe
from tawa.ppl.frontend.words import put as put
from tawa.ppl.frontend.words import reduce as reduce
from tawa.ppl.frontend.words import repeat as repeat
from tawa.ppl.frontend.words import sample as sample
from tawa.ppl.frontend.words import select as select
from tawa.ppl.frontend.words import solve_lower as solve_lower
from tawa.ppl.frontend.words import sqrt as sqrt
from tawa.ppl.frontend.words import tail as tail
from tawa.ppl.frontend.words import to_list as to_list
from tawa.ppl.frontend.words import to_vector as to_vector
from tawa.ppl.infer.infer import infer as infer
from tawa.ppl.infer.inspect import inspect as inspect
from tawa.ppl.infer.own import resume as resume
from tawa.ppl.infer.own import start as start
from tawa.ppl.infer.posterior import Posterior as Posterior
from tawa.ppl.infer.posterior import predict as predict
from tawa.ppl.infer.smc import FACTOR as FACTOR
from tawa.ppl.infer.smc import OBSERVE as OBSERVE
from tawa.ppl.math.distributions import Bernoulli as Bernoulli
from tawa.ppl.math.distributions import BernoulliLogit as BernoulliLogit
from tawa.ppl.math.distributions import Beta as Beta
from tawa.ppl.math.distributions import Binomial as Binomial
from tawa.ppl.math.distributions import Categorical as Categorical
from tawa.ppl.math.distributions import CategoricalLogits as CategoricalLogits
from tawa.ppl.math.distributions import Cauchy as Cauchy
from tawa.ppl.math.distributions import ChiSquared as ChiSquared
from tawa.ppl.math.distributions import DiscreteUniform as DiscreteUniform
from tawa.ppl.math.distributions import Exponential as Exponential
from tawa.ppl.math.distributions import Flat as Flat
from tawa.ppl.math.distributions import Gamma as Gamma
from tawa.ppl.math.distributions import Geometric as Geometric
from tawa.ppl.math.distributions import Gumbel as Gumbel
from tawa.ppl.math.distributions import HalfCauchy as HalfCauchy
from tawa.ppl.math.distributions import HalfFlat as HalfFlat
from tawa.ppl.math.distributions import HalfNormal as HalfNormal
from tawa.ppl.math.distributions import HalfStudentT as HalfStudentT
from tawa.ppl.math.distributions import InverseGamma as InverseGamma
from tawa.ppl.math.distributions import Laplace as Laplace
from tawa.ppl.math.distributions import Logistic as Logistic
from tawa.ppl.math.distributions import LogNormal as LogNormal
from tawa.ppl.math.distributions import NegativeBinomial as NegativeBinomial
from tawa.ppl.math.distributions import Normal as Normal
from tawa.ppl.math.distributions import Pareto as Pareto
from tawa.ppl.math.distributions import Poisson as Poisson
from tawa.ppl.math.distributions import StudentT as StudentT
from tawa.ppl.math.distributions import Uniform as Uniform
from tawa.ppl.math.distributions import Weibull as Weibull
from tawa.ppl.math.distributions import logsumexp as logsumexp
from tawa.ppl.math.distributions import uniform as uniform
from tawa.ppl.math.vectors import Dirichlet as Dirichlet
from tawa.ppl.math.vectors import LKJCholesky as LKJCholesky
from tawa.ppl.math.vectors import MultivariateNormal as MultivariateNormal
from tawa.ppl.math.vectors import OrderedNormal as OrderedNormal
from tawa.ppl.passes.cut import DONE as DONE
