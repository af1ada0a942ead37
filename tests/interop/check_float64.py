"""check_float64.py: what is float64 is computed in float64, by every operator that takes it.

The one-node models of the ONNX backend data with their float32 inputs made float64 (and noise of 1e-9 of
their size added, which float32 does not hold), against the ONNX project's reference implementation,
which is numpy. SBIT_ONLY picks models by a part of their name.
"""
import glob
import os
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import _common as c

BACKEND = os.path.join(c.ROOT, "tests", "build", "onnx-backend", "node")
ONLY = os.environ.get("SBIT_ONLY", "")
LIMIT = 1e-11
# where the reference itself rounds to float32 or differs from its own specification, each looked at:
KNOWN = ("gelu", "hardswish", "test_adam", "_scaled", "gridsample", "deform", "group_normalization", "cubic") # constants in float32
WHOLE = ("argm", "bernoulli", "ceil", "floor", "round", "sign", "hardmax", "onehot", "constant", "range",
         "dropout", "random", "eyelike", "isnan", "isinf", "size", "shape", "nonzero", "not_", "nonmax",
         "cast", "empty_set", "out_of_bounds", "binarizer", "tree_ensemble")
OTHER = ("bernoulli", "dropout", "onehot", "gridsample_nearest", "volumetric_nearest")  # random; halves moved

rng = numpy.random.RandomState(7)


def takes_double(schema, i):
    formal = schema.inputs[min(i, len(schema.inputs) - 1)]
    return "tensor(double)" in formal.types


def widen(model):
    """The model with float64 for float32 wherever its operator allows; None: it does not."""
    node = model.graph.node[0]
    versions = {o.domain: o.version for o in model.opset_import}
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return None
    infos = {v.name: v for v in model.graph.input}
    changed = False
    for i, name in enumerate(node.input):
        info = infos.get(name)
        if info is None or not info.type.HasField("tensor_type"):
            continue
        if info.type.tensor_type.elem_type == TensorProto.FLOAT and takes_double(schema, i):
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
            changed = True
    for value in model.graph.output:
        value.type.Clear()
    return model if changed else None


def inputs_of(folder, model):
    feeds = {}
    for i, info in enumerate(model.graph.input):
        tensor = onnx.TensorProto()
        with open(os.path.join(folder, "test_data_set_0", "input_%d.pb" % i), "rb") as file:
            tensor.ParseFromString(file.read())
        array = numpy_helper.to_array(tensor)
        if info.type.tensor_type.elem_type == TensorProto.DOUBLE and array.dtype == numpy.float32:
            array = array.astype(numpy.float64)
            array = array + 1e-9 * numpy.abs(array) * rng.rand(*array.shape)
        feeds[info.name] = array
    return feeds


def run_ours(model, feeds):
    path = os.path.join(c.TMP, "m.onnx")
    out = os.path.join(c.TMP, "out")
    onnx.save(model, path)
    args = ["run", path, "-o", out, "--threads", "1"]
    for name, array in feeds.items():
        file = os.path.join(c.TMP, "in_%s.pb" % name)
        with open(file, "wb") as f:
            f.write(numpy_helper.from_array(array, name).SerializeToString())
        args += ["--input", "%s=%s" % (name, file)]
    code, text, error = c.tool(*args)
    if code != 0:
        return None, error.strip()[-300:]
    return [numpy.load(os.path.join(out, "%s.npy" % o.name)) for o in model.graph.output], ""


def rounded(array):
    """All values are float32's."""
    with numpy.errstate(all="ignore"):
        return bool(numpy.all((array == array.astype(numpy.float32)) | ~numpy.isfinite(array)))


def compare(name, got, want):
    """The largest difference, by the largest value. Where the reference itself rounds to float32 (it
    does in some operators), ours must agree to that and must not be float32's numbers."""
    worst, text = 0.0, ""
    for a, b in zip(got, want):
        if not isinstance(b, numpy.ndarray) or b.dtype.kind != "f" or a.dtype.kind != "f":
            continue  # other types are the business of the other checks
        limit = LIMIT
        if a.dtype == numpy.float32 or rounded(b) or any(part in name for part in KNOWN):
            limit, text = 1e-6, " (the reference rounds)" if a.dtype == numpy.float64 else ""
            if a.dtype == numpy.float64 and rounded(a) and not rounded_may_be(name):
                return False, name + ": all numbers are float32's"
        if a.shape != b.shape:
            return False, "%s: %s, wanted %s" % (name, a.shape, b.shape)
        with numpy.errstate(all="ignore"):
            off = numpy.where((a == b) | (numpy.isnan(a) & numpy.isnan(b)), 0.0, numpy.abs(a - b))
        finite = b[numpy.isfinite(b)]
        scale = max(numpy.max(numpy.abs(finite)) if finite.size else 0.0, 1e-6)
        worst = max(worst, float(numpy.max(off)) / scale / limit if off.size else 0.0)
    return worst <= 1, "%s: %.2g of what is allowed%s" % (name, worst, text)


def rounded_may_be(name):
    """Results that are whole numbers, zeros, ones."""
    return any(part in name for part in WHOLE)


for folder in sorted(glob.glob(os.path.join(BACKEND, "test_*%s*" % ONLY))):
    name = os.path.basename(folder)
    model = onnx.load(os.path.join(folder, "model.onnx"))
    if any(part in name for part in OTHER):
        continue
    if len(model.graph.node) != 1 or (model := widen(model)) is None:
        continue
    try:
        feeds = inputs_of(folder, model)
        want = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # the reference does not do it
        continue
    if any(isinstance(w, list) for w in want):
        continue
    try:
        got, error = run_ours(model, feeds)
    except (OSError, ValueError):
        continue
    if got is None:
        if "cannot be executed" not in error and "no such operator" not in error:
            c.check(False, "%s: %s" % (name, error))
        continue
    ok, text = compare(name, got, want)
    c.check(ok, text)
c.finish("check_float64")
