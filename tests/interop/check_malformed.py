"""check_malformed.py: operators that the ONNX project has no tests of, broken field by field.

Models of one operator of integers, com.microsoft or ai.onnx.ml (made by check_qlinear.py, _microsoft.py, _ml.py), all of whose
inputs are fed, in the layout of the ONNX backend data; build/test_malformed breaks them (SBIT_MALFORMED names another
program, SBIT_BAD_STRIDE how many breakages are tried).
"""
import os
import subprocess

import numpy as np
import onnx
from onnx import numpy_helper

import _common as c
import check_microsoft
import check_ml
import check_qlinear as q

EACH = 4
QLINEAR = (q.conv_q, q.conv_integer, q.matmul_q, q.matmul_integer, q.gemm_q, q.binary, q.concat, q.unary, q.softmax,
           q.pool_average, q.pool_global)


def write(folder, case):
    case.constant = set()
    model = case.model()
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    for k, value in enumerate(model.graph.input):
        array = np.asarray(case.inputs[int(value.name[1:])])
        with open(os.path.join(data, "input_%d.pb" % k), "wb") as file:
            file.write(numpy_helper.from_array(array, value.name).SerializeToString())


def main():
    root = os.path.join(c.TMP, "malformed")
    program = os.environ.get("SBIT_MALFORMED")
    if not program:
        tests = os.path.join(c.ROOT, "tests")
        subprocess.run(["make", "-s", "-C", tests, "build/test_malformed"], check=True)
        program = os.path.join(tests, "build", "test_malformed")
    for group, kinds in (("q", QLINEAR), ("ms", check_microsoft.KINDS), ("ml", check_ml.KINDS)):
        for kind in kinds:
            for i in range(EACH):
                write(os.path.join(root, "node", "test_%s_%s_%d" % (group, kind.__name__, i)), kind())
    env = dict(os.environ, SPARSEBIT_BACKEND=root)
    env.setdefault("SBIT_BAD_STRIDE", "41")
    done = subprocess.run([program, "every_field"], env=env, capture_output=True, text=True)
    print(done.stdout)
    c.check(done.returncode == 0, "what is broken in operators of integers, com.microsoft and ai.onnx.ml is an error that names the node")
    c.finish("check_malformed")


main()
