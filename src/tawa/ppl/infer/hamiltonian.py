"""Hamiltonian Monte Carlo and the no-U-turn sampler: one chain a lane, all draws in one run.

Every iteration of a lane's one loop is one leapfrog of nuts, one trajectory of hmc: a lane that
ends its draw begins the next at once, it waits for no other lane. The tree of nuts is built without
recursion, from momenta kept at the leaves whose number is a power of two back (Phan, Pradhan,
Jankowiak 2019). Step size by dual averaging and a mass matrix in widening windows (Hoffman and
Gelman 2014; the Stan reference manual's schedule). With the inverse mass matrix L L', a lane holds
L' times its momenta: they are standard normal, and products of velocities and momenta are plain
sums. `scale` is L, (n, n), of a dense mass matrix, and its diagonal, (n,), of a diagonal one;
`dense`, known when a program is lowered, says which.
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.words import (
    cholesky,
    exp,
    fma,
    log,
    log1p,
    random,
    run,
    select,
    sqrt,
    word,
)
from tawa.ppl.math.distributions import normal_pair, uniform, unit

INF = float("inf")
TARGET_PULL, T0 = 0.05, 10.0


def mix(a: Any, b: Any) -> Any:
    """Return log(exp(a) + exp(b)), the share of exp(b) in the sum, and exp(b - a) up to 1."""
    rest = exp(min(a, b) - max(a, b))
    total = max(a, b) + log1p(rest)
    ratio = select(b < a, rest, 1.0)
    # Where both are nothing the difference is no number.
    return select(max(a, b) == -INF, -INF, total), ratio * (1.0 / (1.0 + rest)), ratio


def kinetic(lane: Any) -> Any:
    """The kinetic energy of the momentum."""
    total = 0.0
    for i in range(len(lane.p)):
        total = total + lane.p[i] * lane.p[i]
    return 0.5 * total


def keep_point(lane: Any) -> None:
    """Make the point at hand that of the chain."""
    lane.best_z = lane.z
    lane.best_g = lane.g
    lane.best_logw = lane.logw


def draw_momentum(lane: Any) -> None:
    """Draw two numbers of the next trajectory's momentum, if some are left to draw."""
    if lane.drawn < len(lane.next_p):
        first, second = normal_pair()
        lane.next_p[lane.drawn] = first
        lane.next_p[lane.drawn + 1] = second
        lane.drawn += 2


def begin_trajectory(lane: Any) -> None:
    """Go where the chain is, with a momentum."""
    lane.z = lane.best_z
    lane.g = lane.best_g
    while lane.drawn < len(lane.next_p):
        draw_momentum(lane)
    for i in range(len(lane.p)):
        lane.p[i] = lane.next_p[i]
    lane.drawn = 0
    lane.logw = lane.best_logw
    lane.energy = kinetic(lane) - lane.logw


def kick(lane: Any, step: Any, dense: Any) -> None:
    """Move the momentum by L' times the gradient."""
    for i in range(len(lane.p)):
        if dense:
            force = 0.0
            for j in range(i, len(lane.p)):
                force = fma(lane.scale[j, i], lane.g[j], force)
            lane.p[i] = fma(step, force, lane.p[i])
        else:
            lane.p[i] = fma(step * lane.scale[i], lane.g[i], lane.p[i])


def drift(lane: Any, step: Any, dense: Any, look: Any = "gradient") -> None:
    """Move the point by L times the momentum, and look at the gradient there."""
    for i in range(len(lane.p)):
        if dense:
            velocity = 0.0
            for j in range(i + 1):
                velocity = fma(lane.scale[i, j], lane.p[j], velocity)
            lane.z[i] = fma(step, velocity, lane.z[i])
        else:
            lane.z[i] = fma(step * lane.scale[i], lane.p[i], lane.z[i])
    run(look)


def energy_change(lane: Any) -> Any:
    """The log of the acceptance ratio of where the trajectory is."""
    change = lane.energy - kinetic(lane) + lane.logw
    return select(change == change, change, -INF)


def adapt(lane: Any, rate: Any, dense: Any) -> None:
    """Learn from a draw of the warm-up: the step size always, the mass within the windows."""
    lane.updates += 1
    count = float(lane.updates)
    slow = 1.0 / (count + T0)
    lane.drift = (1.0 - slow) * lane.drift + slow * (lane.accept_target - rate)
    root = sqrt(count)
    log_step = lane.centre - lane.drift * root / TARGET_PULL
    eta = 1.0 / (root * sqrt(root))  # Stan's kappa, 0.75
    lane.average = eta * log_step + (1.0 - eta) * lane.average
    lane.step = exp(log_step)
    last = lane.warmup - lane.first * 2 // 3
    if lane.t >= lane.first and lane.t < last:
        learn(lane, dense)
        if lane.t + 1 == lane.window_end:
            set_scale(lane, dense)
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


