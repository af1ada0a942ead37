"""check_forms.py: small models of every form that is quantized: ONNX Runtime computes from the file what we do, near to
the float model; and the form has integers where it should."""
import os

import numpy as np
import onnx

import _common as c

h, npy = onnx.helper, onnx.numpy_helper
rng = np.random.RandomState(3)
F, H = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def w(name, *dims, kind=np.float32, size=0.3):
    return npy.from_array((rng.randn(*dims) * size).astype(kind), name)


def n(op, inputs, outputs="y", **attrs):
    return h.make_node(op, inputs.split(), outputs.split(), **attrs)


def ints(name, *values):
    return npy.from_array(np.array(values, np.int64), name)


def body(kind):
    """If: a layer in each branch. Loop: three steps of a layer on what they carry."""
    value = lambda name, t=F, shape=None: h.make_tensor_value_info(name, t, shape)
    if kind == "If":
        branch = lambda k: h.make_graph([n("Conv", "a w%d" % k, "t%d" % k)], "b%d" % k, [], [value("t%d" % k)],
                                        [w("w%d" % k, 4, 3, 1, 1)])
        return [n("Relu", "x", "a"), n("ReduceMax", "x", "m", keepdims=0), n("Greater", "m zero", "k"),
                n("If", "k", then_branch=branch(1), else_branch=branch(2))], \
               [npy.from_array(np.float32(0), "zero")]
    loop = h.make_graph([n("Identity", "k", "more"), n("MatMul", "h v", "p"), n("Tanh", "p", "next")], "l",
                        [value("i", 7, []), value("k", 9, []), value("h", F, ["N", 8])],
                        [value("more", 9, []), value("next", F, ["N", 8])], [w("v", 8, 8)])
    return [n("Loop", "three yes x", body=loop)], [npy.from_array(np.int64(3), "three"), npy.from_array(np.array(True), "yes")]


IF, LOOP = body("If"), body("Loop")
IMAGE, ROWS, STEPS = ["N", 3, 8, 8], ["N", 8], [5, "N", 6]
# name: input dims, type, nodes, constants, weights that become integers, least SQNR
MODELS = {
    "depthwise and grouped": (IMAGE, F, [n("Conv", "x a", "p", group=3, pads=[1, 1, 1, 1]), n("Relu", "p", "q"),
                                         n("Conv", "q b", "r"), n("Conv", "r d", group=2)],
                              [w("a", 3, 1, 3, 3), w("b", 8, 3, 1, 1), w("d", 6, 4, 3, 3)], "abd", 28),
    "ConvTranspose": (IMAGE, F, [n("ConvTranspose", "x a b", "p", strides=[2, 2], output_padding=[1, 1]), n("Relu", "p", "q"),
                                 n("Conv", "q d")], [w("a", 3, 4, 3, 3), w("b", 4), w("d", 2, 4, 1, 1)], "ad", 28),
    "Conv of rank 3": (["N", 3, 20], F, [n("Conv", "x a", "p", dilations=[2]), n("LeakyRelu", "p", "q"), n("Conv", "q b")],
                       [w("a", 5, 3, 3), w("b", 2, 5, 1)], "ab", 28),
    "tied weights": (ROWS, F, [n("MatMul", "x a", "p"), n("Relu", "p", "q"), n("MatMul", "q a", "r"), n("Transpose", "a", "t"),
                               n("MatMul", "r t")], [w("a", 8, 8)], "a", 20),
    "Gather": (["N", 4], 7, [n("Gather", "a x", "p"), n("MatMul", "p b", "q"), n("ReduceMean", "q", axes=[1])],
               [w("a", 50, 16), w("b", 16, 6)], "ab", 28),
    "two activations": (["N", 6, 8], F, [n("MatMul", "x a", "p"), n("MatMul", "x b", "q"), n("Transpose", "q", "r", perm=[0, 2, 1]),
                                         n("MatMul", "p r", "s"), n("Softmax", "s", "t"), n("MatMul", "t x")],
                        [w("a", 8, 8), w("b", 8, 8)], "ab", 24),
    "Attention": (["N", 6, 8], F, [n("MatMul", "x a", "p"), n("MatMul", "x b", "q"), n("MatMul", "x d", "r"),
                                   n("Attention", "p q r", "s", q_num_heads=2, kv_num_heads=2), n("MatMul", "s e")],
                  [w("a", 8, 8), w("b", 8, 8), w("d", 8, 8), w("e", 8, 8)], "abde", 24),
    "LSTM": (STEPS, F, [n("LSTM", "x a b", "p", hidden_size=7), n("Squeeze", "p ax", "q"), n("MatMul", "q d")],
             [w("a", 1, 28, 6), w("b", 1, 28, 7), ints("ax", 1), w("d", 7, 3)], "abd", 24),
    "GRU": (STEPS, F, [n("GRU", "x a b", "p", hidden_size=7, linear_before_reset=1, direction="bidirectional"),
                       n("Transpose", "p", "q", perm=[0, 2, 1, 3]), n("Reshape", "q s", "r"), n("MatMul", "r d")],
            [w("a", 2, 21, 6), w("b", 2, 21, 7), ints("s", 0, 0, 14), w("d", 14, 3)], "abd", 24),
    "If": (IMAGE, F, IF[0], IF[1], None, 28),
    "Loop": (ROWS, F, LOOP[0], LOOP[1], None, 20),
    "float16": (IMAGE, H, [n("Conv", "x a b", "p"), n("Relu", "p", "q"), n("Conv", "q d")],
                [w("a", 6, 3, 3, 3, kind=np.float16), w("b", 6, kind=np.float16), w("d", 4, 6, 3, 3, kind=np.float16)], "ad", 26),
    "Gemm turned": (ROWS, F, [n("Gemm", "x a b", "p", transB=1, alpha=0.5), n("Sigmoid", "p", "q"), n("Gemm", "q d")],
                    [w("a", 9, 8), w("b", 9), w("d", 9, 4)], "ad", 26),
}


