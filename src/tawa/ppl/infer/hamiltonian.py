"""Hamiltonian Monte Carlo and the no-U-turn sampler: one chain a lane, all draws in one run.

Every trip of a lane's one loop is one leapfrog of nuts, one trajectory of hmc: a lane that ends
its draw begins the next at once, it waits for no other lane. The tree of nuts is built without
recursion, from momenta kept at the leaves whose number is a power of two back (Phan, Pradhan,
Jankowiak 2019). Step size by dual averaging and a diagonal mass matrix in widening windows
(Hoffman and Gelman 2014; the Stan reference manual's schedule).
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.surface import exp, log, log1p, run, select, sqrt, word
from tawa.ppl.infer.compose import keep
from tawa.ppl.math.distributions import standard_normal, uniform

INF = float("inf")
TARGET_PULL, T0, KAPPA = 0.05, 10.0, 0.75


def log_add(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b))."""
    high = max(a, b)
    return select(high == -INF, high, high + log1p(exp(min(a, b) - high)))


def kinetic(lane: Any) -> Any:
    """The kinetic energy of the momentum."""
    total = 0.0
    for i in range(len(lane.p)):
        total = total + lane.mass[i] * lane.p[i] * lane.p[i]
    return 0.5 * total


def begin_trajectory(lane: Any) -> None:
    """Draw a momentum where the chain is."""
    lane.z = lane.best_z
    lane.g = lane.best_g
    for i in range(len(lane.p)):
        lane.p[i] = standard_normal() / sqrt(lane.mass[i])
    lane.logw = lane.best_logw
    lane.energy = kinetic(lane) - lane.logw


def leapfrog(lane: Any, step: Any) -> Any:
    """Half a kick, a drift, the gradient, half a kick; return the log of the acceptance ratio."""
    for i in range(len(lane.p)):
        lane.p[i] = lane.p[i] + 0.5 * step * lane.g[i]
        lane.z[i] = lane.z[i] + step * lane.mass[i] * lane.p[i]
    run("gradient")
    for i in range(len(lane.p)):
        lane.p[i] = lane.p[i] + 0.5 * step * lane.g[i]


def energy_change(lane: Any) -> Any:
    """The log of the acceptance ratio of where the trajectory is."""
    change = lane.energy - kinetic(lane) + lane.logw
    return select(change == change, change, -INF)


def adapt(lane: Any, rate: Any) -> None:
    """Learn from a draw of the warm-up: the step size always, the mass within the windows."""
    lane.updates += 1
    count = float(lane.updates)
    slow = 1.0 / (count + T0)
    lane.drift = (1.0 - slow) * lane.drift + slow * (lane.accept_target - rate)
    log_step = lane.centre - lane.drift * sqrt(count) / TARGET_PULL
    eta = exp(-KAPPA * log(count))
    lane.average = eta * log_step + (1.0 - eta) * lane.average
    lane.step = exp(log_step)
    last = lane.warmup - lane.first * 2 // 3
    if lane.t >= lane.first and lane.t < last:
        lane.samples += 1
        n = float(lane.samples)
        for i in range(len(lane.best_z)):
            delta = lane.best_z[i] - lane.mean[i]
            lane.mean[i] = lane.mean[i] + delta / n
            lane.square[i] = lane.square[i] + delta * (lane.best_z[i] - lane.mean[i])
        if lane.t + 1 == lane.window_end:
            for i in range(len(lane.mass)):
                variance = lane.square[i] / max(n - 1.0, 1.0)
                lane.mass[i] = (n * variance + 0.005) / (n + 5.0)
            lane.mean = 0.0
            lane.square = 0.0
            lane.samples = 0
            lane.window = lane.window * 2
            lane.window_end = following(lane)
            lane.centre = log(10.0 * lane.step)
            lane.drift = 0.0
            lane.average = 0.0
            lane.updates = 0
    if lane.t + 1 == lane.warmup:
        lane.step = exp(lane.average)