def learn(lane: Any, dense: Any) -> None:
    """Add a draw to the sums of the window (Welford): of a matrix, on and below its diagonal."""
    lane.samples += 1
    share = 1.0 / float(lane.samples)
    for i in range(len(lane.mean)):
        lane.apart[i] = lane.best_z[i] - lane.mean[i]
        lane.mean[i] = lane.mean[i] + lane.apart[i] * share
    for i in range(len(lane.mean)):
        if dense:
            for j in range(i + 1):
                rest = lane.best_z[j] - lane.mean[j]
                lane.square[i, j] = lane.square[i, j] + lane.apart[i] * rest
        else:
            lane.square[i] = lane.square[i] + lane.apart[i] * (lane.best_z[i] - lane.mean[i])


def set_scale(lane: Any, dense: Any) -> None:
    """Make the scale of the window's covariance, drawn a little to what it was before.

    Not to a unit matrix: that is wide where a direction is narrow, as between the intercept and the
    slope of a regression.
    """
    n = float(lane.samples)
    share = n / (max(n - 1.0, 1.0) * (n + 5.0))
    least = 0.005 / (n + 5.0)
    for i in range(len(lane.mean)):
        if dense:
            for j in range(i + 1):
                before = 0.0
                for k in range(j + 1):
                    before = before + lane.scale[i, k] * lane.scale[j, k]
                lane.square[i, j] = share * lane.square[i, j] + least * before
        else:
            before = lane.scale[i] * lane.scale[i]
            lane.scale[i] = sqrt(share * lane.square[i] + least * before)
    if dense:
        lane.scale = cholesky(lane.square)
        for i in range(len(lane.mean)):
            lane.singular = lane.singular or not lane.scale[i, i] > 0.0


def following(lane: Any) -> Any:
    """The end of the window that begins; the last one takes what would be left."""
    last = lane.warmup - lane.first * 2 // 3
    end = lane.window_end + lane.window
    return select(end + 2 * lane.window > last, last, end)


def begin_chain(lane: Any, dense: Any) -> None:
    """The first window: 75 draws, windows from 25, 50 at the end; or shares."""
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
    for i in range(len(lane.z)):
        if dense:
            lane.scale[i, i] = 1.0
        else:
            lane.scale[i] = 1.0
    lane.singular = False
    lane.accepted = 0.0
    lane.divergent = 0
    lane.leapfrogs = 0
    keep_point(lane)
    lane.found = False
    lane.drawn = 0
    lane.attempt = 0
    lane.t = 0
    lane.end = lane.warmup + lane.draws * lane.thin


# A start is tried by a leapfrog of no length, where those of trajectories are: `gradient`, most of
# a program, stands in it once.
def try_start(lane: Any) -> None:
    """Go to a point that is uniform between -2 and 2 in every free number, and rest there."""
    lane.draw = -1 - lane.attempt
    for i in range(len(lane.z)):
        lane.z[i] = 4.0 * uniform() - 2.0
    lane.p = 0.0
    lane.g = 0.0


def take_start(lane: Any) -> None:
    """Begin where the density is finite; after `tries` points without one the chain ends."""
    found = lane.logw > -INF and lane.logw < INF
    for i in range(len(lane.g)):
        found = found and abs(lane.g[i]) < INF
    lane.found = found
    keep_point(lane)
    lane.attempt += 1
    if not found and lane.attempt == lane.tries:
        lane.end = 0


