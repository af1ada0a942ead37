"""check_opset.py: `sparsebit convert-opset`, up and down: ONNX Runtime gives the converted model the outputs
of the model, and onnx's checker takes it. Models of one node, and small shared models where they are."""
import glob
import os

import numpy
import onnx
import onnxruntime

import _common as c

TARGETS = [9, 11, 13, 17, 21, 28]
NEWEST = 23  # that every ONNX Runtime of today takes
LARGEST = 12 << 20  # bytes of a model


def outputs(path, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds(session) if callable(feeds) else feeds)


def random_feeds(session):
    rng = numpy.random.RandomState(5)
    feeds = {}
    for value in session.get_inputs():
        dims = [d if isinstance(d, int) else 1 for d in value.shape]
        if value.type != "tensor(float)":
            raise NotImplementedError(value.type)
        feeds[value.name] = rng.rand(*dims).astype(numpy.float32)
    return feeds


def convert(path, target):
    """The converted model's path, or None and the tool's message."""
    out = os.path.join(c.TMP, "converted.onnx")
    code, _, err = c.tool("convert-opset", path, "--to", target, "-o", out)
    return (out, "") if code == 0 else (None, err.strip())


def compare(name, path, target, feeds):
    out, why = convert(path, target)
    if out is None:
        return c.check(False, "%s to %d is refused: %s" % (name, target, why[-120:].replace("\n", " ")))
    onnx.checker.check_model(out)
    if target > NEWEST:  # of ONNX Runtime: back again
        back = next(o.version for o in onnx.load(path, load_external_data=False).opset_import if not o.domain)
        os.replace(out, out + ".high")
        out, why = convert(out + ".high", back)
        if out is None:
            return c.check(False, "%s to %d and back: %s" % (name, target, why[-120:]))
    got, want = outputs(out, feeds), outputs(path, feeds)
    worst = max(float(numpy.max(numpy.abs(a - b), initial=0) / max(numpy.max(numpy.abs(b), initial=0), 1e-6))
                for a, b in zip(got, want))
    return c.check(worst < 1e-5, "%s to %d: %.2g" % (name, target, worst))


def models():
    for path in sorted(glob.glob(os.path.join(c.SHARED, "models", "**", "*.onnx"), recursive=True)):
        if os.path.getsize(path) <= LARGEST:
            yield os.path.basename(path), path


def main():
    found = False
    for name, path in models():
        try:
            opset = next(o.version for o in onnx.load(path, load_external_data=False).opset_import
                         if not o.domain)
            outputs(path, random_feeds)
        except Exception:  # integers or strings as inputs, or not for ONNX Runtime
            continue
        found = True
        for target in TARGETS:
            if target != opset:
                compare(name, path, target, random_feeds)
    if not found:
        c.skip("no shared models")
    c.finish("check_opset")


main()
