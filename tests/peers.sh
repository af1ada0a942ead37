#!/bin/sh
# peers.sh [costs]: bench/peers.py or costs.py (its arguments: PEERS) with a Python that has onnx, onnxruntime, openvino
# and numpy, for the chart matplotlib: $SBIT_PYTHON, or a virtual environment that is made in build/venv.
cd "$(dirname "$0")" || exit 1
python=${SBIT_PYTHON:-build/venv/bin/python}
if ! command -v "$python" >/dev/null; then
    python3 -m venv build/venv
fi
if ! "$python" -c 'import numpy, onnx, onnxruntime, openvino' 2>/dev/null; then
    "$python" -m pip install -q numpy onnx onnxruntime openvino matplotlib || exit 1
fi
${MAKE:-make} -s build/sparsebit || exit 1
SPARSEBIT_CLI="${SPARSEBIT_CLI:-$PWD/build/sparsebit}" exec "$python" "bench/${1:-peers}.py" $PEERS
