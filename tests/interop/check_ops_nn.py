"""check_ops_nn.py: convolutions, pools, products, norms, recurrent layers, Resize ... with random
attributes and shapes against ONNX Runtime.

Every case is a one-node model written in the layout of the ONNX backend data (model.onnx,
test_data_set_0/input_*.pb, output_*.pb) with ONNX Runtime's outputs; build/test_conformance then
runs them all (SBIT_CONFORMANCE names another program). SBIT_CASES cases of each kind (default 40),
SBIT_SEED chooses others. Run for threads 1 and 3.
"""
import os
import subprocess
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import _common as c

CASES = int(os.environ.get("SBIT_CASES", "40"))
rng = numpy.random.RandomState(int(os.environ.get("SBIT_SEED", "1")))


def pick(*values):
    return values[rng.randint(len(values))]


def ints(low, high, n):
    return [int(v) for v in rng.randint(low, high + 1, n)]


def normal(*shape):
    return rng.randn(*shape).astype(numpy.float32)


class Case:
    """A node: inputs by name (None: omitted), which of them are initializers, attributes."""

    def __init__(self, op, inputs, outputs=1, opset=21, constant=(), **attributes):
        self.op, self.inputs, self.outputs, self.opset = op, inputs, outputs, opset
        self.constant = set(constant)
        self.attributes = {k: v for k, v in attributes.items() if v is not None}

    def model(self):
        names = ["" if a is None else "i%d" % k for k, a in enumerate(self.inputs)]
        outs = ["o%d" % k for k in range(self.outputs)]
        node = helper.make_node(self.op, names, outs, name="n", **self.attributes)
        values, weights = [], []
        for k, array in enumerate(self.inputs):
            if array is None:
                continue
            if k in self.constant:
                weights.append(numpy_helper.from_array(array, names[k]))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                dims = [pick(d, "d%d_%d" % (k, i)) for i, d in enumerate(array.shape)]
                values.append(helper.make_tensor_value_info(names[k], kind, dims))
        outputs = [helper.make_value_info(o, onnx.TypeProto()) for o in outs]
        graph = helper.make_graph([node], "g", values, outputs, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                  ir_version=9)
        for k, out in enumerate(model.graph.output):
            integer = (self.op == "MaxPool" and k == 1)
            out.type.tensor_type.elem_type = TensorProto.INT64 if integer else \
                helper.np_dtype_to_tensor_dtype(self.inputs[0].dtype)
        return model

    def __str__(self):
        return "%s-%d %s %s" % (self.op, self.opset, [a if a is None else a.shape
                                                      for a in self.inputs], self.attributes)

    def feeds(self):
        return {"i%d" % k: a for k, a in enumerate(self.inputs)
                if a is not None and k not in self.constant}


def windows(n, low=4, high=12):
    """Kernel, strides, dilations, pads, auto_pad and an input size they fit."""
    kernel, strides, dilations = ints(1, 4, n), ints(1, 3, n), ints(1, 2, n)
    auto = pick(None, None, None, "SAME_UPPER", "SAME_LOWER", "VALID")
    pads = None
    if auto is None and rng.rand() < 0.7:
        pads = [int(rng.randint(0, k)) for k in kernel + kernel]
    size = [max(s, (k - 1) * d + 1) for s, k, d in zip(ints(low, high, n), kernel, dilations)]
    return kernel, strides, dilations, pads, auto, size