def following(lane: Any) -> Any:
    """The end of the window that begins; the last one takes what would be left."""
    last = lane.warmup - lane.first * 2 // 3
    end = lane.window_end + lane.window
    return select(end + 2 * lane.window > last, last, end)


def begin_chain(lane: Any) -> None:
    """Find a start; the first window: 75 draws, windows from 25, 50 at the end; or shares."""
    lane.valued = True
    lane.step = lane.step_size
    lane.centre = log(10.0 * lane.step_size)
    short = lane.warmup < 150
    lane.first = select(short, 3 * lane.warmup // 20, 75)
    lane.window = select(short, lane.warmup - lane.first - lane.first * 2 // 3, 25)
    lane.window_end = lane.first
    lane.window_end = following(lane)
    lane.average = 0.0
    lane.drift = 0.0
    lane.updates = 0
    lane.samples = 0
    lane.mass = lane.z
    lane.mass = 1.0
    lane.mean = lane.z
    lane.mean = 0.0
    lane.square = lane.mean
    lane.p = lane.z
    lane.accepted = 0.0
    lane.divergent = 0
    lane.leapfrogs = 0
    find_start(lane)
    lane.t = 0
    lane.end = select(lane.found, lane.warmup + lane.draws * lane.thin, 0)


def find_start(lane: Any) -> None:
    """Find a point of finite density, uniform between -2 and 2 in every free number."""
    lane.found = False
    attempt = 0
    while attempt < lane.tries and not lane.found:
        lane.draw = -1 - attempt
        for i in range(len(lane.z)):
            lane.z[i] = 4.0 * uniform() - 2.0
        run("gradient")
        found = lane.logw > -INF and lane.logw < INF
        for i in range(len(lane.g)):
            found = found and abs(lane.g[i]) < INF
        lane.found = found
        attempt = attempt + 1
    lane.best_z = lane.z
    lane.best_g = lane.g
    lane.best_logw = lane.logw


def finish(lane: Any, sizes: Any, rate: Any, diverged: Any) -> None:
    """End a draw: adapt in the warm-up, keep it after."""
    if lane.t < lane.warmup:
        if lane.fixed == 0:
            adapt(lane, rate)
    else:
        lane.accepted += rate
        lane.divergent += select(diverged, 1, 0)
        after = lane.t + 1 - lane.warmup
        if after % lane.thin == 0:
            lane.z = lane.best_z
            run("generate")
            keep(lane.kept_real, lane.kept_whole, sizes, after // lane.thin - 1)
    lane.t += 1


def hmc_chain(lane: Any, sizes: Any) -> None:
    """Run a chain of trajectories of `steps` leapfrogs."""
    begin_chain(lane)
    while lane.t < lane.end:
        lane.draw = lane.t
        lane.count = 0
        begin_trajectory(lane)
        # Equal trajectories can come round to where they began: their length varies (Neal 2011).
        step = lane.step * (0.5 + uniform())
        for k in range(lane.steps):
            lane.valued = k + 1 == lane.steps  # inside of a trajectory nothing asks for the energy
            leapfrog(lane, step)
        lane.leapfrogs += lane.steps
        change = energy_change(lane)
        if log(uniform()) < change:
            lane.best_z = lane.z
            lane.best_g = lane.g
            lane.best_logw = lane.logw
        finish(lane, sizes, select(change > 0.0, 1.0, exp(change)), change < -1000.0)


def begin_tree(lane: Any) -> None:
    """Both ends of the tree are where the chain is."""
    begin_trajectory(lane)
    lane.sum_p = lane.p
    for side in (0, 1):
        lane.end_z[side] = lane.z
        lane.end_g[side] = lane.g
        lane.end_p[side] = lane.p
    lane.height = 0
    lane.weight = 0.0
    lane.accept = 0.0
    lane.leaps = 0
    lane.leaf = 0
    lane.new = False


def begin_subtree(lane: Any) -> None:
    """Go on from one end of the tree, chosen at random."""
    side = select(uniform() < 0.5, 0, 1)
    lane.side = side
    lane.sub_weight = -INF
    lane.z = lane.end_z[side]
    lane.g = lane.end_g[side]
    lane.p = lane.end_p[side]
    lane.sub_p = 0.0


def turns(lane: Any) -> Any:
    """Whether one of the subtrees that the leaf at hand closes makes a U-turn.

    Leaf n closes the subtrees that begin at n with its trailing ones cleared: their first momenta
    lie in the places that the ones of n / 2 count.
    """
    rest = word("lshr", lane.leaf, 1)
    place = 0
    while rest != 0:
        place = place + (rest & 1)
        rest = word("lshr", rest, 1)
    turned = False
    if (lane.leaf & 1) == 0:
        lane.ladder_p[place] = lane.p
        lane.ladder_sum[place] = lane.sub_p
    else:
        ones = lane.leaf
        while (ones & 1) == 1 and not turned:
            first = 0.0
            second = 0.0
            for i in range(len(lane.p)):
                begun = lane.ladder_p[place, i]
                rho = lane.sub_p[i] - lane.ladder_sum[place, i] + begun
                rho = rho - 0.5 * (begun + lane.p[i])
                first = first + lane.mass[i] * begun * rho
                second = second + lane.mass[i] * lane.p[i] * rho
            turned = first <= 0.0 or second <= 0.0
            place = place - 1
            ones = word("lshr", ones, 1)
    return turned


def join_subtree(lane: Any) -> Any:
    """Add a whole subtree to the tree; return whether the tree is done."""
    if log(uniform()) < lane.sub_weight - lane.weight:
        lane.best_z = lane.sub_z
        lane.best_g = lane.sub_g
        lane.best_logw = lane.sub_logw
    lane.weight = log_add(lane.weight, lane.sub_weight)
    side = lane.side
    lane.end_z[side] = lane.z
    lane.end_g[side] = lane.g
    lane.end_p[side] = lane.p
    first = 0.0
    second = 0.0
    for i in range(len(lane.p)):
        lane.sum_p[i] = lane.sum_p[i] + lane.sub_p[i]
        rho = lane.sum_p[i] - 0.5 * (lane.end_p[0, i] + lane.end_p[1, i])
        first = first + lane.mass[i] * lane.end_p[0, i] * rho
        second = second + lane.mass[i] * lane.end_p[1, i] * rho
    lane.height += 1
    lane.leaf = 0
    return first <= 0.0 or second <= 0.0 or lane.height == len(lane.ladder_p)


def nuts_chain(lane: Any, sizes: Any) -> None:
    """Run a chain of no-U-turn trajectories of at most 2 ** `depth` leapfrogs."""
    begin_chain(lane)
    lane.new = True
    while lane.t < lane.end:
        lane.draw = lane.t
        if lane.new:
            lane.count = 0
            begin_tree(lane)
        if lane.leaf == 0:
            begin_subtree(lane)
        leapfrog(lane, select(lane.side == 0, -lane.step, lane.step))
        lane.leaps += 1
        change = energy_change(lane)
        diverged = change < -1000.0
        lane.accept += select(change > 0.0, 1.0, exp(change))
        both = log_add(lane.sub_weight, change)
        if log(uniform()) < change - both:
            lane.sub_z = lane.z
            lane.sub_g = lane.g
            lane.sub_logw = lane.logw
        lane.sub_weight = both
        for i in range(len(lane.p)):
            lane.sub_p[i] = lane.sub_p[i] + lane.p[i]
        done = turns(lane) or diverged
        lane.leaf += 1
        if not done and lane.leaf == word("shl", 1, lane.height):
            done = join_subtree(lane)
        if done:
            lane.leapfrogs += lane.leaps
            finish(lane, sizes, lane.accept / float(lane.leaps), diverged)
            lane.new = True
