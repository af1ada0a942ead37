#!/bin/sh
# interop.sh: runs interop/*.py (not those named _*.py, which are modules) with a Python that has
# onnx, onnxruntime and numpy: $SBIT_PYTHON, or a virtual environment that is made in build/venv.
cd "$(dirname "$0")" || exit 1
python=${SBIT_PYTHON:-build/venv/bin/python}
if ! command -v "$python" >/dev/null; then
    python3 -m venv build/venv && build/venv/bin/pip install -q onnx onnxruntime numpy pillow
fi
if ! "$python" -c 'import numpy, onnx, onnxruntime'; then
    exec ./run.sh --skip 'interop: no Python with onnx, onnxruntime and numpy'
fi
export SPARSEBIT_CLI="${SPARSEBIT_CLI:-$PWD/build/sparsebit}"
set -- "${MAKE:-make} -s build/sparsebit build/test_conformance" -j "$(nproc 2>/dev/null || echo 1)"
for script in interop/[!_]*.py; do
    if [ -f "$script" ]; then
        set -- "$@" "$python $script"
    fi
done
exec ./run.sh "$@"
