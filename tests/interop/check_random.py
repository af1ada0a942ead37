"""check_random.py: random graphs: our outputs are ONNX Runtime's, before and after simplification.

    SBIT_GRAPHS=5000 SBIT_SEED=0 python check_random.py     (default: 120 graphs of floats, 60 of any type)
    SBIT_GRAPHS=500 SBIT_KIND=quantized python check_random.py   their Q/DQ graphs on integers and simulated

A difference prints its seed; `python check_random.py SEED [typed]` repeats one graph and keeps its files.
"""
import os
import sys

import numpy
import onnx

import _common as c
import _graphs


# Normalizing a row of equal numbers, or the difference of nearly equal ones, magnifies the last bit:
# up to here a graph is one that "could not be judged", and of those there may be few.
DELICATE = 1e-3


def outputs(folder, model):
    return [numpy.load(os.path.join(folder, o.name + ".npy")) for o in model.graph.output]


def difference(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return numpy.inf
    if want.size == 0:
        return 0.0
    want = want.astype(numpy.float64)
    return numpy.abs(got.astype(numpy.float64) - want).max() / max(numpy.abs(want).max(), 1e-6)


def shaken(session, feeds, want):
    """How far rounding alone moves each output: ONNX Runtime's own change where inputs change in their last bits."""
    moved = [0.0] * len(want)
    for k in range(8):
        rng = numpy.random.default_rng(k)
        near = {n: (v * (1 + rng.uniform(-4e-7, 4e-7, v.shape))).astype(v.dtype) if v.dtype.kind == "f" else v
                for n, v in feeds.items()}
        moved = [max(m, difference(g, w)) for m, g, w in zip(moved, session.run(None, near), want)]
    return moved


def one(seed, folder, kind="any"):
    """'' if all agree, else what differs; None where ONNX Runtime cannot tell."""
    model, feeds = _graphs.graph(seed, kind)
    path, simple = os.path.join(folder, "m.onnx"), os.path.join(folder, "s.onnx")
    onnx.save(model, path)
    try:
        session = c.ort_session(path, False)
        want = session.run(None, feeds)
    except Exception as problem:  # not valid after all, or not built into ONNX Runtime
        return None
    if not all(numpy.isfinite(w).all() for w in want) or max(
            (numpy.abs(w.astype(numpy.float64)).max() for w in want if w.size), default=0) > 1e6:
        return None
    halves = any(n.op_type == "Cast" and n.attribute[0].i == onnx.TensorProto.FLOAT16 for n in model.graph.node) or any(
        v.dtype == numpy.float16 for v in feeds.values())
    limit = 4e-3 if halves else 1e-4  # where a value is rounded to 11 bits is each runtime's choice
    flags = []
    for name, value in feeds.items():
        numpy.save(os.path.join(folder, name + ".npy"), value)
        flags += ["--input", "%s=%s" % (name, os.path.join(folder, name + ".npy"))]
    code, _, err = c.tool("simplify", path, "-o", simple)
    if code != 0:
        return "simplify: " + err.strip()[-300:]
    for what, file in (("run", path), ("run of the simplified", simple)):
        code, _, err = c.tool("run", file, *flags, "-o", folder, "--threads", 1)
        if code != 0:
            return what + ": " + err.strip()[-300:]
        for i, (got, wanted, info) in enumerate(zip(outputs(folder, model), want, model.graph.output)):
            d = difference(got, wanted)
            if not d <= limit:  # a sum that should be 0, or Floor of what should be whole, is nothing but rounding
                excused = d <= DELICATE or d <= 10 * shaken(session, feeds, want)[i]
                return None if excused else "%s: output %s is off by %.3g" % (what, info.name, d)
    try:
        again = c.ort_session(simple, False).run(None, feeds)
    except Exception as problem:
        return "ONNX Runtime refuses the simplified file: " + str(problem)[:300]
    for got, wanted, info in zip(again, want, model.graph.output):
        d = difference(got, wanted)
        if not d <= limit:
            return "ONNX Runtime on the simplified file: output %s is off by %.3g" % (info.name, d) if d > DELICATE else None
    return ""


TARGETS = ("generic", "onnxruntime", "mcu", "openvino", "tensorrt")


def quantized(seed, folder, kind="quantized"):
    """'' if the Q/DQ graph gives on integers what its definition gives, to one step of 255 of the largest; None: it has none."""
    model, feeds = _graphs.graph(seed, "cnn" if seed % 2 == 0 else "any")
    path, out = os.path.join(folder, "m.onnx"), os.path.join(folder, "q.onnx")
    (name, x) = next(iter(feeds.items()))
    onnx.save(model, path)
    numpy.save(os.path.join(folder, "x.npy"), x)
    try:
        c.ort_session(path, False).run(None, feeds)
    except Exception:  # not valid after all: some shapes show when it runs
        return None
    if len(feeds) > 1 or x.dtype != numpy.float32:
        return None
    code, _, err = c.tool("quantize", path, "--data", "npy:" + os.path.join(folder, "x.npy"), "--target",
                          TARGETS[seed % len(TARGETS)], "--threads", 1, "-o", out, "--force")
    if code != 0:
        return None if "nothing in this model can be quantized" in err or "not finite" in err else "quantize: " + err.strip()[-300:]
    results = []
    for flags in ([], c.DEFINITION):
        code, _, err = c.tool("run", out, "--input", name + "=" + os.path.join(folder, "x.npy"), "-o", folder, "--threads", 1, *flags)
        if code != 0:
            return "run: " + err.strip()[-300:]
        results.append(outputs(folder, model))
    worst = max((difference(a, b) for a, b in zip(*results)), default=0.0)
    return "" if worst <= 1.01 / 255 else "integers and definition are %.3g apart" % worst


def some(kind, first, count, most_unknown):
    agree = unknown = 0
    for seed in range(first, first + count):
        problem = (quantized if kind == "quantized" else one)(seed, c.TMP, kind)
        if problem is None:
            unknown += 1
        elif problem == "":
            agree += 1
        else:
            c.check(False, "%s seed %d: %s" % (kind, seed, problem))
    c.check(unknown <= 1 + most_unknown * count, "random graphs (%s): %d agree, %d could not be judged, of %d"
            % (kind, agree, unknown, count))


def main():
    if len(sys.argv) > 1:
        kind = sys.argv[2] if len(sys.argv) > 2 else "any"
        folder = "/tmp/random-%s-%s" % (kind, sys.argv[1])
        os.makedirs(folder, exist_ok=True)
        print(folder, repr((quantized if kind == "quantized" else one)(int(sys.argv[1]), folder, kind)))
        return
    first, count = int(os.environ.get("SBIT_SEED") or 0), int(os.environ.get("SBIT_GRAPHS") or 180)
    if os.environ.get("SBIT_KIND", "any") == "any":
        some("any", first, count * 2 // 3, 0.01)
    if os.environ.get("SBIT_KIND", "typed") == "typed":
        some("typed", first, count // 3, 0.15)
    if os.environ.get("SBIT_KIND") == "quantized":
        some("quantized", first, count, 0.4)
    c.finish("check_random")


main()
