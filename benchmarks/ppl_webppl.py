"""The programs of `tests/ppl_programs.py` beside WebPPL, by particle filters of as many particles.

    npm install --prefix FOLDER webppl
    PYTHONPATH=src:tests python benchmarks/ppl_webppl.py FOLDER [--particles 10000]

Prints one line of JSON for each program: CPU seconds of a run after the first (compiling is not
counted on either side), the log evidence of both, and the exact one. WebPPL runs in Node.js, in one
thread; tawa with `threads=1`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import ppl_models as models
import ppl_programs as programs
from tawa import ppl

WEBPPL = {
    "coin": """
var model = function() {
  var bias = beta(1, 1);
  map(function(flip) { observe(Bernoulli({p: bias}), flip) }, data.flips);
  return bias };""",
    "sprinkler": """
var model = function() {
  var rain = flip(0.2);
  var sprinkled = flip(rain ? 0.01 : 0.4);
  var dry = (rain ? 0.2 : 1) * (sprinkled ? 0.1 : 1);
  observe(Bernoulli({p: 1 - dry}), true);
  return rain };""",
    "geometric": """
var failures = function(p) { return flip(p) ? 0 : 1 + failures(p) };
var model = function() {
  var count = failures(0.5);
  observe(Gaussian({mu: count, sigma: 1}), 3);
  return count };""",
    "hmm": """
var go = function(state, n) {
  if (n == data.sequence.length) { return state }
  var next = discrete(data.transition[state]);
  observe(Discrete({ps: data.emission[next]}), data.sequence[n]);
  return go(next, n + 1) };
var model = function() { return go(discrete([0.5, 0.5]), 0) };""",
    "topics": """
var model = function() {
  var topic = repeat(2, function() { return dirichlet(Vector([0.5, 0.5, 0.5, 0.5])) });
  map(function(document) {
    var share = dirichlet(Vector([0.7, 0.7]));
    map(function(word) {
      var z = discrete(share);
      observe(Discrete({ps: topic[z]}), word) }, document) }, data.words);
  return T.get(topic[0], 0) };""",
    "survivors": """
var left = function(time, birth, death) {
  var wait = exponential(birth + death);
  if (wait > time) { return 1 }
  if (flip(death / (birth + death))) { return 0 }
  return left(time - wait, birth, death) + left(time - wait, birth, death) };
var model = function() {
  var count = left(2, 0.6, 0.3);
  observe(Gaussian({mu: count, sigma: 1}), 3);
  return count };""",
    "vector_borne": """
var count = function(p, n) { return n > 0 ? binomial(p, n) : 0 };
var day = function(x, n) {
  if (n == data.cases.length) { return x.bite }
  var exposed = count(1 - Math.exp(-x.bite * x.mi / 200), x.s);
  var ill = count(0.25, x.e);
  var well = count(0.2, x.i);
  var bitten = count(1 - Math.exp(-x.bite * x.i / 100), x.ms);
  var grown = count(0.15, x.me);
  var dead = count(0.1, x.me + x.mi - grown);
  var gone = Math.min(dead, x.mi);
  observe(Poisson({mu: x.report * ill + 0.1}), data.cases[n]);
  return day({bite: x.bite, report: x.report, s: x.s - exposed, e: x.e + exposed - ill,
    i: x.i + ill - well, ms: x.ms - bitten + gone, me: x.me + bitten - grown,
    mi: x.mi + grown - gone}, n + 1) };
var model = function() {
  return day({bite: beta(2, 4), report: beta(8, 2), s: 97, e: 2, i: 1, ms: 190, me: 5, mi: 5}, 0)
};""",
}
RUN = """
var once = function() {
  var began = process.cpuUsage();
  var made = Infer({method: 'SMC', particles: data.particles, model: model});
  var spent = process.cpuUsage(began);
  return {seconds: (spent.user + spent.system) / 1e6, evidence: made.normalizationConstant} };
var first = once();
console.log(JSON.stringify(once()));
"""


def webppl(folder: Path, name: str, particles: int) -> dict[str, float]:
    """Return seconds and log evidence of a second run in WebPPL."""
    data = {
        "flips": programs.FLIPS.tolist(),
        "sequence": programs.SEQUENCE.tolist(),
        "transition": models.TRANSITION.tolist(),
        "emission": models.EMISSION.tolist(),
        "words": programs.WORDS.tolist(),
        "cases": programs.CASES.tolist(),
        "particles": particles,
    }
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{name}.wppl"
        file.write_text(f"var data = {json.dumps(data)};\n{WEBPPL[name]}\n{RUN}")
        command = ["node", str(folder / "node_modules/.bin/webppl"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-600:]}")
    return json.loads(done.stdout.splitlines()[0])


def ours(name: str, particles: int) -> tuple[float, float]:
    """Return the least CPU seconds of three runs after the first, and the log evidence."""
    model, given = programs.PROGRAMS[name]
    options = {"method": "smc", "particles": particles, "stack": 400, "threads": 1}
    options["keep"] = ["value"]  # as WebPPL does
    ppl.infer(model, *given, **options)
    seconds = []
    for seed in range(3):
        began = time.process_time()
        post = ppl.infer(model, *given, seed=seed, **options)
        seconds.append(time.process_time() - began)
    return min(seconds), post.log_evidence


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--particles", type=int, default=10_000)
    parser.add_argument("--programs", default=" ".join(programs.PROGRAMS))
    given = parser.parse_args()
    for name in given.programs.split():
        seconds, evidence = ours(name, given.particles)
        peer = webppl(given.folder, name, given.particles)
        row = {"program": name, "particles": given.particles, "tawa_s": round(seconds, 4)}
        row |= {"webppl_s": peer["seconds"], "ratio": round(peer["seconds"] / seconds, 1)}
        row |= {"tawa_log_evidence": evidence, "webppl_log_evidence": peer["evidence"]}
        if name != "vector_borne":
            row["exact"] = programs.evidence(name)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