def finish(lane: Any, hold: Any, size: Any, rate: Any, diverged: Any, dense: Any) -> None:
    """End a draw: adapt in the warm-up, keep it after."""
    if lane.t < lane.warmup:
        if lane.fixed == 0:
            adapt(lane, rate, dense)
    else:
        lane.accepted += rate
        lane.divergent += select(diverged, 1, 0)
        after = lane.t + 1 - lane.warmup
        if after % lane.thin == 0:
            lane.z = lane.best_z
            run("generate")
            hold(lane.kept_words, size, after // lane.thin - 1)
    lane.t += 1


def hmc_chain(lane: Any, hold: Any, size: Any, dense: Any) -> None:
    """Run a chain of trajectories of `steps` leapfrogs."""
    begin_chain(lane, dense)
    while lane.t < lane.end:
        starting = not lane.found
        if starting:
            try_start(lane)
            step, steps = 0.0, 1
        else:
            lane.draw = lane.t
            lane.count = 0
            begin_trajectory(lane)
            # Equal trajectories can come round to where they began: their length varies (Neal
            # 2011).
            step, steps = lane.step * (0.5 + uniform()), lane.steps
        kick(lane, 0.5 * step, dense)
        lane.valued = False  # inside of a trajectory nothing asks for the energy
        for _ in range(steps - 1):
            drift(lane, step, dense, "slopes")
            kick(lane, step, dense)  # the second half of this leapfrog's, the first of the next
        lane.valued = True
        drift(lane, step, dense)
        kick(lane, 0.5 * step, dense)
        if starting:
            take_start(lane)
        else:
            lane.leapfrogs += lane.steps
            change = energy_change(lane)
            if uniform() < exp(change):
                keep_point(lane)
            finish(lane, hold, size, exp(min(change, 0.0)), change < -1000.0, dense)


def toss(lane: Any) -> Any:
    """Draw all that a leaf and its subtree's end may need; return a number of the leaf's own."""
    words = random()
    lane.coin = words[0] & 1  # `unit` leaves it out
    lane.chance = unit(words[2], words[3])
    return unit(words[0], words[1])


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
    side = lane.coin
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
                first = first + begun * rho
                second = second + lane.p[i] * rho
            turned = first <= 0.0 or second <= 0.0
            place = place - 1
            ones = word("lshr", ones, 1)
    return turned


def join_subtree(lane: Any) -> Any:
    """Add a whole subtree to the tree; return whether the tree is done."""
    lane.weight, _, ratio = mix(lane.weight, lane.sub_weight)
    if lane.chance < ratio:
        lane.best_z = lane.sub_z
        lane.best_g = lane.sub_g
        lane.best_logw = lane.sub_logw
    side = lane.side
    lane.end_z[side] = lane.z
    lane.end_g[side] = lane.g
    lane.end_p[side] = lane.p
    first = 0.0
    second = 0.0
    for i in range(len(lane.p)):
        lane.sum_p[i] = lane.sum_p[i] + lane.sub_p[i]
        rho = lane.sum_p[i] - 0.5 * (lane.end_p[0, i] + lane.end_p[1, i])
        first = first + lane.end_p[0, i] * rho
        second = second + lane.end_p[1, i] * rho
    lane.height += 1
    lane.leaf = 0
    return first <= 0.0 or second <= 0.0 or lane.height == len(lane.ladder_p)


def nuts_chain(lane: Any, hold: Any, size: Any, dense: Any) -> None:
    """Run a chain of no-U-turn trajectories of at most 2 ** `depth` leapfrogs."""
    begin_chain(lane, dense)
    lane.draw = -1  # of starts: `toss` has the first of their numbers
    toss(lane)
    lane.new = True
    while lane.t < lane.end:
        starting = not lane.found
        if starting:
            try_start(lane)
            step = 0.0
        else:
            lane.draw = lane.t
            if lane.new:
                lane.count = 0
                begin_tree(lane)
            if lane.leaf == 0:
                begin_subtree(lane)
            step = select(lane.side == 0, -lane.step, lane.step)
        kick(lane, 0.5 * step, dense)
        drift(lane, step, dense)
        kick(lane, 0.5 * step, dense)
        if starting:
            take_start(lane)
        else:
            take_leaf(lane, hold, size, dense)


def take_leaf(lane: Any, hold: Any, size: Any, dense: Any) -> None:
    """Add the leaf at hand to its subtree; end the draw where it is the last one.

    The next momentum is drawn leaf by leaf: at its end a draw would hold up the others of a warp.
    """
    draw_momentum(lane)
    lane.leaps += 1
    change = energy_change(lane)
    diverged = change < -1000.0
    lane.accept += exp(min(change, 0.0))
    lane.sub_weight, share, _ = mix(lane.sub_weight, change)
    chance = toss(lane)
    if lane.leaf == 0 or chance < share:
        lane.sub_z = lane.z
        lane.sub_g = lane.g
        lane.sub_logw = lane.logw
    for i in range(len(lane.p)):
        lane.sub_p[i] = lane.sub_p[i] + lane.p[i]
    done = turns(lane) or diverged
    lane.leaf += 1
    if not done and lane.leaf == word("shl", 1, lane.height):
        done = join_subtree(lane)
    if done:
        lane.leapfrogs += lane.leaps
        finish(lane, hold, size, lane.accept / float(lane.leaps), diverged, dense)
        lane.new = True
