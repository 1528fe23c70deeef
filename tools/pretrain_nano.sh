#!/usr/bin/env bash
# Prepare, train and evaluate the small CLIP on one GPU machine, within one call of ten minutes.
#
#   tools/pretrain_nano.sh TEACHER CORPUS TASKS [prepare|train|evaluate|all]
#
# TEACHER: folder of the old model. CORPUS: folder with corpus-*.npz and corpus-*.json. TASKS: folder of
# annotated zips; of these only imagenet.zip is trained on, and only its images, the others are for
# evaluation. Results go to $OUT (default runs/pretrain): weights, config, merges, log, evaluation.
#
# Where the folders do not fit into one transfer, bring them in several calls into a folder that stays, and
# give that folder here. Stages may run in separate calls as well: WORK keeps the prepared data.
set -euo pipefail

teacher=$1 corpus=$2 tasks=$3 stage=${4:-all}
out=${OUT:-runs/pretrain}
work=${WORK:-${TMPDIR:-/tmp}/pretrain-nano}
drawn=${DRAWN:-200000}
minutes=${MINUTES:-7}   # of training; preparing and evaluating take about two more
workers=${WORKERS:-$(nproc)}
python=${PYTHON:-python3}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here/../src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# One thread a worker: many processes with many threads each slow each other down.
tool() { OMP_NUM_THREADS=${threads:-4} "$python" "$here/pretrain_nano.py" "$@"; }
mkdir -p "$out" "$work"

wants() { [[ $stage == all || $stage == "$1" ]]; }

if wants prepare; then
  zips=()
  [[ -f $tasks/imagenet.zip ]] && zips=(--zip "$tasks/imagenet.zip" ${ZIP_LABELS:+--zip-labels})
  threads=1 tool prepare --teacher "$teacher" --corpus "$corpus"/corpus-*.npz "${zips[@]}" \
    --drawn "$drawn" --workers "$workers" --out "$work/data" | tee "$work/prepare.log"
fi

if wants train; then
  # COMPILE= (empty) trains without the compiler; INIT=DIR goes on from an earlier result.
  # shellcheck disable=SC2086  # TRAIN_OPTIONS holds several words
  tool train --data "$work/data" --teacher "$teacher" --init "${INIT:-$teacher}" --out "$out" \
    --minutes-limit "$minutes" ${COMPILE-"--compile"} ${TRAIN_OPTIONS:-}
fi

if wants evaluate; then
  atlas=()
  ((drawn > 0)) && atlas=(--atlas tasso.data.atlas)
  tool evaluate --model "$out" "$teacher" --tasks "$tasks" "${atlas[@]}" --workers "$workers" \
    --json "$out/evaluation.json" | tee "$out/evaluation.txt"
fi
