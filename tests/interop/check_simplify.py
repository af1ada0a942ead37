"""check_simplify.py: simplified and lifted models against onnx and onnxruntime.

Every shared model, and every model of the ONNX backend data that onnxruntime runs, is simplified
(and in a second round lifted to opset 21 first). The result must pass onnx.checker with shape
inference, keep the names of inputs and outputs, have no more nodes than before, and give the
outputs of the original in onnxruntime. The C side is the small program below, compiled with $CC or
cc. SPARSEBIT_CHECK_ALL=1 takes all backend models, otherwise every fifth.
"""
import glob
import os
import subprocess
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

from _common import ROOT, SHARED, check, compile_program, finish, skip

PROGRAM = r"""
#include "sparsebit.h"
#include <stdio.h>

static int one(sbit_ctx *ctx, const char *in, const char *out, int lift, sbit_error *error)
{
    sbit_graph *graph = NULL;
    sbit_simplify_stats stats = {0, 0, 0, 0};
    int failed = sbit_graph_load(ctx, in, &graph, error) != SBIT_OK ||
                 (lift > 0 && sbit_graph_lift_opset(graph, lift, error) != SBIT_OK) ||
                 sbit_simplify(graph, NULL, &stats, error) != SBIT_OK ||
                 sbit_graph_validate(graph, error) != SBIT_OK ||
                 sbit_graph_save(graph, out, NULL, error) != SBIT_OK;
    if (!failed) {
        printf("ok %d %d\n", (int)stats.nodes_before, (int)stats.nodes_after);
    } else {
        printf("%d %s\n", (int)error->status, error->message);
    }
    sbit_graph_destroy(graph);
    return failed;
}

/* Lines of: IN, OUT, LIFT (0: no), each on its own. */
int main(void)
{
    sbit_ctx *ctx = NULL;
    sbit_error error;
    char in[1024], out[1024], lift[16];
    if (sbit_ctx_create(NULL, &ctx, &error) != SBIT_OK) {
        return 1;
    }
    while (scanf("%1023s %1023s %15s", in, out, lift) == 3) {
        one(ctx, in, out, atoi(lift), &error);
        fflush(stdout);
    }
    sbit_ctx_destroy(ctx);
    return 0;
}
"""
CANNOT_LIFT = -6  # SBIT_ERR_UNSUPPORTED
DTYPES = {"tensor(float)": numpy.float32, "tensor(int64)": numpy.int64, "tensor(bool)": numpy.bool_,
          "tensor(int32)": numpy.int32, "tensor(double)": numpy.float64}


def run_program(program, jobs):
    lines = "".join("%s %s %d\n" % job for job in jobs)
    done = subprocess.run([program], input=lines, capture_output=True, text=True)
    answers = done.stdout.splitlines()
    check(len(answers) == len(jobs), "the program answered %d of %d: exit %d %s"
          % (len(answers), len(jobs), done.returncode, done.stderr[-300:]))
    return answers


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def random_feeds(sess, sizes):
    rng = numpy.random.default_rng(7)
    feeds = {}
    for value in sess.get_inputs():
        rank_sizes = sizes if len(value.shape) == len(sizes) else sizes[:1]
        shape = [dim if isinstance(dim, int) else rank_sizes[min(i, len(rank_sizes) - 1)]
                 for i, dim in enumerate(value.shape)]
        if value.name == "sr":
            feeds[value.name] = numpy.full(shape, 16000, numpy.int64)
        else:
            feeds[value.name] = rng.uniform(-1, 1, shape).astype(DTYPES[value.type])
    return feeds


def away(a, b):
    """max|a - b| / max|a|; None for what is not comparable."""
    worst = 0.0
    if len(a) != len(b):
        return None
    for x, y in zip(a, b):
        if isinstance(x, list) or isinstance(y, list) or x is None or y is None:
            worst = max(worst, 0.0 if str(x) == str(y) else 1e30)
            continue
        if x.shape != y.shape or x.dtype != y.dtype:
            return None
        if x.dtype.kind not in "fiu":
            worst = max(worst, 0.0 if numpy.array_equal(x, y) else 1e30)
            continue
        with numpy.errstate(all="ignore"):
            x, y = x.astype(numpy.float64), y.astype(numpy.float64)
            off = numpy.where((x == y) | (numpy.isnan(x) & numpy.isnan(y)), 0, numpy.abs(x - y))
            most = numpy.abs(x[numpy.isfinite(x)])
        if off.size:
            worst = max(worst, numpy.nan_to_num(off, nan=1e30).max() / max(most.max() if most.size else 0, 1e-6))
    return worst


def real_inputs(model):
    weights = {t.name for t in model.graph.initializer}
    return [v.name for v in model.graph.input if v.name not in weights]


