"""Hamiltonian Monte Carlo and the no-U-turn sampler: one chain a lane, all draws in one run.

Every trip of a lane's one loop is one leapfrog: a lane that ends a trajectory begins its next
draw at once, it waits
for no other lane. The tree of nuts is built without recursion, from momenta kept at the leaves
whose
number is a power of two back (Phan, Pradhan, Jankowiak 2019). Step size by dual averaging and a
diagonal mass matrix in widening windows (Hoffman and Gelman 2014; the Stan reference manual's
schedule).
"""

from __future__ import annotations

from typing import Any

from tawa.ppl.frontend.surface import assign, exp, get, log, log1p, run, select, sqrt, word, write
from tawa.ppl.infer.compose import keep
from tawa.ppl.math.distributions import standard_normal, uniform

INF = float("inf")
TARGET_PULL, T0, KAPPA = 0.05, 10.0, 0.75


def log_add(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b))."""
    high = max(a, b)
    return select(high == -INF, high, high + log1p(exp(min(a, b) - high)))


def kinetic(p: Any, inverse_mass: Any, size: Any) -> Any:
    """The kinetic energy of a momentum."""
    total = 0.0
    for i in range(size):
        total = total + inverse_mass[i] * p[i] * p[i]
    return 0.5 * total


def begin_trajectory(v: Any, size: Any) -> None:
    """Draw a momentum; both ends of the tree are where the chain is."""
    z, g, p, mass, end_z, end_g, end_p, best_z, best_g, sum_p, tree = v
    energy, depth, weight, _, accept, leaps, _, logw, best_logw, _, _, _ = tree
    for i in range(size):
        p[i] = standard_normal() / sqrt(mass[i])
        z[i] = best_z[i]
        g[i] = best_g[i]
        sum_p[i] = p[i]
        for side in (0, 1):
            end_z[side, i] = z[i]
            end_g[side, i] = g[i]
            end_p[side, i] = p[i]
    assign(energy, kinetic(p, mass, size) - get(best_logw))
    assign(depth, 0)
    assign(weight, 0.0)
    assign(accept, 0.0)
    assign(leaps, 0)
    assign(logw, get(best_logw))


def leapfrog(z: Any, g: Any, p: Any, mass: Any, step: Any, size: Any) -> None:
    """Half a kick, a drift, the gradient, half a kick. A step of 0 leaves all but the gradient."""
    for i in range(size):
        p[i] = p[i] + 0.5 * step * g[i]
        z[i] = z[i] + step * mass[i] * p[i]
    run("gradient")
    for i in range(size):
        p[i] = p[i] + 0.5 * step * g[i]


def adapt(
    t: Any,
    warmup: Any,
    rate: Any,
    accept_target: Any,
    z: Any,
    a: Any,
    mass: Any,
    mean: Any,
    square: Any,
    size: Any,
) -> None:
    """Learn from a draw of the warm-up: the step size always, the mass within the windows."""
    step, centre, average, drift, updates, samples, window, end, first = a
    count = float(get(updates) + 1)
    assign(updates, get(updates) + 1)
    slow = 1.0 / (count + T0)
    assign(drift, (1.0 - slow) * get(drift) + slow * (accept_target - rate))
    log_step = get(centre) - get(drift) * sqrt(count) / TARGET_PULL
    eta = exp(-KAPPA * log(count))
    assign(average, eta * log_step + (1.0 - eta) * get(average))
    assign(step, exp(log_step))
    last = warmup - get(first) * 2 // 3
    if t >= get(first) and t < last:
        assign(samples, get(samples) + 1)
        n = float(get(samples))
        for i in range(size):
            delta = z[i] - mean[i]
            mean[i] = mean[i] + delta / n
            square[i] = square[i] + delta * (z[i] - mean[i])
        if t + 1 == get(end):
            for i in range(size):
                variance = square[i] / max(n - 1.0, 1.0)
                mass[i] = (n * variance + 0.005) / (n + 5.0)
                mean[i] = 0.0
                square[i] = 0.0
            assign(samples, 0)
            assign(window, get(window) * 2)
            following = get(end) + get(window)
            if following + 2 * get(window) > last:
                following = last
            assign(end, following)
            assign(centre, log(10.0 * get(step)))
            assign(drift, 0.0)
            assign(average, 0.0)
            assign(updates, 0)
    if t + 1 == warmup:
        assign(step, exp(get(average)))


def begin_adaptation(warmup: Any, step_size: Any, a: Any, mass: Any, size: Any) -> None:
    """Set the step size and the first window: 75 draws, windows "
    "from 25, 50 at the end; or shares."""
    step, centre, average, drift, updates, samples, window, end, first = a
    assign(step, step_size)
    assign(centre, log(10.0 * step_size))
    short = warmup < 150
    assign(first, select(short, 3 * warmup // 20, 75))
    assign(window, select(short, warmup - get(first) - get(first) * 2 // 3, 25))
    last = warmup - get(first) * 2 // 3
    following = get(first) + get(window)
    if following + 2 * get(window) > last:
        following = last
    assign(end, following)
    for name in (average, drift):
        assign(name, 0.0)
    for name in (updates, samples):
        assign(name, 0)
    for i in range(size):
        mass[i] = 1.0


def find_start(v: Any, size: Any, tries: Any, draw: Any) -> Any:
    """Find a point of finite density, uniform between -2 and 2 in every free number."""
    z, g, _, _, _, _, _, best_z, best_g, _, tree = v
    logw, best_logw = tree[7], tree[8]
    attempt = 0
    found = False
    while attempt < tries and not found:
        assign(draw, -1 - attempt)
        for i in range(size):
            z[i] = 4.0 * uniform() - 2.0
        run("gradient")
        found = get(logw) > -INF and get(logw) < INF
        for i in range(size):
            found = found and abs(g[i]) < INF
        attempt = attempt + 1
    for i in range(size):
        best_z[i] = z[i]
        best_g[i] = g[i]
    assign(best_logw, get(logw))
    return found


def finish(
    t: Any,
    rate: Any,
    diverged: Any,
    numbers: Any,
    v: Any,
    a: Any,
    moments: Any,
    kept: Any,
    counts: Any,
    size: Any,
) -> None:
    """End a draw: adapt in the warm-up, keep it after."""
    z, mass, best_z = v[0], v[3], v[7]
    warmup, thin, accept_target, fixed = numbers
    divergent, accepted = counts
    mean, square = moments
    if t < warmup:
        if fixed == 0:
            adapt(t, warmup, rate, accept_target, best_z, a, mass, mean, square, size)
    else:
        assign(accepted, get(accepted) + rate)
        assign(divergent, get(divergent) + select(diverged, 1, 0))
        after = t + 1 - warmup
        if after % thin == 0:
            for i in range(size):
                z[i] = best_z[i]
            run("generate")
            keep(kept[0], kept[1], kept[2], kept[3], after // thin - 1)


def hmc_chain(
    draws: Any,
    warmup: Any,
    thin: Any,
    tries: Any,
    steps: Any,
    step_size: Any,
    target: Any,
    fixed: Any,
    draw: Any,
    count: Any,
    v: Any,
    a: Any,
    moments: Any,
    kept: Any,
    counts: Any,
    size: Any,
) -> None:
    """Run a chain of trajectories of `steps` leapfrogs."""
    z, g, p, mass, _, _, _, best_z, best_g, _, tree = v
    energy, logw, best_logw, total_leaps = tree[0], tree[7], tree[8], tree[9]
    begin_adaptation(warmup, step_size, a, mass, size)
    found = find_start(v, size, tries, draw)
    t = 0
    end = warmup + draws * thin
    if not found:
        end = 0
    while t < end:
        assign(draw, t)
        assign(count, 0)
        begin_trajectory(v, size)
        # Equal trajectories can come round to where they began: their length varies (Neal 2011).
        step = get(a[0]) * (0.5 + uniform())
        for _ in range(steps):
            leapfrog(z, g, p, mass, step, size)
        assign(total_leaps, get(total_leaps) + steps)
        change = get(energy) - kinetic(p, mass, size) + get(logw)
        change = select(change == change, change, -INF)
        rate = select(change > 0.0, 1.0, exp(change))
        if log(uniform()) < change:
            for i in range(size):
                best_z[i] = z[i]
                best_g[i] = g[i]
            assign(best_logw, get(logw))
        finish(
            t,
            rate,
            change < -1000.0,
            (warmup, thin, target, fixed),
            v,
            a,
            moments,
            kept,
            counts,
            size,
        )
        t = t + 1
    write("found", 0, select(found, 1, 0))
    results(a, counts, total_leaps)


def results(a: Any, counts: Any, total_leaps: Any) -> None:
    """Write what a chain did."""
    write("step", 0, get(a[0]))
    write("accept", 0, get(counts[1]))
    write("divergent", 0, get(counts[0]))
    write("leapfrogs", 0, get(total_leaps))


def nuts_chain(
    draws: Any,
    warmup: Any,
    thin: Any,
    tries: Any,
    steps: Any,
    step_size: Any,
    target: Any,
    fixed: Any,
    draw: Any,
    count: Any,
    v: Any,
    a: Any,
    moments: Any,
    kept: Any,
    counts: Any,
    size: Any,
) -> None:
    """Run a chain of no-U-turn trajectories of at most 2 ** `steps` leapfrogs."""
    z, g, p, mass, end_z, end_g, end_p, best_z, best_g, sum_p, tree = v
    energy, depth, weight, leaf, accept, leaps, side, logw, best_logw, total_leaps, sub, new = tree
    sub_z, sub_g, sub_p, kept_p, kept_sum, sub_weight, sub_logw = sub
    begin_adaptation(warmup, step_size, a, mass, size)
    found = find_start(v, size, tries, draw)
    t = 0
    end = warmup + draws * thin
    if not found:
        end = 0
    assign(new, True)
    assign(leaf, 0)
    while t < end:
        assign(draw, t)
        if get(new):
            assign(count, 0)
            begin_trajectory(v, size)
            assign(new, False)
            assign(leaf, 0)
        if get(leaf) == 0:
            way = select(uniform() < 0.5, 0, 1)
            assign(side, way)
            assign(sub_weight, -INF)
            for i in range(size):
                z[i] = end_z[way, i]
                g[i] = end_g[way, i]
                p[i] = end_p[way, i]
                sub_p[i] = 0.0
        step = get(a[0])
        leapfrog(z, g, p, mass, select(get(side) == 0, -step, step), size)
        assign(leaps, get(leaps) + 1)
        change = get(energy) - kinetic(p, mass, size) + get(logw)
        change = select(change == change, change, -INF)
        diverged = change < -1000.0
        assign(accept, get(accept) + select(change > 0.0, 1.0, exp(change)))
        both = log_add(get(sub_weight), change)
        if log(uniform()) < change - both:
            for i in range(size):
                sub_z[i] = z[i]
                sub_g[i] = g[i]
            assign(sub_logw, get(logw))
        assign(sub_weight, both)
        for i in range(size):
            sub_p[i] = sub_p[i] + p[i]
        # Leaf n closes the subtrees that begin at n with its trailing ones cleared: their first
        # momenta lie in the places that the ones of n / 2 count.
        number = get(leaf)
        rest = word("lshr", number, 1)
        place = 0
        while rest != 0:
            place = place + (rest & 1)
            rest = word("lshr", rest, 1)
        turned = False
        if (number & 1) == 0:
            for i in range(size):
                kept_p[place, i] = p[i]
                kept_sum[place, i] = sub_p[i]
        else:
            ones = number
            at = place
            while (ones & 1) == 1 and not turned:
                first = 0.0
                second = 0.0
                for i in range(size):
                    begun = kept_p[at, i]
                    rho = sub_p[i] - kept_sum[at, i] + begun - 0.5 * (begun + p[i])
                    first = first + mass[i] * begun * rho
                    second = second + mass[i] * p[i] * rho
                turned = first <= 0.0 or second <= 0.0
                at = at - 1
                ones = word("lshr", ones, 1)
        assign(leaf, number + 1)
        stops = turned or diverged
        done = stops
        if not stops and number + 1 == word("shl", 1, get(depth)):
            if log(uniform()) < get(sub_weight) - get(weight):
                for i in range(size):
                    best_z[i] = sub_z[i]
                    best_g[i] = sub_g[i]
                assign(best_logw, get(sub_logw))
            assign(weight, log_add(get(weight), get(sub_weight)))
            way = get(side)
            a_ = 0.0
            b_ = 0.0
            for i in range(size):
                end_z[way, i] = z[i]
                end_g[way, i] = g[i]
                end_p[way, i] = p[i]
                sum_p[i] = sum_p[i] + sub_p[i]
            for i in range(size):
                rho = sum_p[i] - 0.5 * (end_p[0, i] + end_p[1, i])
                a_ = a_ + mass[i] * end_p[0, i] * rho
                b_ = b_ + mass[i] * end_p[1, i] * rho
            assign(depth, get(depth) + 1)
            assign(leaf, 0)
            done = a_ <= 0.0 or b_ <= 0.0 or get(depth) == steps
        if done:
            assign(total_leaps, get(total_leaps) + get(leaps))
            rate = get(accept) / float(get(leaps))
            finish(
                t, rate, diverged, (warmup, thin, target, fixed), v, a, moments, kept, counts, size
            )
            assign(new, True)
            t = t + 1
    write("found", 0, select(found, 1, 0))
    results(a, counts, total_leaps)
