#!/usr/bin/env bash
# All methods on the small benchmarks of growing data: rates on validation images, then three seeds on test images.
#
#   tools/growth.sh [rates|runs|keep|all] [options of every run, such as --jobs 28 --eval-batch-size 1024]
#
# Rates: 108 runs, 50,400 steps. Runs: 135, 82,080 steps. What is finished is not repeated. Everything goes to $OUT
# (default runs/growth); `keep` writes results/growth-* from what is finished, and the page with its tables and figures.
# Where the best rate is at an end of those tried: tools/growth.sh rates --set lr=x0.1,x0.3,x1,x3,x10 (27 runs more per x).
set -euo pipefail

stage=${1:-all}
out=${OUT:-runs/growth}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
common=(--model nano --keep-checkpoints none "${@:2}")
wants() { [[ $stage == all || $stage == "$1" ]]; }

rates() { # kind, options
  tasso sweep --config "$here/../examples/sweep-growth-rates.yaml" --choose mcil "${@:2}" "${common[@]}" --out "$out/rates-$1"
}
runs() { # kind, plans
  tasso paper "${@:2}" --rates "$out/rates-$1/chosen.json" "${common[@]}" --out "$out/$1"
}

if wants rates; then
  rates classes --benchmark atlas-classes-12 --steps 40
  rates styles --benchmark atlas-styles --steps 120
  rates mixed --benchmark atlas-50 --steps 20 --limit-tasks 16 --evaluate-every 16 # only the end counts
fi
if wants runs; then
  runs classes atlas-classes-8 atlas-classes-12 atlas-classes-24
  runs styles atlas-styles
  runs mixed atlas-50
fi
if wants keep; then
  for kind in classes styles mixed; do
    python "$here/keep_results.py" "$out/$kind/runs" "$here/../results/growth-$kind.csv.gz"
    cp "$out/rates-$kind/tried.csv" "$here/../results/growth-$kind-rates.csv"
  done
  python "$here/results_page.py" --figures
fi
