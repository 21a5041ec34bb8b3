#!/usr/bin/env bash
# Test what the package uses of Numba under several versions, each in a virtual environment of its own:
#
#   tests/numba_versions.sh                           # the oldest and all newer minor versions that pip admits
#   PYTHON=python3.13 tests/numba_versions.sh 0.69.*  # one version, under another Python
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests=(tests/buffers/test_{numba_internals,jit,kernel_cache}.py)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ $# -gt 0 ] || set -- 0.61.0 0.{62..68}.*
for version; do
  "${PYTHON:-python3}" -m venv "$folder"
  "$folder/bin/pip" install --quiet "numba==$version" pytest hypothesis
  "$folder/bin/pip" list --format freeze | grep -E "^(numba|llvmlite|numpy)=" | tr "\n" " "
  NUMBA_CACHE_DIR="$folder/cache" PYTHONPATH=$PWD "$folder/bin/python" -m pytest --quiet --no-header --durations 0 "${tests[@]}"
  rm -rf "$folder"
done
