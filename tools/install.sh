#!/bin/sh
# Installs tasso into .venv of this directory with the versions of constraints.txt: install.sh [EXTRA]
# PYTHON makes .venv. TORCH_INDEX is where torch comes from; if it does not offer the version, or cannot be reached,
# torch comes with everything else. `uv` is used where there is one.
set -eu

python=${PYTHON:-python3}
# On Linux, torch as PyPI has it brings 4 GB of CUDA libraries.
index=${TORCH_INDEX-$(command -v nvidia-smi >/dev/null || echo https://download.pytorch.org/whl/cpu)}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "tasso needs Python 3.11 or newer (PYTHON=...)"
  exit 1
}
if command -v uv >/dev/null; then
  [ -x .venv/bin/python ] || uv venv --quiet --seed --python "$python" .venv
  install() { uv pip install --quiet --python .venv/bin/python --constraint constraints.txt "$@"; }
else
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$@"; }
fi

echo "installing tasso${1:+[$1]} into .venv (a few minutes the first time) ..."
if [ -n "$index" ]; then
  # Tried once: an index that is not there is not waited for.
  (
    export PIP_RETRIES=0 PIP_DEFAULT_TIMEOUT=15 UV_HTTP_RETRIES=0 UV_HTTP_TIMEOUT=15
    install --no-deps --index-url "$index" torch torchvision 2>/dev/null
  ) || true
fi
install --editable ".${1:+[$1]}"