def conv():
    n = pick(1, 2, 2, 2, 3)
    kernel, strides, dilations, pads, auto, size = windows(n, 4, 14 if n < 3 else 7)
    if auto not in (None, "VALID"):
        dilations = [1] * n  # ONNX Runtime refuses auto_pad with dilations
    group = pick(1, 1, 2, 3, 8)
    cin, cout = group * pick(1, 1, 2, 5), group * pick(1, 2, 3, 8)
    w = normal(cout, cin // group, *kernel)
    bias = pick(None, normal(cout))
    return Case("Conv", [normal(pick(1, 2), cin, *size), w, bias], constant=pick((), (1,), (1, 2)),
                group=group, kernel_shape=pick(None, kernel), strides=strides,
                dilations=dilations, pads=pads, auto_pad=auto)


def conv_transpose():
    n = pick(1, 2, 2, 3)
    kernel, strides, dilations, size = ints(1, 4, n), ints(1, 3, n), ints(1, 2, n), ints(1, 6, n)
    group = pick(1, 1, 2, 4)
    cin, cout = group * pick(1, 2, 5), pick(1, 2, 3)
    full = [(s - 1) * t + (k - 1) * d + 1 for s, t, k, d in zip(size, strides, kernel, dilations)]
    pads = None if rng.rand() < 0.5 else [int(rng.randint(0, (f + 1) // 2)) for f in full + full]
    extra = None if rng.rand() < 0.5 else [int(rng.randint(0, max(s, d)))
                                           for s, d in zip(strides, dilations)]
    w = normal(cin, cout, *kernel)
    bias = pick(None, normal(cout * group))
    return Case("ConvTranspose", [normal(pick(1, 2), cin, *size), w, bias],
                constant=pick((), (1,), (1, 2)), group=group, strides=strides,
                dilations=dilations, pads=pads, output_padding=extra)


def pool():
    n = pick(1, 2, 2, 3)
    kernel, strides, dilations, pads, auto, size = windows(n, 3, 10)
    op = pick("MaxPool", "MaxPool", "AveragePool", "LpPool")
    # A window must not lie in padding alone, which only this library defines.
    pads = None if pads is None else [min(p, (k - 1) // 2) for p, k in zip(pads, kernel * 2)]
    ceil = pick(0, 1) if auto is None else None
    if auto is not None:
        dilations = [1] * n
    x = normal(pick(1, 2), pick(1, 3), *size)
    common = dict(kernel_shape=kernel, strides=strides, pads=pads, auto_pad=auto)
    if op == "MaxPool":
        if rng.rand() < 0.3:
            x = (x * 40).astype(pick(numpy.int8, numpy.uint8))
        return Case(op, [x], pick(1, 2), dilations=dilations, ceil_mode=ceil,
                    storage_order=pick(0, 1), **common)
    if op == "AveragePool":
        return Case(op, [x], ceil_mode=ceil, count_include_pad=pick(0, 1),
                    dilations=dilations, **common)
    return Case(op, [x], p=pick(1, 2, 3), dilations=dilations, **common)


def global_pool():
    x = normal(pick(1, 2), pick(1, 4), *ints(1, 9, pick(1, 2, 3)))
    return Case(pick("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), [x])


def gemm():
    m, k, n = ints(1, 20, 3)
    trans_a, trans_b = pick(0, 1), pick(0, 1)
    bias = pick(None, normal(n), normal(1, n), normal(m, 1), normal(m, n), normal(1),
                normal(1, 1))
    return Case("Gemm", [normal(k, m) if trans_a else normal(m, k),
                         normal(n, k) if trans_b else normal(k, n), bias],
                constant=pick((), (1,), (1, 2)), transA=trans_a, transB=trans_b,
                alpha=pick(None, 0.5, 1.0), beta=pick(None, 2.0, 0.25))


def matmul():
    m, k, n = ints(1, 20, 3)
    a, b = ints(1, 3, 2), ints(1, 3, 2)
    b = [pick(x, 1) for x in a]
    a = [pick(x, 1) if y != 1 else x for x, y in zip(a, b)]
    left = pick([k], [m, k], a + [m, k], [2] + a + [m, k])
    right = pick([k], [k, n], b + [k, n], b[1:] + [k, n])
    left, right = normal(*left), normal(*right)
    if rng.rand() < 0.2:
        kind = pick(numpy.int32, numpy.int64, numpy.uint32, numpy.uint64)
        left, right = (left * 9).astype(kind), (right * 9).astype(kind)
    return Case("MatMul", [left, right], constant=pick((), (1,)))


def recurrent():
    op = pick("LSTM", "GRU", "RNN")
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    t, n, i, h = pick(1, 2, 7), pick(1, 2, 4), pick(1, 3, 9), pick(1, 3, 8, 17)
    direction = pick("forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    lengths = pick(None, rng.randint(1, t + 1, n).astype(numpy.int32))
    inputs = [normal(t, n, i), normal(d, gates * h, i), normal(d, gates * h, h) / (2 * h),
              pick(None, normal(d, 2 * gates * h)), lengths, pick(None, normal(d, n, h))]
    per = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    bounded = ["Tanh", "Sigmoid", "HardSigmoid", "Softsign"]  # others let the gates explode
    acts = pick(None, None, [pick(*bounded) if k % per == 0 else
                             pick("Relu", "LeakyRelu", "Elu", "Affine", *bounded)
                             for k in range(per * d)])
    alpha = None if acts is None else [0.3] * sum(a in ("HardSigmoid", "LeakyRelu", "Elu", "Affine")
                                                  for a in acts)
    beta = None if acts is None else [0.4] * sum(a in ("HardSigmoid", "Affine") for a in acts)
    extra = dict(activations=acts, activation_alpha=alpha or None, activation_beta=beta or None)
    if op == "LSTM":
        inputs += [pick(None, normal(d, n, h)), pick(None, normal(d, 3 * h))]
    if op == "GRU":
        extra["linear_before_reset"] = pick(0, 1)
    if op != "LSTM" and rng.rand() < 0.3:
        extra["clip"] = 0.7
    return Case(op, inputs, 3 if op == "LSTM" else 2, constant=pick((), (1, 2, 3)), hidden_size=h,
                direction=direction, **extra)


def resize():
    n = pick(1, 2, 2, 2, 3)
    mode = pick("nearest", "linear", "cubic") if n == 2 else pick("nearest", "linear")
    place = pick("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    size, out = ints(2, 8, n), ints(1, 12, n)
    x = normal(1, 2, *size)
    extra = {}
    if mode == "nearest":
        extra["nearest_mode"] = pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        extra.update(cubic_coeff_a=pick(-0.75, -0.5), exclude_outside=pick(0, 1))
        if place == "align_corners":
            extra["exclude_outside"] = 0
    if place == "pytorch_half_pixel":
        out = [max(v, 2) for v in out]
    if mode != "nearest" and n == 2 and rng.rand() < 0.3:
        extra.update(antialias=1)
    if rng.rand() < 0.3 and place != "align_corners":
        scales = numpy.array([1, 1] + [pick(0.5, 2, 3, 1.5)] * n, numpy.float32)
        return Case("Resize", [x, None, scales], constant=(2,), mode=mode,
                    coordinate_transformation_mode=place, **extra)
    return Case("Resize", [x, None, None, numpy.array([1, 2] + out, numpy.int64)],
                constant=pick((), (3,)), mode=mode, coordinate_transformation_mode=place, **extra)


def softmax():
    x = normal(*ints(1, 9, pick(1, 2, 3, 4)))
    axis = int(rng.randint(-x.ndim, x.ndim))
    return Case(pick("Softmax", "LogSoftmax", "Hardmax"), [x], opset=pick(11, 13, 21), axis=axis)


def norm():
    op = pick("BatchNormalization", "LayerNormalization", "InstanceNormalization", "LRN",
              "LpNormalization", "GroupNormalization")
    x = normal(pick(1, 2), 6, *ints(1, 9, 2))
    if op == "BatchNormalization":
        stats = [normal(6), normal(6), normal(6), numpy.abs(normal(6))]
        return Case(op, [x] + stats, constant=pick((), (1, 2, 3, 4)), opset=pick(9, 14, 15))
    if op == "LayerNormalization":
        axis = pick(1, 2, 3, -1)
        shape = x.shape[axis:]
        return Case(op, [x, normal(*shape), pick(None, normal(*shape))], axis=axis)
    if op == "InstanceNormalization":
        return Case(op, [x, normal(6), normal(6)], epsilon=1e-3)
    if op == "GroupNormalization":
        return Case(op, [x, normal(6), normal(6)], num_groups=pick(1, 2, 3, 6))
    if op == "LRN":
        return Case(op, [x], size=pick(1, 3, 5), alpha=0.2, beta=0.5, bias=pick(1.0, 2.0))
    return Case(op, [x], axis=pick(0, 1, -1), p=pick(1, 2))


def einsum():
    sizes = dict(zip("abcdijk", ints(1, 5, 7)))
    equation = pick("ij,jk->ik", "abij,abjk->abik", "abid,abjd->abij", "aibd,ajbd->abij", "ij->ji",
                    "ii->i", "ij,ij->i", "i,j->ij", "aij,ajk", "ij,jk,kd->id", "...ij,...jk->...ik",
                    "ij,kj->ik", "ji,jk->ki", "abc->b", "bad,bcd->bac", "ab,ab->", "...i->...")
    shapes = []
    for term in equation.split("->")[0].split(","):
        letters = [sizes[letter] for letter in term.replace("...", "")]
        shapes.append(([2] if "..." in term else []) + letters)
    return Case("Einsum", [normal(*s) for s in shapes], equation=equation)


def grid_sample():
    x = normal(2, 3, *ints(2, 6, 2))
    grid = normal(2, *ints(1, 6, 2), 2)
    opset = pick(16, 20)
    modes = ("nearest", "bilinear", "bicubic") if opset == 16 else ("nearest", "linear", "cubic")
    return Case("GridSample", [x, grid], opset=opset, align_corners=pick(0, 1),
                padding_mode=pick("zeros", "border", "reflection"), mode=pick(*modes))


def regions():
    x = normal(2, 3, 9, 11)
    corner = rng.rand(4, 2) * 6
    boxes = numpy.concatenate([corner, corner + rng.rand(4, 2) * 8], 1).astype(numpy.float32)
    batch = rng.randint(0, 2, 4)
    if rng.rand() < 0.5:
        rois = numpy.concatenate([batch[:, None], boxes], 1).astype(numpy.float32)
        return Case("MaxRoiPool", [x, rois], pooled_shape=ints(1, 4, 2),
                    spatial_scale=pick(1.0, 0.5))
    return Case("RoiAlign", [x, boxes, batch.astype(numpy.int64)], opset=pick(10, 16),
                output_height=pick(1, 3), output_width=pick(1, 2), sampling_ratio=pick(0, 2),
                spatial_scale=pick(1.0, 0.5))


def deform_conv():
    kernel, group, offset_group = ints(1, 3, 2), pick(1, 2), pick(1, 2)
    size, out = ints(4, 8, 2), []
    for s, k in zip(size, kernel):
        out.append(s + 2 - k + 1)
    taps = offset_group * kernel[0] * kernel[1]
    offset = (normal(2, 2 * taps, *out) * 2)
    return Case("DeformConv", [normal(2, 4, *size), normal(6, 4 // group, *kernel), offset,
                               pick(None, normal(6)), pick(None, normal(2, taps, *out))], opset=19,
                group=group, offset_group=offset_group, pads=[1] * 4, kernel_shape=kernel)


KINDS = [conv, conv_transpose, deform_conv, pool, global_pool, gemm, matmul, recurrent, resize, softmax, norm,
         einsum, grid_sample, regions]


def write(folder, model, case, outputs):
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    for k, array in enumerate(case.feeds().values()):
        with open(os.path.join(data, "input_%d.pb" % k), "wb") as file:
            file.write(numpy_helper.from_array(array).SerializeToString())
    for k, array in enumerate(outputs):
        with open(os.path.join(data, "output_%d.pb" % k), "wb") as file:
            file.write(numpy_helper.from_array(array).SerializeToString())


def make(root):
    """Writes the cases that ONNX Runtime can run; them by name."""
    made = {}
    for kind in KINDS:
        refused = 0
        for k in range(CASES):
            case = kind()
            model, path = case.model(), os.path.join(c.TMP, "m.onnx")
            try:
                onnx.save(model, path)
                outputs = c.ort_session(path, False).run(None, case.feeds())
            except Exception as problem:  # pylint: disable=broad-except
                refused += 1
                if os.environ.get("SBIT_VERBOSE"):
                    print(case, str(problem)[:300])
                continue
            name = "test_%s_%03d" % (kind.__name__, k)
            write(os.path.join(root, "node", name), model, case, outputs)
            made[name] = case
        c.check(refused <= CASES * 0.6, "%s: ONNX Runtime ran %d of %d cases"
                % (kind.__name__, CASES - refused, CASES))
    return made


def main(name="check_ops_nn"):
    root = os.path.join(c.TMP, "ops")
    program = os.environ.get("SBIT_CONFORMANCE")
    if not program:
        tests = os.path.join(c.ROOT, "tests")
        subprocess.run(["make", "-s", "-C", tests, "build/test_conformance"], check=True)
        program = os.path.join(tests, "build", "test_conformance")
    made = make(root)
    for threads in ("1", "3"):
        env = dict(os.environ, SPARSEBIT_BACKEND=root, SPARSEBIT_TEST_THREADS=threads)
        done = subprocess.run([program, "test_"], env=env, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        for line in lines:
            if not line.startswith("pass "):
                print(line)
                print(*["    %s" % made[n] for n in made if n in line], sep="\n")
        passed = sum(line.startswith("pass ") for line in lines)
        c.check(passed == len(made), "%d of %d cases agree with ONNX Runtime, %s threads"
                % (passed, len(made), threads))
    c.finish(name)


if __name__ == "__main__":
    sys.exit(main())