def integers(path, weights):
    """How many of the constants are read through DequantizeLinear of integers (in bodies too)."""
    found = 0

    def look(graph):
        nonlocal found
        kinds = {t.name: t.data_type for t in graph.initializer}
        for node in graph.node:
            found += node.op_type == "DequantizeLinear" and kinds.get(node.input[0]) in (2, 3)
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    look(a.g)
    look(onnx.load(path).graph)
    return found >= (len(weights) if weights else 1)


def form(name, profile):
    dims, kind, nodes, constants, weights, least = MODELS[name]
    what = "%s/%s" % (name, profile)
    path, out = os.path.join(c.TMP, "form.onnx"), os.path.join(c.TMP, "form-q.onnx")
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", kind, dims)],
                         [h.make_tensor_value_info("y", F if kind == 7 else kind, None)], constants)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 23 if name == "Attention" else 17)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    shape = [16 if d == "N" else d for d in dims]
    x = rng.randint(0, 50, shape) if kind == 7 else rng.randn(*shape).astype(np.float16 if kind == H else np.float32)
    data = os.path.join(c.TMP, "form.npy")
    np.save(data, x)
    code, _, err = c.tool("quantize", path, "--data", "npy:" + data, "--target", profile, "-o", out, "--force")
    if not c.check(code == 0, "%s: quantize %s" % (what, err[-300:] if code else "")):
        return
    if profile == "sparsebit" and name in ("LSTM", "GRU"):  # which Sparsebit does not know
        weights = "d"
    c.check(integers(out, weights), what + ": weights are integers")
    code, _, err = c.tool("run", out, "--input", "x=" + data, "-o", c.TMP, "--simulate")
    if c.check(code == 0, "%s: run %s" % (what, err[-300:] if code else "")):
        run = lambda p: c.ort_session(p, False).run(None, {"x": x})[0].astype(np.float64)
        ours, theirs, plain = np.load(os.path.join(c.TMP, "y.npy")).astype(np.float64), run(out), run(path)
        apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
        c.check(apart < (5e-3 if kind == H else 1e-3), "%s: %.2g apart" % (what, apart))
        noise = 10 * np.log10((plain ** 2).sum() / ((plain - theirs) ** 2).sum())
        c.check(noise > least, "%s: SQNR %.1f dB" % (what, noise))


for name in MODELS:
    for profile in ("generic", "sparsebit", "tensorrt"):
        form(name, profile)
c.finish("check_forms")
