#!/bin/bash
# Cypress programs beside their peers: the cases that were changed. Under three minutes.
set -u
run() { # seconds, name, arguments
  local limit=$1 name=$2; shift 2
  timeout "$limit" python benchmarks/cypress.py "$@" > "$OUT/cypress_$name.txt" 2>&1
  echo "$name: rc $?"; tail -n 60 "$OUT/cypress_$name.txt"
}
run 30 batched --program batched --rounds 3
run 40 attention --program attention --only '(D128 (512|2048|16384) causal|D64 (512|4096))$' --rounds 3
run 45 gemm --program gemm --only '(4096x4096x4096|8192x256|8192x1024)$' --rounds 3
run 60 dual --program dual,sums --only '4096' --rounds 3