def compare(label, before, after, feeds, tolerance, strict):
    """Checks one pair of files. `strict`: shape inference of onnx must agree too."""
    old, new = onnx.load(before), onnx.load(after)
    try:
        onnx.checker.check_model(new, full_check=strict)
    except Exception as error:  # onnx raises many kinds
        check(False, "%s: onnx.checker: %s" % (label, str(error)[:300]))
        return
    if real_inputs(old) != real_inputs(new) or \
            [v.name for v in old.graph.output] != [v.name for v in new.graph.output]:
        check(False, "%s: names of inputs or outputs changed" % label)
        return
    wanted = session(before)
    try:
        given = session(after)
    except Exception as error:
        check(False, "%s: onnxruntime: %s" % (label, str(error)[:300]))
        return
    for feed in feeds(wanted):
        try:
            reference = wanted.run(None, feed)
        except Exception as error:
            skip("%s: onnxruntime cannot run the original: %s" % (label, str(error)[:80]))
            return
        off = away(reference, given.run(None, feed))
        if off is None or off > tolerance:
            check(False, "%s: outputs differ by %s" % (label, off))
            return
    check(True, label)


# ---- the shared models: name, sizes of unknown dims, tolerance

MODELS = [("cifar10/*", [2], 1e-4), ("zoo/mnist_8", [1], 1e-4), ("zoo/super_resolution_10", [1], 1e-4),
          ("zoo/ultraface_rfb320", [1], 1e-4), ("zoo/yunet_n_dynamic", [2, 3, 64, 96], 1e-4),
          ("zoo/ppocr_cls", [1, 3, 48, 192], 1e-4), ("zoo/ppocrv4_det", [1, 3, 320, 320], 1e-3),
          ("zoo/ppocrv4_rec", [1, 3, 48, 96], 1e-3), ("zoo/silero_vad_v4", [1, 512], 1e-4),
          ("zoo/silero_vad_v5", [1, 512], 1e-4), ("bench/*", [1], 1e-4)]


def shared_models(program, folder):
    jobs, details = [], []
    for pattern, sizes, tolerance in MODELS:
        for path in sorted(glob.glob(os.path.join(SHARED, "models", pattern + ".onnx"))):
            for lift in (0, 21):
                name = os.path.basename(path)[:-5] + (" at opset %d" % lift if lift else "")
                jobs.append((path, os.path.join(folder, name.replace(" ", "_") + ".onnx"), lift))
                details.append((name, sizes, tolerance))
    if not jobs:
        skip("no shared models")
        return
    for job, (name, sizes, tolerance), answer in zip(jobs, details, run_program(program, jobs)):
        if not answer.startswith("ok"):
            check(False, "%s: %s" % (name, answer))
            continue
        _, before, after = answer.split()
        check(int(after) <= int(before) or job[2], "%s: %s nodes became %s" % (name, before, after))
        compare(name, job[0], job[1], lambda s, z=sizes: [random_feeds(s, z)], tolerance, True)


# ---- the backend data

def load_tensors(folder, kind, model):
    out = {}
    values = model.graph.input if kind == "input" else model.graph.output
    for i, value in enumerate(values):
        path = os.path.join(folder, "%s_%d.pb" % (kind, i))
        if not os.path.exists(path):
            continue
        which = value.type.WhichOneof("value")
        if which != "tensor_type":
            return None
        out[value.name] = numpy_helper.to_array(onnx.load_tensor(path))
    return out


def runs(path):
    """A feed for a backend model that onnxruntime runs; None for the others."""
    try:
        model = onnx.load(path)
        feed = load_tensors(os.path.join(os.path.dirname(path), "test_data_set_0"), "input", model)
        if feed is None:
            return None
        session(path).run(None, feed)
        return feed
    except Exception:
        return None


def backend_models(program, folder):
    root = os.path.join(ROOT, "tests", "build", "onnx-backend")
    paths = sorted(glob.glob(os.path.join(root, "*", "*", "model.onnx")))
    if not paths:
        skip("no backend data")
        return
    paths = paths if os.environ.get("SPARSEBIT_CHECK_ALL") else paths[::5]
    feeds = {path: runs(path) for path in paths}
    paths = [path for path in paths if feeds[path] is not None]
    for lift in (0, 21):
        jobs = [(path, os.path.join(folder, "%d_%s.onnx" % (lift, os.path.basename(os.path.dirname(path)))),
                 lift) for path in paths]
        for job, answer in zip(jobs, run_program(program, jobs)):
            name = os.path.basename(os.path.dirname(job[0])) + (" at opset 21" if lift else "")
            if lift and answer.startswith("%d " % CANNOT_LIFT):
                print("not lifted: %s: %s" % (name, answer[:160]))
                continue
            if check(answer.startswith("ok"), "%s: %s" % (name, answer)):
                tolerance = 2e-3 if "fp16" in name or "float16" in name else 1e-4
                compare(name, job[0], job[1], lambda s, f=feeds[job[0]]: [f], tolerance, False)


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program("simplify_check", "#include <stdlib.h>\n" + PROGRAM)
        shared_models(program, folder)
        backend_models(program, folder)
    finish("check_simplify")


main()
