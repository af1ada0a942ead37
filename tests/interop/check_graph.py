"""check_graph.py: graphs of sparsebit.h against onnx and onnxruntime.

Models go through import and export; what comes out must pass onnx.checker, keep the names of inputs
and outputs, and compute the same numbers in onnxruntime. The C side is the small program below,
compiled with $CC or cc.
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime

from _common import compile_program
from onnx import TensorProto, helper, numpy_helper, parser

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHARED = os.environ.get("SPARSEBIT_SHARED") or os.path.join(ROOT, "..", "shared")

PROGRAM = r"""
#include "sparsebit.h"
#include <stdio.h>

/* IN OUT: import, clone, export of the clone */
int main(int argc, char **argv)
{
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL, *clone = NULL;
    sbit_error error;
    int failed = argc != 3 || sbit_ctx_create(NULL, &ctx, &error) != SBIT_OK ||
                 sbit_graph_load(ctx, argv[1], &graph, &error) != SBIT_OK ||
                 sbit_graph_validate(graph, &error) != SBIT_OK ||
                 sbit_graph_clone(graph, &clone, &error) != SBIT_OK ||
                 sbit_graph_validate(clone, &error) != SBIT_OK ||
                 sbit_graph_save(clone, argv[2], NULL, &error) != SBIT_OK;
    if (failed) {
        fprintf(stderr, "%s [%s]\n", error.message, error.where);
    }
    sbit_graph_destroy(clone);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    return failed;
}
"""

passed = failed = skipped = 0


def check(ok, what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {what}")
    return ok


def names(values):
    return [value.name for value in values]


def valid(model):
    try:
        onnx.checker.check_model(model, full_check=False)
        return True
    except onnx.checker.ValidationError as error:
        print(str(error)[:300])
        return False


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


DTYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64, "tensor(bool)": numpy.bool_,
          "tensor(int32)": numpy.int32, "tensor(double)": numpy.float64}


def feeds(model, sizes):
    """Random inputs; unknown dimensions take the sizes given, in their order, or 1."""
    rng = numpy.random.default_rng(7)
    out = {}
    for value in session(model).get_inputs():
        given = sizes.get(value.name, [])
        shape = [dim if isinstance(dim, int) else (given[i] if i < len(given) else 1)
                 for i, dim in enumerate(value.shape)]
        dtype = DTYPES[value.type]
        if dtype == numpy.bool_ or value.name in ("sr",):
            out[value.name] = numpy.full(shape, 16000 if value.name == "sr" else 1, dtype)
        else:
            out[value.name] = rng.standard_normal(shape).astype(dtype)
    return out


def same(a, b):
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and numpy.array_equal(x, y, equal_nan=True)
        for x, y in zip(a, b))


def round_trip(program, folder, name, model, sizes=None, run=True):
    source, target = os.path.join(folder, "in.onnx"), os.path.join(folder, "out.onnx")
    onnx.save_model(model, source)
    result = subprocess.run([program, source, target], capture_output=True, text=True)
    if not check(result.returncode == 0, f"{name}: {result.stderr.strip()}"):
        return None
    back = onnx.load(target)
    check(valid(back), f"{name}: onnx.checker")
    weights = set(names(model.graph.initializer))
    wanted = [value for value in names(model.graph.input) if value not in weights]
    got = [value for value in names(back.graph.input)
           if value not in set(names(back.graph.initializer))]
    check(wanted == got and names(model.graph.output) == names(back.graph.output),
          f"{name}: names of inputs and outputs")
    check(not back.functions, f"{name}: functions are inlined")
    if run:
        inputs = feeds(model, sizes or {})
        check(same(session(model).run(None, inputs), session(back).run(None, inputs)),
              f"{name}: outputs in onnxruntime")
    return back


def tensor(name, values):
    return numpy_helper.from_array(numpy.array(values), name)


def with_functions():
    """Nested calls, attribute references under other names, a default, a hidden outer name."""
    return parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19, "local" : 1]>
        agraph (float[N] x, float[N] t) => (float[N] y, float[N] z) {
            y = local.twice <factor = 3.0> (x)
            u = local.twice <factor = 5.0> (y)
            z = Add(u, t)
        }
        <domain: "local", opset_import: ["" : 19, "local" : 1]>
        twice <factor> (a) => (r) {
            t = local.scale <by: float = @factor> (a)
            r = local.scale (t)
        }
        <domain: "local", opset_import: ["" : 19]>
        scale <by: float = 2.0> (a) => (r) {
            k = Constant <value_float: float = @by> ()
            t = Mul(a, k)
            r = LeakyRelu <alpha = 0.5> (t)
        }
    """)


def with_bodies():
    """A body that captures through a body, one that returns an outer value, one a constant."""
    return parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (float[N] x, bool c) => (float[N] y, float[N] z) {
            h = Exp(x)
            y = If(c) <then_branch = b1 () => (float[N] q2) {
                          n = Neg(h)
                          q2 = If(c) <then_branch = b2 () => (float[N] q) { q = Add(x, n) },
                                      else_branch = b3 () => (float[N] p) { p = Sub(x, n) }>
                      }, else_branch = b4 () => (float[N] r) { r = Identity(x) }>
            z = Add(y, h)
        }
    """)


def returning_outer_values():
    model = with_bodies()
    body = model.graph.node[1].attribute[1].g
    del body.node[:]
    body.output[0].name = "h"  # onnxruntime refuses this, so the export must not keep it
    return model


def constants_as_outputs():
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (float[2] x) => (float[2] w, float[2] y) { y = Add(x, w) }
    """)
    model.graph.initializer.append(tensor("w", [1.0, 2.0]))
    model.graph.initializer[0].CopyFrom(tensor("w", numpy.float32([1, 2])))
    return model


def old_style():
    model = constants_as_outputs()
    model.ir_version = 3
    model.graph.output.remove(model.graph.output[0])
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    return model


def sparse():
    model = old_style()
    model.ir_version = 8
    del model.graph.initializer[:]
    del model.graph.input[1]
    values = tensor("w", numpy.float32([4]))
    indices = tensor("", numpy.int64([1]))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    return model


def main():
    global skipped
    onnxruntime.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program("graph_check", PROGRAM)
        for make in (with_functions, with_bodies, constants_as_outputs, old_style, sparse):
            round_trip(program, folder, make.__name__, make(), {"x": [2], "t": [2]})
        back = round_trip(program, folder, "returning_outer_values", returning_outer_values(),
                          run=False)
        if back is not None:
            x = numpy.float32([1, -2])
            got = session(back).run(None, {"x": x, "c": numpy.array(False)})
            check(numpy.allclose(got[0], numpy.exp(x)), "returning_outer_values: the else branch")
        sizes = {"ppocrv4_rec": {"x": [1, 3, 48, 64]}, "ppocrv4_det": {"x": [1, 3, 64, 64]},
                 "ppocr_cls": {"x": [1, 3, 48, 192]}, "yunet_n_dynamic": {"input": [1, 3, 64, 64]},
                 "silero_vad_v4": {"input": [1, 512]}, "silero_vad_v5": {"input": [1, 576]}}
        found = sorted(glob.glob(os.path.join(SHARED, "models", "*", "*.onnx")))
        for path in found:
            name = os.path.basename(path)[:-len(".onnx")]
            round_trip(program, folder, name, onnx.load(path), sizes.get(name))
        if not found:
            skipped += 1
            print("SKIP no shared models")
    print(f"check_graph: {passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
