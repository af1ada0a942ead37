"""check_field_reports.py: what users of other quantizers ran into, on small models built here.

Each check names its block (A4.1 ...) of the notes that the tests follow. A model is built with
onnx.helper, quantized by the tool, checked by onnx.checker with full_check, and run four ways: by
`sparsebit run`, by ONNX Runtime without and with its graph optimizations, and in float.
"""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import _common as c

RNG = np.random.default_rng(7)
F = TensorProto.FLOAT
PROFILES = ("sparsebit", "generic", "onnxruntime", "openvino", "tensorrt", "mcu")


def rand(*shape, scale=1.0, dtype=np.float32):
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def init(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def info(name, shape, dtype=F):
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op, inputs, output, **attrs):
    outputs = output.split() if isinstance(output, str) else output
    return helper.make_node(op, inputs.split(" ") if isinstance(inputs, str) else inputs, outputs,
                            name=attrs.pop("name", outputs[0] + "_node"), **attrs)


def save(name, nodes, inputs, outputs, inits=(), opset=13, ir=8, check=True, **more):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(inits),
                              value_info=more.pop("value_info", None))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1)
                                                  for d in more.pop("domains", [])]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir, **more)
    if check:
        onnx.checker.check_model(model)
    path = os.path.join(c.TMP, name + ".onnx")
    onnx.save(model, path)
    return path


def write_pb(folder, sets):
    """sets: a list of {input name: array}, in the order of the model's inputs."""
    for i, feed in enumerate(sets):
        where = os.path.join(folder, "test_data_set_%d" % i)
        os.makedirs(where, exist_ok=True)
        for k, (name, array) in enumerate(feed.items()):
            with open(os.path.join(where, "input_%d.pb" % k), "wb") as file:
                file.write(numpy_helper.from_array(np.asarray(array), name).SerializeToString())


def quantize(path, sets, *flags, out=None):
    """The quantized file and the report."""
    out = out or path[:-5] + "-q%d.onnx" % len(os.listdir(c.TMP))
    folder = path[:-5] + "-data%d" % len(os.listdir(c.TMP))
    write_pb(folder, sets)
    report = c.tool_json("quantize", path, "--data", "pb:" + folder, "-o", out, *flags)
    return out, report


def run_ours(path, feed):
    folder = os.path.join(c.TMP, "out%d" % len(os.listdir(c.TMP)))
    flags = []
    for name, array in feed.items():
        file = os.path.join(c.TMP, "feed-%s.npy" % name)
        np.save(file, array)
        flags += ["--input", "%s=%s" % (name, file)]
    code, _, err = c.tool("run", path, *flags, "-o", folder, "--threads", 1)
    if code != 0:
        raise RuntimeError("run %s: %s" % (path, err.strip()[-300:]))
    names = [o.name for o in onnx.load(path).graph.output]
    return [np.load(os.path.join(folder, n + ".npy")) for n in names]


ORT_WAYS = (("session.x64quantprecision", True), (None, False), ("session.qdqisint8allowed", False))
ORT_FAILS = ("Attempt to replace the existing tensor", "output_dtype INT8 does not match")


def run_ort(path, feed, optimize):
    """Outputs, and whether they are to be trusted. Without VNNI, ONNX Runtime's int8 products
    saturate unless the first option is set (A3.4), which fails on weights with two users; its
    change from int8 to uint8 fails where opset 21 has output_dtype, unless int8 is allowed."""
    for option, exact in ORT_WAYS:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        if option is not None:
            options.add_session_config_entry(option, "1")
        if not optimize:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(path, options,
                                                   providers=["CPUExecutionProvider"])
        except Exception as problem:
            if option == ORT_WAYS[-1][0] or not any(k in str(problem) for k in ORT_FAILS):
                raise
            continue
        return session.run(None, feed), exact or not optimize


def gap(a, b):
    """max|a-b| / max|b|, the worst of the outputs."""
    worst = 0.0
    for x, y in zip(a, b):
        if x.shape != y.shape or not np.isfinite(np.float64(x)).all():
            return float("inf")
        diff = np.abs(np.float64(x) - np.float64(y)).max(initial=0)
        worst = max(worst, diff / max(np.abs(np.float64(y)).max(initial=0), 1e-6))
    return worst


def loads(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


def agree(text, path, out, feed, loss=0.1, step=0.03):
    """Checker, our run against ONNX Runtime's on the quantized file, and against float."""
    try:
        loads(out)
        real, _ = run_ort(path, feed, False)
        ours = run_ours(out, feed)
        plain = gap(ours, run_ort(out, feed, False)[0])
        optimized, exact = run_ort(out, feed, True)
        fast = gap(ours, optimized) if exact else 0.0
        lost = gap(ours, real)
    except Exception as problem:
        return c.check(False, "%s: %s" % (text, str(problem)[:300]))
    return c.check(plain <= step and fast <= 2 * step and lost <= loss,
                   "%s: to ORT %.4f, optimized %.4f (limit %g), to float %.4f (limit %g)"
                   % (text, plain, fast, step, lost, loss))


def both(text, path, sets, *flags, loss=0.1, step=0.03):
    """Quantizes and compares; the quantized model, or None."""
    try:
        out, _ = quantize(path, sets, *flags)
    except Exception as problem:
        c.check(False, "%s: %s" % (text, str(problem)[:400]))
        return None
    agree(text, path, out, sets[0], loss, step)
    return onnx.load(out)


def ops(model, op):
    return [n for n in model.graph.node if n.op_type == op]


def inits(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def weight_dq(model, size):
    """The DequantizeLinear nodes of stored weights with `size` elements."""
    data = inits(model)
    return [n for n in ops(model, "DequantizeLinear")
            if n.input[0] in data and data[n.input[0]].size == size]


def axis_of(n):
    return next((a.i for a in n.attribute if a.name == "axis"), 1)


# ---- A1: forms of the file

def conv_net(prefix="", opset=13, ir=8, weights=None, as_inputs=False, name="convnet", w=None,
             dims=("N", 3, 8, 8), names=True):
    rng = np.random.default_rng(3)
    w1 = (rng.standard_normal((4, 3, 3, 3)) * 0.2).astype(np.float32) if w is None else w
    w2 = (rng.standard_normal((5, 4)) * 0.5).astype(np.float32)
    b2 = rng.standard_normal(5).astype(np.float32)
    b1 = rng.standard_normal(4).astype(np.float32)
    nodes = [node("Conv", "x w1 b1", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"),
             node("GlobalAveragePool", "r", "p"), node("Flatten", "p", "f"),
             node("Gemm", "f w2 b2", "y", transB=1)]
    if not names:
        for n in nodes:
            n.name = ""
    inputs = [info("x", dims)]
    tensors = [init("w1", w1), init("b1", b1), init("w2", w2), init("b2", b2)]
    if as_inputs:
        inputs += [info(t.name, list(t.dims)) for t in tensors]
    more = []
    if weights is not None:
        tensors, more = weights(tensors)
    return save(name, more + nodes, inputs, [info("y", ["N", 5])], tensors, opset, ir)


def a1_5():
    sets = [{"x": rand(2, 3, 8, 8)}]
    files = []
    for ir, as_inputs in ((4, False), (3, True)):
        path = conv_net(ir=ir, as_inputs=as_inputs, opset=8, name="ir%d" % ir)
        q = both("A1.5 IR %d" % ir, path, sets)
        if q is None:
            return
        names = {i.name for i in q.graph.input}
        needed = names - {t.name for t in q.graph.initializer}
        c.check(needed == {"x"}, "A1.5 IR %d asks for x only: %s" % (ir, sorted(needed)))
        c.check(not ({"w1", "w2"} & names), "A1.5 IR %d: old weights left the inputs" % ir)
        files.append(q)
    same = [(n.op_type, list(n.input), list(n.output)) for n in files[0].graph.node] == \
        [(n.op_type, list(n.input), list(n.output)) for n in files[1].graph.node]
    c.check(same, "A1.5 both forms give the same network")


def a1_6():
    def typed(packed):
        def change(tensors):
            t = tensors[0]
            values = numpy_helper.to_array(t).ravel().tolist()
            t.ClearField("raw_data")
            t.float_data.extend(values)
            return tensors, []
        return change

    def constant(key):
        def change(tensors):
            value = numpy_helper.to_array(tensors[0])
            if key == "value":
                return tensors[1:], [node("Constant", [], "w1", value=tensors[0])]
            shape = init("w1s", np.array(value.shape, np.int64))
            flat = helper.make_node("Constant", [], ["w1f"], name="k",
                                    value_floats=value.ravel().tolist())
            return tensors[1:] + [shape], [flat, node("Reshape", "w1f w1s", "w1")]
        return change

    sets = [{"x": rand(2, 3, 8, 8)}]
    paths = {"raw": conv_net(name="w-raw"),
             "float_data packed": conv_net(name="w-typed", weights=typed(True)),
             "Constant value": conv_net(name="w-const", weights=constant("value")),
             "Constant value_floats": conv_net(name="w-floats", weights=constant("value_floats"))}
    # unpacked: rewrite the packed field (tag 0x22, length) as one tag (0x25) and value an element
    data = open(paths["float_data packed"], "rb").read()
    model = onnx.load(paths["float_data packed"])
    model.graph.initializer[0].ClearField("float_data")
    unpacked = b"".join(b"\x25" + np.float32(v).tobytes() for v in
                        onnx.load_from_string(data).graph.initializer[0].float_data)
    first = TensorProto()
    first.CopyFrom(model.graph.initializer[0])
    model.graph.initializer.remove(model.graph.initializer[0])
    extra = first.SerializeToString() + unpacked
    graph = model.graph.SerializeToString() + b"\x2a" + varint(len(extra)) + extra
    model.ClearField("graph")
    paths["float_data unpacked"] = os.path.join(c.TMP, "w-unpacked.onnx")
    with open(paths["float_data unpacked"], "wb") as file:
        file.write(model.SerializeToString() + b"\x3a" + varint(len(graph)) + graph)
    paths["external"] = os.path.join(c.TMP, "w-external.onnx")
    onnx.save(onnx.load(paths["raw"]), paths["external"], save_as_external_data=True,
              location="w-external.bin", size_threshold=0)
    outputs, stored = {}, {}
    for key, path in paths.items():
        try:
            outputs[key] = run_ours(path, sets[0])[0]
            q = both("A1.6 " + key, path, sets)
            stored[key] = sorted(a.tobytes() for a in inits(q).values())
        except Exception as problem:
            c.check(False, "A1.6 %s: %s" % (key, str(problem)[:200]))
    for key in outputs:
        c.check(outputs[key].tobytes() == outputs["raw"].tobytes(), "A1.6 %s runs alike" % key)
        c.check(stored.get(key) == stored.get("raw"), "A1.6 %s quantizes alike" % key)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def a1_9():
    w1, w2 = rand(10, 10, 2, 2, scale=0.2), rand(10, 10, 2, 2, scale=0.2)
    nodes = [node("Conv", "X W1 b", "b0", name="one"), node("Conv", "b0 W2 b", "X_quantized",
                                                            name="two"),
             node("Relu", "X_quantized", "X_scale"), node("Relu", "X_scale", "X_zero_point"),
             node("Relu", "X_zero_point", "b_quantized"), node("Relu", "b_quantized", "Y")]
    path = save("collide", nodes, [info("X", [1, 10, 8, 8])], [info("Y", [1, 10, 6, 6])],
                [init("W1", w1), init("W2", w2), init("b", rand(10))])
    sets = [{"X": rand(1, 10, 8, 8)}]
    for profile in PROFILES:
        q = both("A1.9 " + profile, path, sets, "--target", profile)
        if q is not None:
            made = [o for n in q.graph.node for o in n.output] + [t.name for t in q.graph.initializer]
            c.check(len(made) == len(set(made)), "A1.9 %s: every name is made once" % profile)
    once, _ = quantize(path, sets)
    twice = once[:-5] + "-again.onnx"
    write_pb(once[:-5] + "-d", sets)
    code, _, err = c.tool("quantize", once, "--data", "pb:" + once[:-5] + "-d", "-o", twice)
    if code == 0:
        agree("A1.9 quantized twice", path, twice, sets[0], loss=0.15)
    else:
        c.check(code == 1 and "quantized" in err, "A1.9 quantized twice is refused: " + err[:200])


def a1_10():
    rng = np.random.default_rng(5)
    nodes, tensors, last = [], [], "x"
    for i in range(5):
        tensors.append(init("w%d" % i, (rng.standard_normal((3, 3, 3, 3)) * 0.2).astype("f")))
        nodes.append(helper.make_node("Conv", [last, "w%d" % i], ["t%d" % i], pads=[1, 1, 1, 1]))
        last = "t%d" % i
    path = save("noname", nodes, [info("x", ["N", 3, 6, 6])], [info(last, ["N", 3, 6, 6])], tensors)
    sets = [{"x": rand(2, 3, 6, 6)}]
    q = both("A1.10 nodes without names", path, sets)
    if q is not None:
        names = [n.name for n in q.graph.node if n.name]
        made = [o for n in q.graph.node for o in n.output]
        c.check(len(names) == len(set(names)) and len(made) == len(set(made)),
                "A1.10 new names are unique")
    q = both("A1.10 / A9.8 left out by output name", path, sets, "--set", 'SKIP_TRACE_MODULES=["t2"]')
    if q is not None:
        data = inits(q)
        floats = [n for n in ops(q, "Conv") if n.input[1] in data]
        c.check([n.output[0] for n in floats] == ["t2"] or
                (len(floats) == 1 and floats[0].input[1] == "w2"), "A1.10 t2 alone stays float")


def a1_14():
    nodes = [node("Conv", "x w1", "a"), node("Foo", "a", "b", domain="com.acme"),
             node("Conv", "b w2", "y")]
    path = save("foreign", nodes, [info("x", [1, 3, 8, 8])], [info("y", [1, 2, 4, 4])],
                [init("w1", rand(4, 3, 3, 3)), init("w2", rand(2, 4, 3, 3))], check=False,
                domains=["com.acme"])
    write_pb(path[:-5] + "-d", [{"x": rand(1, 3, 8, 8)}])
    out = path[:-5] + "-q.onnx"
    code, _, err = c.tool("quantize", path, "--data", "pb:" + path[:-5] + "-d", "-o", out)
    c.check(code == 1 and "com.acme" in err and "Foo" in err and not os.path.exists(out),
            "A1.14 the unknown operator is named: " + err.strip()[:150])


# ---- A2: shapes

def a2_1():
    nodes = [node("Conv", "x w1", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
             node("Conv", "r w2", "y", strides=[2, 2], pads=[1, 1, 1, 1])]
    path = save("dynamic", nodes, [info("x", ["N", 3, "H", "W"])], [info("y", ["N", 2, "h", "w"])],
                [init("w1", rand(4, 3, 3, 3, scale=0.2)), init("w2", rand(2, 4, 3, 3, scale=0.2))])
    sets = [{"x": rand(1, 3, 32, 32)}, {"x": rand(2, 3, 48, 40)}]
    try:
        out, _ = quantize(path, sets)
    except Exception as problem:
        c.check(False, "A2.1: " + str(problem)[:300])
        return
    q = onnx.load(out)
    dims = [d.dim_param for d in q.graph.input[0].type.tensor_type.shape.dim]
    c.check(dims == ["N", "", "H", "W"], "A2.1 the symbols stay: %s" % dims)
    agree("A2.1 runs at a third size", path, out, {"x": rand(3, 3, 64, 24)}, loss=0.15)


def a2_2():
    w = np.ones((3, 3, 2, 2), np.float32)
    path = save("paddleslim", [node("Conv", "x w", "y", auto_pad="SAME_UPPER")],
                [info("x", [1, 3, "H", "H"])], [info("y", [1, 3, "h", "h"])], [init("w", w)])
    images = [{"x": rand(1, 3, 5 + i % 2, 5 + i % 2)} for i in range(6)]
    mat = save("tokens", [node("MatMul", "x w", "m"), node("Relu", "m", "y")],
               [info("x", ["N", "L", 16])], [info("y", ["N", "L", 16])],
               [init("w", rand(16, 16))])
    tokens = [{"x": rand(n, length, 16)} for n, length in ((1, 3), (4, 7), (2, 128))]
    joined = [{"x": np.concatenate([s["x"].reshape(1, -1, 16) for s in tokens], 1)}]
    for observer in ("minmax", "moving_average", "percentile", "mse", "kl_histogram", "aciq"):
        flag = ("--set", "A.OBSERVER.TYPE=" + observer)
        try:
            out, _ = quantize(path, images, *flag)
        except RuntimeError as problem:
            known = "must be one of" not in str(problem) and "is not one of" not in str(problem)
            if known:  # an observer that this version lacks has nothing to show
                c.check(False, "A2.2 %s: %s" % (observer, str(problem)[:300]))
            continue
        agree("A2.2 sizes alternate, " + observer, path, out, images[0], loss=0.2)
        try:
            one, two = quantize(mat, tokens, *flag)[0], quantize(mat, joined, *flag)[0]
        except RuntimeError as problem:
            c.check(False, "A2.2 tokens %s: %s" % (observer, str(problem)[:300]))
            continue
        if observer not in ("moving_average", "aciq"):  # these depend on the samples by definition
            a, b = inits(onnx.load(one)), inits(onnx.load(two))
            same = sorted(a) == sorted(b) and all(np.allclose(a[k], b[k], rtol=1e-5) for k in a)
            c.check(same, "A2.2 batches or one joined: same scales, " + observer)


def a2_3_and_12():
    def net(name, value_info):
        nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
                 node("Softmax", "r", "y", axis=1)]
        return save(name, nodes, [info("x", [1, 3, 6, 6])], [info("y", [1, 16, 6, 6])],
                    [init("w", w)], value_info=value_info, check=False)
    w = rand(16, 3, 3, 3, scale=0.3)
    sets = [{"x": rand(1, 3, 6, 6)}]
    plain = net("vi-none", [])
    full = net("vi-full", [info("a", [1, 16, 6, 6]), info("r", [1, 16, 6, 6])])
    stale = net("vi-stale", [info("a", [1, 16, 5, 5]), info("r", [-1, 16, 5, "q"])])
    outs = []
    for path, text in ((plain, "A2.3 without value_info"), (full, "A2.3 with value_info"),
                       (stale, "A2.12 stale value_info")):
        try:
            out, _ = quantize(path, sets)
            agree(text, plain, out, sets[0])
            outs.append(run_ours(out, sets[0])[0].tobytes())
        except Exception as problem:
            c.check(False, "%s: %s" % (text, str(problem)[:200]))
    c.check(len(outs) == 3 and len(set(outs)) == 1, "A2.3 A2.12 value_info changes nothing")


def a2_4():
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
             node("Flatten", "r", "f"), node("Gemm", "f g", "y")]
    path = save("outputs", nodes, [info("x", ["N", 3, 4, 4])],
                [info("y", ["N", 6]), info("r", ["N", 4, 4, 4])],
                [init("w", rand(4, 3, 3, 3, scale=0.3)), init("g", rand(64, 6, scale=0.2))])
    sets = [{"x": rand(2, 3, 4, 4)}]
    for profile in PROFILES:
        both("A2.4 an inner tensor is an output too, " + profile, path, sets, "--target", profile)
    for observer in ("moving_average", "percentile", "mse", "kl_histogram", "aciq"):
        both("A2.4 outputs are observed too, " + observer, path, sets, "--set", "A.OBSERVER.TYPE=" + observer, loss=0.3)


def a2_6():
    nodes = [node("Gather", "emb ids", "e"), node("Shape", "e", "s"),
             node("Gather", "s i0", "n", axis=0), node("Concat", "n m", "t", axis=0),
             node("Reshape", "e t", "f"), node("MatMul", "f w", "y")]
    path = save("gather", nodes, [info("ids", ["N", 3], TensorProto.INT64)], [info("y", ["N", 5])],
                [init("emb", rand(10, 8)), init("i0", np.array([0])), init("m", np.array([-1])),
                 init("w", rand(24, 5, scale=0.3))])
    sets = [{"ids": np.array([[1, 2, 9], [0, 4, 3]])}]
    q = both("A2.6 A4.15 embedding and shape arithmetic", path, sets)
    if q is not None:
        ints = {t.name for t in q.graph.initializer if t.data_type == TensorProto.INT64}
        bad = [n.name for n in ops(q, "DequantizeLinear") + ops(q, "QuantizeLinear")
               if set(n.input) & ints]
        c.check(not bad, "A2.6 integers are not quantized: %s" % bad)


def a2_7():
    for scale, size in ((2.0, 14), (1.5, 10)):
        nodes = [node("Conv", "x w", "a"),
                 helper.make_node("Resize", ["a", "", "s"], ["b"], name="up", mode="nearest"),
                 node("Pad", "b p v", "d"), node("Slice", "d s0 s1", "e"),
                 node("Clip", "e lo hi", "y")]
        path = save("resize%d" % size, nodes, [info("x", [1, 4, 7, 7])],
                    [info("y", [1, 3, size, size])],
                    [init("w", rand(4, 4, 1, 1)), init("s", np.array([1, 1, scale, scale], "f")),
                     init("p", np.array([0, 0, 0, 0, 0, 0, 1, 1])), init("v", np.float32(0)),
                     init("s0", np.array([0, 1, 0, 0])),
                     init("s1", np.array([1, 4, size, size])),
                     init("lo", np.float32(-1.25)), init("hi", np.float32(1.5))])
        for profile in ("generic", "sparsebit"):
            q = both("A2.7 Resize %g, %s" % (scale, profile), path, [{"x": rand(1, 4, 7, 7)}],
                     "--target", profile)
            if q is not None:
                direct = set(inits(q))
                bad = [n.op_type for n in q.graph.node
                       if n.op_type in ("Resize", "Pad", "Slice", "Clip")
                       and any(i and i not in direct for i in n.input[1:])]
                c.check(not bad, "A2.7 parameters are left alone: %s" % bad)


def a2_9_and_10():
    for opset in (7, 8, 9, 10, 11, 12):
        tensors = [init("w1", rand(8, 3, 3, 3, scale=0.2)), init("w2", rand(8, 1, 3, 3, scale=0.3)),
                   init("w3", rand(4, 8, 1, 1, scale=0.3)), init("g", rand(8) + 1),
                   init("b", rand(8)), init("m", rand(8)), init("v", np.abs(rand(8)) + 0.5)]
        nodes = [node("Conv", "x w1", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
                 node("BatchNormalization", "a g b m v", "bn")]
        if opset < 11:
            nodes.append(node("Clip", "bn", "r6", min=0.0, max=6.0))
        else:
            tensors += [init("lo", np.float32(0)), init("hi", np.float32(6))]
            nodes.append(node("Clip", "bn lo hi", "r6"))
        nodes.append(node("Conv", "r6 w2", "dw", group=8, pads=[1, 1, 1, 1]))
        nodes.append(node("Conv", "dw w3", "pw"))
        if opset < 9:
            nodes.append(node("Upsample", "pw", "up", mode="nearest", scales=[1.0, 1.0, 2.0, 2.0]))
        elif opset == 9:
            tensors.append(init("s", np.array([1, 1, 2, 2], "f")))
            nodes.append(node("Upsample", "pw s", "up", mode="nearest"))
        elif opset == 10:
            tensors.append(init("s", np.array([1, 1, 2, 2], "f")))
            nodes.append(node("Resize", "pw s", "up", mode="nearest"))
        else:
            tensors.append(init("s", np.array([1, 1, 2, 2], "f")))
            tensors.append(init("roi", np.zeros(0, "f")))
            nodes.append(node("Resize", "pw roi s", "up", mode="nearest"))
        if opset < 10:
            nodes.append(node("Slice", "up", "sl", axes=[2, 3], starts=[1, 1], ends=[9, 9]))
        else:
            tensors += [init("st", np.array([1, 1])), init("en", np.array([9, 9])),
                        init("ax", np.array([2, 3]))]
            nodes.append(node("Slice", "up st en ax", "sl"))
        if opset < 11:
            nodes.append(node("Pad", "sl", "pd", pads=[0, 0, 1, 1, 0, 0, 1, 1]))
        else:
            tensors.append(init("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1])))
            nodes.append(node("Pad", "sl pads", "pd"))
        nodes += [node("ReduceSum", "pd", "rs", axes=[2], keepdims=0),
                  node("Unsqueeze", "rs", "us", axes=[2]), node("Squeeze", "us", "sq", axes=[2]),
                  node("Unsqueeze", "sq", "u2", axes=[3]),
                  node("Softmax", "u2", "y", axis=1), node("Dropout", "pd", "z")]
        path = save("opset%d" % opset, nodes, [info("x", ["N", 3, 8, 8])],
                    [info("y", ["N", 4, None, 1]), info("z", ["N", 4, None, None])], tensors,
                    opset=opset, ir=4 if opset < 12 else 7)
        sets = [{"x": rand(2, 3, 8, 8)}]
        q = both("A2.9 A2.10 opset %d" % opset, path, sets, loss=0.12)
        if q is not None:
            at = next(o.version for o in q.opset_import if o.domain == "")
            c.check(at == 13, "A2.10 opset %d is lifted to 13, not further: %d" % (opset, at))
        try:
            q = quantize(path, sets, "--set", "W.QSCHEME=per-tensor-symmetric")[0]
            at = next(o.version for o in onnx.load(q).opset_import if o.domain == "")
            agree("A2.10 opset %d per tensor (now %d)" % (opset, at), path, q, sets[0], loss=0.2)
        except Exception as problem:
            c.check(False, "A2.10 per tensor: " + str(problem)[:300])


def a2_11():
    nodes = [node("MaxPool", "x", "d1", kernel_shape=[2, 2], strides=[2, 2]),
             node("MaxPool", "d1", "d2", kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Resize", ["d2", "", "s"], ["u1"], name="u1n", mode="nearest"),
             node("Concat", "u1 d1", "cat", axis=1, name="Concat_8"),
             node("Conv", "cat w", "y")]
    path = save("unet", nodes, [info("x", [1, 2, "H", "W"])], [info("y", [1, 2, "h", "w"])],
                [init("s", np.array([1, 1, 2, 2], "f")), init("w", rand(2, 4, 1, 1))])
    both("A2.11 U-Net at 16", path, [{"x": rand(1, 2, 16, 16)}])
    np.save(os.path.join(c.TMP, "x18.npy"), rand(1, 2, 18, 18))
    code, _, err = c.tool("run", path, "--input", "x=" + os.path.join(c.TMP, "x18.npy"))
    c.check(code == 1 and "Concat_8" in err and "8" in err and "9" in err,
            "A2.11 at 18 the node and both shapes are named: " + err.strip()[:200])


# ---- A3: numbers

def a3_16():
    """Depthwise layers of one channel, groups of one channel each, and one tensor that two layers read."""
    for channels in (1, 4):
        nodes = [node("Conv", "x w1", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
                 node("Conv", "r w2", "d", group=channels, pads=[1, 1, 1, 1]), node("Relu", "d", "e"),
                 node("Conv", "e w3", "p"), node("Conv", "e w4", "q", group=channels), node("Add", "p q", "y")]
        path = save("depthwise%d" % channels, nodes, [info("x", ["N", 2, 7, 7])], [info("y", ["N", channels, 7, 7])],
                    [init("w1", rand(channels, 2, 3, 3, scale=0.3)), init("w2", rand(channels, 1, 3, 3, scale=0.3)),
                     init("w3", rand(channels, channels, 1, 1)), init("w4", rand(channels, 1, 1, 1))])
        for profile in PROFILES:
            both("A3.16 depthwise of %d, %s" % (channels, profile), path, [{"x": rand(2, 2, 7, 7)}], "--target", profile)


def a3_17():
    """A layer normalization in pieces, on rows that differ a thousandfold: what is inside stays float."""
    nodes = [node("ReduceMean", "x", "mean", axes=[-1]), node("Sub", "x mean", "d"), node("Pow", "d two", "sq"),
             node("ReduceMean", "sq", "var", axes=[-1]), node("Add", "var eps", "v"), node("Sqrt", "v", "std"),
             node("Div", "d std", "n"), node("Mul", "n gamma", "g"), node("Add", "g beta", "l"),
             node("MatMul", "l w", "y")]
    path = save("pieces", nodes, [info("x", ["N", 64])], [info("y", ["N", 64])],
                [init("two", np.float32(2)), init("eps", np.float32(1e-5)), init("gamma", rand(64) + 1),
                 init("beta", rand(64)), init("w", rand(64, 64, scale=0.2))])
    x = rand(8, 64) * np.array([0.01, 10] * 4, "f").reshape(8, 1)
    for profile in ("generic", "onnxruntime", "openvino"):
        try:
            out, _ = quantize(path, [{"x": x}], "--target", profile)
            lost = gap(run_ours(out, {"x": x}), run_ort(path, {"x": x}, False)[0])
        except Exception as problem:
            c.check(False, "A3.17 %s: %s" % (profile, str(problem)[:300]))
            continue
        c.check(lost < 0.02, "A3.17 a LayerNormalization in pieces, %s: %.4f lost (limit 0.02)" % (profile, lost))


# ---- A4: placement and parameters

def a4_1():
    for group, w in ((1, rand(3, 64, 3, 3, scale=0.2)), (3, rand(6, 4, 3, 3, scale=0.3))):
        cin, cout = w.shape[0], w.shape[1] * group
        w = w * (2.0 ** -(np.arange(w.shape[1]) % 8)).reshape(1, -1, 1, 1).astype("f")
        path = save("deconv%d" % group, [node("ConvTranspose", "x w b", "a", group=group,
                                              pads=[1, 1, 1, 1]), node("Relu", "a", "y")],
                    [info("x", [1, cin, 16, 16])], [info("y", [1, cout, 16, 16])],
                    [init("w", w), init("b", rand(cout))])
        for profile in PROFILES:
            q = both("A4.1 ConvTranspose group %d, %s" % (group, profile), path,
                     [{"x": rand(1, cin, 16, 16)}], "--target", profile)
            dq = weight_dq(q, w.size) if q is not None else []
            c.check(len(dq) == 1 and axis_of(dq[0]) == 1 and
                    inits(q)[dq[0].input[1]].size == w.shape[1],
                    "A4.1 group %d, %s: axis 1, %d scales" % (group, profile, w.shape[1]))


def a4_2():
    base = RNG.uniform(-1, 1, (8, 16)).astype(np.float32)
    base[0] = 1.0
    columns = base * (2.0 ** np.arange(16)).astype(np.float32)
    layouts = {
        "MatMul": (node("MatMul", "x w", "y"), columns, -1),
        "Gemm": (node("Gemm", "x w", "y"), columns, -1),
        "Gemm transB": (node("Gemm", "x w", "y", transB=1), columns.T.copy(), 0),
        "Gemm alpha beta": (node("Gemm", "x w b", "y", alpha=0.5, beta=2.0), columns, -1),
        "batched MatMul": (node("MatMul", "x w", "m"), columns[None], -1),
    }
    for text, (n, w, axis) in layouts.items():
        shape = ["N", 8] if w.ndim == 2 else ["N", 4, 8]
        x = rand(6, 8) if w.ndim == 2 else rand(1, 4, 8)
        nodes = [n]
        if n.output[0] == "m":  # what comes out is quantized again
            nodes += [node("Relu", "m", "r"), node("MatMul", "r v", "y")]
        path = save("mm%d" % len(os.listdir(c.TMP)), nodes, [info("x", shape)],
                    [info("y", shape[:-1] + [16])],
                    [init("w", w), init("b", rand(16) * 2.0 ** np.arange(16, dtype="f"))]
                    [:len(n.input) - 1] + [init("v", np.eye(16, dtype="f"))][:len(nodes) - 1])
        for profile in PROFILES:
            q = both("A4.2 %s, %s" % (text, profile), path, [{"x": x}], "--target", profile)
            dq = weight_dq(q, w.size) if q is not None else []
            if not c.check(len(dq) == 1, "A4.2 %s, %s: one stored weight" % (text, profile)):
                continue
            data = inits(q)
            scale, stored = data[dq[0].input[1]], data[dq[0].input[0]].astype(np.float64)
            if profile == "sparsebit" and axis != 0:
                continue  # Sparsebit's scales stand on axis 0, whatever the layer
            back = stored * scale.reshape([-1 if d == (axis_of(dq[0]) % w.ndim) else 1
                                           for d in range(w.ndim)])
            reduce = tuple(d for d in range(w.ndim) if d != axis % w.ndim)
            error = ((back - w) ** 2).sum(reduce)
            snr = 10 * np.log10((np.float64(w) ** 2).sum(reduce) / np.maximum(error, 1e-300))
            c.check(scale.size == 16 and axis_of(dq[0]) % w.ndim == axis % w.ndim and snr.min() > 40,
                    "A4.2 %s, %s: axis %d, each column at %.0f dB" % (text, profile,
                                                                      axis_of(dq[0]), snr.min()))
    for batch in (1, 3):  # a float result: ONNX Runtime's fused product refuses scales per column
        path = save("stack%d" % batch, [node("MatMul", "x w", "y")], [info("x", [batch, 4, 8])],
                    [info("y", [batch, 4, 16])], [init("w", rand(batch, 8, 16))])
        for profile in PROFILES:
            both("A4.2 stack of %d, %s" % (batch, profile), path, [{"x": rand(batch, 4, 8)}],
                 "--target", profile)


def a4_5():
    for value in (0.0, 5.0, -5.0):
        w = rand(4, 3, 1, 1)
        w[1] = 0
        path = save("constant%g" % value, [node("Mul", "x z", "k"), node("Add", "k five", "a"),
                                           node("Conv", "a w b", "y")],
                    [info("x", [1, 3, 4, 4])], [info("y", [1, 4, 4, 4])],
                    [init("z", np.zeros((1,), "f")), init("five", np.array([value], "f")),
                     init("w", w), init("b", np.array([0, 3, 1, -1], "f"))])
        for profile in PROFILES:
            both("A4.5 activation constant %g, %s" % (value, profile), path,
                 [{"x": rand(1, 3, 4, 4)}], "--target", profile, loss=0.02)
    for scale in (0.0, 1e-38, 1e-6):
        path = save("tiny%g" % scale, [node("Conv", "x w b", "y")], [info("x", [1, 3, 4, 4])],
                    [info("y", [1, 4, 4, 4])],
                    [init("w", rand(4, 3, 1, 1, scale=scale)), init("b", rand(4))])
        both("A4.5 weights of %g" % scale, path, [{"x": rand(1, 3, 4, 4)}], loss=0.02)


def a4_6():
    w = rand(4, 3, 3, 3, scale=0.4)
    for text, n in (("Relu", node("Relu", "a", "r")), ("Clip", node("Clip", "a lo hi", "r"))):
        path = save("act" + text, [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), n,
                                   node("Conv", "r v", "y")],
                    [info("x", [1, 3, 6, 6])], [info("y", [1, 2, 6, 6]), info("r", [1, 4, 6, 6])],
                    [init("w", w), init("v", rand(2, 4, 1, 1)), init("lo", np.float32(0)),
                     init("hi", np.float32(6))][:2 if text == "Relu" else 4])
        sets = [{"x": rand(1, 3, 6, 6)}]
        for profile in PROFILES:
            q = both("A4.6 %s, %s" % (text, profile), path, sets, "--target", profile)
            if q is None:
                continue
            c.check(len(ops(q, text)) == 1, "A4.6 %s stays in the file, %s" % (text, profile))
            names = [o.name for o in q.graph.output]
            out = os.path.join(c.TMP, "strip.onnx")
            onnx.save(q, out)
            r = run_ours(out, sets[0])[names.index("r")]
            c.check(r.min() >= 0 and r.max() <= 6.5, "A4.6 %s, %s: nothing below 0" % (text, profile))
            onnx.save(strip(q), out)
            diff = gap(run_ort(out, sets[0], False)[0], run_ort(path, sets[0], False)[0])
            c.check(diff < 0.05, "A4.6 %s, %s: without Q and DQ the float network: %.4f"
                    % (text, profile, diff))


def strip(model):
    """Takes out activation Q/DQ pairs; weights stay DequantizeLinear."""
    source = {}
    stored = set(inits(model))
    for n in list(model.graph.node):
        for i, name in enumerate(n.input):
            while name in source:
                name = source[name]
            n.input[i] = name
        if n.op_type == "QuantizeLinear" or (n.op_type == "DequantizeLinear"
                                             and n.input[0] not in stored):
            source[n.output[0]] = n.input[0]
            model.graph.node.remove(n)
    for n in model.graph.node:
        for i, name in enumerate(n.input):
            while name in source:
                name = source[name]
            n.input[i] = name
    for o in model.graph.output:
        if o.name in source:
            model.graph.node.append(node("Identity", source[o.name], o.name))
    return model


def a4_7():
    lo, hi = init("lo", np.float32(-1)), init("hi", np.float32(1))
    konst = [node("Constant", [], "lo", value=lo), node("Constant", [], "hi", value=hi)]
    dq = [node("DequantizeLinear", "hq hs hz", "hi")]
    dqi = [init("hq", np.uint8(255)), init("hs", np.float32(1 / 127)), init("hz", np.uint8(128)), lo]
    computed = [node("ReduceMax", "x", "hi", keepdims=0)]
    forms = {
        "attributes": (6, [], [], dict(min=-1.0, max=1.0), "r"),
        "initializers": (11, [], [lo, hi], {}, "r lo hi"),
        "Constant nodes": (11, konst, [], {}, "r lo hi"),
        "minimum missing": (11, [], [hi], {}, ["r", "", "hi"]),
        "maximum missing": (11, [], [lo], {}, "r lo"),
        "dequantized limit": (13, dq, dqi, {}, "r lo hi"),
        "computed limit": (13, computed, [lo], {}, "r lo hi"),
    }
    shape = init("shape", np.array([2, 2, 1, 2]))
    for text, (opset, nodes, tensors, attrs, inputs) in forms.items():
        path = save("clip-" + text.replace(" ", "-"),
                    [node("Reshape", "x shape", "r")] + nodes
                    + [node("Clip", inputs, "k", **attrs), node("Conv", "k w", "y")],
                    [info("x", [2, 4])], [info("y", [2, 3, 1, 2])],
                    tensors + [shape, init("w", rand(3, 2, 1, 1))], opset=opset,
                    ir=4 if opset < 13 else 8)
        for profile in ("generic", "sparsebit", "tensorrt"):
            q = both("A4.7 Clip with %s, %s" % (text, profile), path, [{"x": rand(2, 4, scale=2)}],
                     "--target", profile)
            c.check(q is not None and len(ops(q, "Clip")) == 1,
                    "A4.7 %s, %s: the Clip stays" % (text, profile))


def a4_8():
    table = {"Softmax": (0.0, 1.0), "Sigmoid": (0.0, 1.0), "HardSigmoid": (0.0, 1.0),
             "Tanh": (-1.0, 1.0)}
    # affine uint8, affine int8, symmetric int8: scale and zero point, by hand
    wanted = {(0.0, "generic"): (1 / 255, 0), (0.0, "mcu"): (1 / 255, -128),
              (0.0, "tensorrt"): (2 / 255, 0), (-1.0, "generic"): (2 / 255, 128),
              (-1.0, "mcu"): (2 / 255, 0), (-1.0, "tensorrt"): (2 / 255, 0)}
    for op, (low, _) in table.items():
        attrs = {"axis": 1} if op == "Softmax" else {}
        path = save("fixed" + op, [node("Conv", "x w", "a"), node(op, "a", "s", **attrs),
                                   node("Conv", "s v", "y")],
                    [info("x", [1, 3, 5, 5])], [info("y", [1, 2, 5, 5])],
                    [init("w", rand(4, 3, 1, 1, scale=0.1)), init("v", rand(2, 4, 1, 1))])
        for profile in ("generic", "mcu", "tensorrt", "sparsebit"):
            q = both("A4.8 %s, %s" % (op, profile), path, [{"x": rand(1, 3, 5, 5)}], "--target",
                     profile)
            qs = [n for n in ops(q, "QuantizeLinear") if n.input[0] == "s"] if q else []
            if profile == "sparsebit":
                continue  # observes them as Sparsebit does
            if not c.check(len(qs) == 1, "A4.8 %s, %s: its output is quantized" % (op, profile)):
                continue
            data = inits(q)
            scale, zp = float(data[qs[0].input[1]]), int(data[qs[0].input[2]])
            at_255, point = wanted[low, profile]
            at_256 = at_255 * 255 / 256
            fixed = zp in (point, point - 1) and min(abs(scale - at_255), abs(scale - at_256)) < 1e-6
            c.check(fixed, "A4.8 %s, %s: scale 1/%.2f, zero point %d, whatever was seen"
                    % (op, profile, 1 / scale, zp))


def a4_10():
    nodes = [node("Conv", "x w b", "a"), node("MaxPool", "a", "p", kernel_shape=[2, 2],
                                              strides=[2, 2]),
             node("Transpose", "p", "t", perm=[0, 1, 3, 2]), node("Flatten", "t", "f"),
             node("Gemm", "f g", "h"), node("Relu", "h", "k"), node("Gemm", "k g2", "y")]
    path = save("same", nodes, [info("x", [1, 3, 6, 6])], [info("y", [1, 4])],
                [init("w", rand(4, 3, 3, 3)), init("b", rand(4)), init("g", rand(16, 8)),
                 init("g2", rand(8, 4))])
    for profile in ("generic", "onnxruntime", "mcu", "openvino"):
        q = both("A4.10 " + profile, path, [{"x": rand(1, 3, 6, 6)}], "--target", profile)
        if q is None:
            continue
        data = inits(q)
        scales = {n.input[0]: (float(data[n.input[1]]), int(data[n.input[2]]))
                  for n in ops(q, "QuantizeLinear")}
        chain = [scales.get(t) for t in ("a", "p", "t", "f") if t in scales]
        c.check(len(set(chain)) == 1 and "a" in scales, "A4.10 %s: one scale from Conv to Gemm: %s"
                % (profile, chain))


def a4_11():
    path = conv_net(name="bias")
    sets = [{"x": rand(4, 3, 8, 8)}]
    kinds = {}
    for profile in PROFILES:
        q = both("A4.11 " + profile, path, sets, "--target", profile)
        if q is not None:
            kinds[profile] = any(d.dtype == np.int32 for d in inits(q).values())
    wanted = {p: p in ("generic", "onnxruntime", "mcu") for p in PROFILES}
    c.check(kinds == wanted, "A4.11 an int32 bias where the profile says so: %s" % kinds)


def a4_15():
    emb = rand(20000, 32)
    nodes = [node("Gather", "emb ids", "e"), node("Relu", "e", "r"), node("Transpose", "emb", "et"),
             node("MatMul", "r et", "y")]
    for extra in (False, True):
        outputs = [info("y", ["N", 3, 20000])]
        more = []
        if extra:
            outputs.append(info("wout", [20000, 32]))
            more = [node("Identity", "emb", "wout")]
        path = save("tied%d" % extra, nodes + more, [info("ids", ["N", 3], TensorProto.INT64)],
                    outputs, [init("emb", emb)])
        sets = [{"ids": np.array([[1, 2, 39], [0, 4, 3]])}]
        for profile in PROFILES:
            q = both("A4.15 tied embedding%s, %s" % (" also an output" if extra else "", profile),
                     path, sets, "--target", profile)
            if q is not None:
                dangling(q, "A4.15 tied%d %s" % (extra, profile))
                weight = sum(d.nbytes for d in inits(q).values())
                limit = 1.35 if extra or profile == "sparsebit" else 0.35
                c.check(weight <= emb.nbytes * limit, "A4.15 %s: %d bytes of weights, were %d"
                        % (profile, weight, emb.nbytes))
    w = rand(4, 4, 1, 1, scale=0.5)
    path = save("shared", [node("Conv", "x w", "a"), node("Relu", "a", "r"), node("Conv", "r w", "k"),
                           node("Add", "k w2", "y")],
                [info("x", [1, 4, 5, 5])], [info("y", [1, 4, 5, 5])],
                [init("w", w), init("w2", rand(1, 4, 1, 1))])
    q = both("A4.15 one kernel in two convolutions", path, [{"x": rand(1, 4, 5, 5)}])
    if q is not None:
        c.check(len([d for d in inits(q).values() if d.shape == w.shape]) == 1,
                "A4.15 the kernel is stored once")
    square = rand(8, 8, scale=0.4)
    path = save("axes", [node("Gemm", "x w", "a"), node("Relu", "a", "r"),
                         node("Gemm", "r w", "y", transB=1)], [info("x", ["N", 8])],
                [info("y", ["N", 8])], [init("w", square)])
    q = both("A4.15 one weight on two axes", path, [{"x": rand(4, 8)}])
    if q is not None:
        c.check(sorted(axis_of(n) for n in weight_dq(q, 64)) == [0, 1],
                "A4.15 a copy for each axis")
        dangling(q, "A4.15 two axes")


def dangling(model, text):
    used = {i for n in model.graph.node for i in n.input} | {o.name for o in model.graph.output}
    for n in model.graph.node:
        for a in n.attribute:
            for g in [a.g] + list(a.graphs):
                used |= {i for m in g.node for i in m.input}
    left = [t.name for t in model.graph.initializer if t.name not in used]
    c.check(not left, "%s: nothing unused is left: %s" % (text, left))


def branch(name, nodes, output, inputs=()):
    return helper.make_graph(nodes, name, list(inputs), output)


def quantizers(model):
    """For each body of the root's nodes: whether it has a QuantizeLinear."""
    return {a.name: any(n.op_type == "QuantizeLinear" for n in a.g.node)
            for m in model.graph.node for a in m.attribute if a.type == onnx.AttributeProto.GRAPH}


def a4_17():
    w, u = rand(6, 6, scale=0.4), rand(6, 6, scale=0.4)
    then = branch("then", [node("MatMul", "x w", "t", name="mm"), node("Relu", "t", "to")],
                  [info("to", ["N", 6])])
    other = branch("else", [node("MatMul", "x w", "t2", name="mm"), node("MatMul", "t2 u", "eo",
                                                                        name="mm2")],
                   [info("eo", ["N", 6])])
    path = save("if", [node("If", "cond", "z", then_branch=then, else_branch=other),
                       node("MatMul", "z u", "y")],
                [info("cond", [], TensorProto.BOOL), info("x", ["N", 6])], [info("y", ["N", 6])],
                [init("w", w), init("u", u)], opset=16)
    sets = [{"cond": np.array(v), "x": rand(3, 6)} for v in (True, False)]
    for profile in PROFILES:
        q = both("A4.17 If, then, " + profile, path, sets, "--target", profile)
        if q is None:
            continue
        out = os.path.join(c.TMP, "if-again.onnx")
        onnx.save(q, out)
        agree("A4.17 If, else, " + profile, path, out, sets[1], loss=0.15)
        ints = [k for k, d in inits(q).items() if d.shape == (6, 6) and d.dtype == np.int8]
        floats = [k for k, d in inits(q).items() if d.shape == (6, 6) and d.dtype == np.float32]
        c.check(len(ints) == 2 and not floats, "A4.17 %s: what branches and the graph use is "
                "stored once: %s %s" % (profile, ints, floats))
        dangling(q, "A4.17 If " + profile)
        c.check(quantizers(q) == {"then_branch": True, "else_branch": True},
                "A4.17 If, %s: both branches have quantizers" % profile)
    q = onnx.load(quantize(path, sets[:1])[0])  # what the data does not reach stays float
    c.check(quantizers(q) == {"then_branch": True, "else_branch": False},
            "A4.17 If: a branch that was not taken has no ranges")
    kernel = rand(2, 2, 3, 3, scale=0.2)
    for inner in ("mi", "m"):  # the second shadows an outer name, which only our tool may take
        loop(w, kernel, inner)
    scan(w)


def loop(w, kernel, inner):
    body = branch("body", [
        node("MatMul", "state w", inner), node("Relu", inner, "mr"),
        node("Reshape", "mr four", "img"), node("Conv", "img k", "cv", pads=[1, 1, 1, 1]),
        node("Reshape", "cv two", "next"), node("Identity", "go", "go_out"),
        node("Identity", "next", "scan")],
        [info("go_out", [], TensorProto.BOOL), info("next", [3, 6]), info("scan", [3, 6])],
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("state", [3, 6])])
    body.initializer.extend([init("k", kernel), init("four", np.array([1, 2, 3, 3])),
                             init("two", np.array([3, 6]))])
    path = save("loop-" + inner, [node("MatMul", "x w", "m"), node("Loop", ["trips", "", "m"], "last all",
                                                         body=body),
                         node("MatMul", "last w", "y")],
                [info("x", [3, 6])], [info("y", [3, 6]), info("all", [None, 3, 6])],
                [init("w", w), init("trips", np.array(3))], opset=16, check=False)
    sets = [{"x": np.linspace(-1, 1, 18, dtype="f").reshape(3, 6)}]
    for profile in PROFILES:
        if inner == "m":
            out = run_ours(quantize(path, sets, "--target", profile)[0], sets[0])
            same = all(a.tobytes() == b.tobytes() for a, b in zip(out, LOOP[profile]))
            c.check(same, "A4.17 Loop, %s: a shadowed name changes nothing" % profile)
            continue
        q = both("A4.17 Loop, " + profile, path, sets, "--target", profile, loss=0.2, step=0.06)
        if q is not None:
            copies = [d.dtype for d in every_init(q.graph) if d.shape == (6, 6)]
            c.check(len(copies) == len(set(copies)),
                    "A4.17 Loop %s: no copy twice: %s" % (profile, copies))
            c.check(quantizers(q) == {"body": True}, "A4.17 Loop %s: its body has quantizers" % profile)
            out = path[:-5] + "-again.onnx"
            onnx.save(q, out)
            LOOP[profile] = run_ours(out, sets[0])


LOOP = {}


def scan(w):
    step = branch("step", [node("MatMul", "h w", "hm"), node("Add", "hm xi", "s"),
                           node("Tanh", "s", "ho"), node("Identity", "ho", "yo")],
                  [info("ho", [1, 6]), info("yo", [1, 6])], [info("h", [1, 6]), info("xi", [1, 6])])
    path = save("scan", [node("Scan", "h0 x", "hl y", body=step, num_scan_inputs=1)],
                [info("h0", [1, 6]), info("x", [4, 1, 6])],
                [info("hl", [1, 6]), info("y", [4, 1, 6])], [init("w", w)], opset=16)
    sets = [{"h0": rand(1, 6), "x": rand(4, 1, 6)}]
    for profile in ("generic", "sparsebit"):
        both("A4.17 Scan, " + profile, path, sets, "--target", profile, loss=0.1)
    half = w.astype(np.float16)
    path = save("cast", [node("Cast", "wh", "w", to=F), node("MatMul", "x w", "y")],
                [info("x", ["N", 6])], [info("y", ["N", 6])], [init("wh", half)])
    q = both("A4.17 a weight behind a Cast", path, [{"x": rand(4, 6)}])
    c.check(q is not None and len(weight_dq(q, 36)) == 1, "A4.17 the cast weight is quantized")


def every_init(graph):
    found = [numpy_helper.to_array(t) for t in graph.initializer]
    for n in graph.node:
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                found += every_init(a.g)
    return found


def a4_18():
    """Valid orders that differ give valid files; an order that is not topological is sorted."""
    nodes = [node("Conv", "x w", "a"), node("Conv", "x v", "b"), node("Add", "a b", "s"),
             node("Relu", "s", "r"), node("Concat", "r a", "k", axis=1), node("Conv", "k u", "y")]
    sets = [{"x": rand(1, 3, 5, 5)}]
    tensors = [init("w", rand(4, 3, 1, 1)), init("v", rand(4, 3, 1, 1)), init("u", rand(2, 8, 1, 1))]
    for i, order in enumerate(([0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])):
        path = save("order%d" % i, [nodes[k] for k in order], [info("x", [1, 3, 5, 5])],
                    [info("y", [1, 2, 5, 5])], tensors, check=False)
        first = path if i == 0 else first
        for profile in PROFILES:
            try:
                out, _ = quantize(path, sets, "--target", profile)
                agree("A4.18 order %d, %s" % (i, profile), first, out, sets[0])
            except Exception as problem:
                c.check(False, "A4.18 order %d, %s: %s" % (i, profile, str(problem)[:200]))


def a4_20():
    h = TensorProto.FLOAT16
    nodes = [node("Conv", "x w b", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
             helper.make_node("Resize", ["r", "", "s"], ["u"], name="up", mode="nearest"),
             node("Conv", "u v", "y")]
    for opset in (13, 17, 19, 21):
        path = save("half%d" % opset, nodes, [info("x", [1, 3, 6, 6], h)],
                    [info("y", [1, 2, 12, 12], h)],
                    [init("w", rand(4, 3, 3, 3, scale=0.3, dtype=np.float16)),
                     init("b", rand(4, dtype=np.float16)), init("s", np.array([1, 1, 2, 2], "f")),
                     init("v", rand(2, 4, 1, 1, dtype=np.float16))], opset=opset,
                    ir=10 if opset > 19 else 9)
        for profile in PROFILES:
            q = both("A4.20 float16 at opset %d, %s" % (opset, profile), path,
                     [{"x": rand(1, 3, 6, 6, dtype=np.float16)}], "--target", profile, loss=0.12,
                     step=0.05)
            c.check(q is not None and q.graph.output[0].type.tensor_type.elem_type == h,
                    "A4.20 opset %d, %s: the output stays float16" % (opset, profile))
    path = save("halftiny", [node("Conv", "x w", "y")], [info("x", [1, 3, 4, 4], h)],
                [info("y", [1, 2, 4, 4], h)],
                [init("w", np.full((2, 3, 1, 1), 1e-6, np.float16))], opset=19, ir=9)
    q = both("A4.5 A4.20 float16 weights of 1e-6", path,
             [{"x": np.ones((1, 3, 4, 4), np.float16)}], loss=1.0)
    if q is not None:
        bad = [k for k, d in inits(q).items() if d.dtype == np.float16 and d.size and
               not (np.isfinite(d).all())]
        c.check(not bad, "A4.5 no scale of 0, NaN or Inf: %s" % bad)


def a4_21():
    path = save("scales64", [node("Conv", "x w", "y", strides=[2, 2])], [info("x", [1, 3, 15, 15])],
                [info("y", [1, 64, 5, 5])], [init("w", rand(64, 3, 7, 7, scale=0.1))])
    q = both("A4.21", path, [{"x": rand(1, 3, 15, 15)}])
    if q is not None:
        dq = weight_dq(q, 64 * 3 * 49)
        c.check(len(dq) == 1 and inits(q)[dq[0].input[1]].shape == (64,), "A4.21 exactly 64 scales")


def a8_3():
    """A network that was trained with fake quantization keeps its scales."""
    w = rand(4, 3, 3, 3, scale=0.2)
    tensors = [init("w", w), init("b", rand(4)), init("ws", (np.abs(w).max((1, 2, 3)) / 127)),
               init("wz", np.zeros(4, np.int8))]
    nodes = [node("Constant", [], "s", value=init("sv", np.float32(0.03))),
             node("Constant", [], "zi", value=init("zv", np.int64(120))),
             node("Cast", "zi", "z", to=TensorProto.UINT8),
             node("QuantizeLinear", "x s z", "xq"), node("DequantizeLinear", "xq s z", "xd"),
             node("QuantizeLinear", "w ws wz", "wq", axis=0),
             node("DequantizeLinear", "wq ws wz", "wd", axis=0),
             node("Conv", "xd wd b", "a"), node("Relu", "a", "y")]
    path = save("fakequant", nodes, [info("x", ["N", 3, 6, 6])], [info("y", ["N", 4, 4, 4])], tensors)
    feed = {"x": rand(2, 3, 6, 6)}
    try:
        diff = gap(run_ours(path, feed), run_ort(path, feed, False)[0])
        c.check(diff < 1e-5, "A8.3 a fake-quantized model runs as in ONNX Runtime: %.2g" % diff)
        out = path[:-5] + "-s.onnx"
        code, _, err = c.tool("simplify", path, "-o", out)
        c.check(code == 0, "A8.3 simplify: " + err[:200])
        loads(out)
        diff = gap(run_ort(out, feed, False)[0], run_ort(path, feed, False)[0])
        c.check(diff < 1e-5, "A8.3 simplified it computes the same: %.2g" % diff)
        write_pb(path[:-5] + "-d", [feed])
        again = path[:-5] + "-q.onnx"
        code, _, err = c.tool("quantize", path, "--data", "pb:" + path[:-5] + "-d", "-o", again)
        if code == 0:
            agree("A8.3 quantized again", path, again, feed, loss=0.05)
            scales = [float(v) for v in inits(onnx.load(again)).values() if v.dtype == np.float32
                      and v.size == 1]
            c.check(np.float32(0.03) in np.float32(scales), "A8.3 its scale 0.03 is kept")
        else:
            c.check(code == 1 and len(err) > 20, "A8.3 quantize says why not: " + err[:200])
    except Exception as problem:
        c.check(False, "A8.3: " + str(problem)[:300])


# ---- contracts.md section 5: every profile, every width

def profile_net():
    tensors = [init("w1", rand(6, 3, 3, 3, scale=0.3)), init("b1", rand(6)),
               init("w2", rand(6, 6, 3, 3, scale=0.15)), init("b2", rand(6)),
               init("wt", rand(6, 4, 2, 2, scale=0.3)), init("bt", rand(4)),
               init("w3", rand(4, 10, 1, 1, scale=0.3)), init("mm", rand(16, 12, scale=0.2)),
               init("to", np.array([0, -1, 16])), init("W", rand(1, 32, 12, scale=0.3)),
               init("R", rand(1, 32, 8, scale=0.3)), init("B", rand(1, 64, scale=0.1)),
               init("g", rand(8, 5, scale=0.4)), init("gb", rand(5)),
               init("s", np.array([1, 1, 2, 2], "f"))]
    nodes = [node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c1", "r1"),
             node("Conv", "r1 w2 b2", "c2", pads=[1, 1, 1, 1]), node("Add", "c2 r1", "res"),
             node("Relu", "res", "r2"),
             node("ConvTranspose", "r2 wt bt", "up", strides=[2, 2]),
             helper.make_node("Resize", ["r2", "", "s"], ["near"], name="nearn", mode="nearest"),
             node("Concat", "up near", "cat", axis=1), node("Conv", "cat w3", "c3"),
             node("HardSwish", "c3", "hs"), node("MaxPool", "hs", "mp", kernel_shape=[2, 2],
                                                 strides=[2, 2]),
             node("Reshape", "mp to", "seq"), node("MatMul", "seq mm", "m"),
             node("Transpose", "m", "mt", perm=[1, 0, 2]),
             helper.make_node("LSTM", ["mt", "W", "R", "B"], ["", "h"], name="lstm", hidden_size=8),
             node("Squeeze", "h ax", "hq"), node("Gemm", "hq g gb", "logits"),
             node("Softmax", "logits", "y", axis=1)]
    tensors.append(init("ax", np.array([0])))
    return save("profiles", nodes, [info("x", ["N", 3, 8, 8])], [info("y", ["N", 5])], tensors,
                opset=14)


def profiles():
    path = profile_net()
    sets = [{"x": rand(4, 3, 8, 8)} for _ in range(4)]
    for profile in PROFILES:
        q = both("profile " + profile, path, sets, "--target", profile, loss=0.1)
        if q is None:
            continue
        data = inits(q)
        pairs = [(n, data[n.input[0]] if n.input[0] in data else None,
                  data[n.input[2]] if len(n.input) > 2 else np.zeros(1, np.uint8))
                 for n in ops(q, "QuantizeLinear") + ops(q, "DequantizeLinear")]
        acts = [z for n, d, z in pairs if d is None]
        weights = [(d, z) for n, d, z in pairs if d is not None]
        bias32 = any(d.dtype == np.int32 for d, _ in weights)
        c.check(bias32 == (profile in ("generic", "onnxruntime", "mcu")),
                "profile %s: int32 bias %s" % (profile, bias32))
        c.check(all((z == 0).all() for d, z in weights), "profile %s: weights symmetric" % profile)
        c.check(all(d.dtype in (np.int8, np.int32) for d, _ in weights),
                "profile %s: weights int8" % profile)
        if profile == "tensorrt":
            c.check(all((z == 0).all() and z.dtype == np.int8 for z in acts),
                    "profile tensorrt: no zero point other than 0, int8")
            quantized = {n.input[0] for n in ops(q, "QuantizeLinear")}
            add = ops(q, "Add")[0]
            made = {o: n for n in q.graph.node for o in n.output}
            kinds = [made[i].op_type for i in add.input if i in made]
            c.check("c2" not in quantized and "DequantizeLinear" in kinds,
                    "profile tensorrt: Q/DQ on the residual input, none between Conv and Add: %s"
                    % kinds)
        elif profile == "mcu":
            c.check(all(z.dtype == np.int8 for z in acts), "profile mcu: int8 activations (A10.4)")
        else:
            c.check(all(z.dtype == np.uint8 for z in acts), "profile %s: uint8 activations" % profile)
        lstm = ops(q, "LSTM")[0]
        stored = [i for i in lstm.input[1:3] if i in data]
        c.check((len(stored) == 2) == (profile == "sparsebit"),
                "profile %s: LSTM weights float %s" % (profile, stored))
        c.check({o.domain for o in q.opset_import} <= {"", "ai.onnx"}, "profile %s: ai.onnx only"
                % profile)
    limits = {2: 2.0, 3: 1.5, 4: 1.0, 5: 0.6, 6: 0.4, 7: 0.3, 8: 0.15}
    for profile in PROFILES:
        for bits in range(2, 17):
            w16 = ("--set", "W.QUANTIZER.BIT=%d" % bits)
            a16 = ("--set", "A.QUANTIZER.BIT=%d" % bits)
            loss = limits.get(bits, 0.12)
            if profile == "tensorrt" and bits > 8:  # it takes no more than 8 bits: said, not written
                for key in (w16, a16):
                    try:
                        quantize(path, sets, "--target", profile, *key)
                        refused = "it was written"
                    except Exception as problem:
                        refused = str(problem)
                    c.check("tensorrt" in refused and "8" in refused.split("error:")[-1],
                            "tensorrt refuses %s: %s" % (key[1], refused[-150:]))
                continue
            both("%s W%dA8" % (profile, bits), path, sets, "--target", profile, *w16, loss=loss,
                 step=0.05)
            both("%s W8A%d" % (profile, bits), path, sets, "--target", profile, *a16, loss=loss,
                 step=0.05 if bits >= 8 else 0.4)


# ---- A9: the command line

def a9():
    path = conv_net(name="cli")
    sets = [{"x": rand(2, 3, 8, 8)} for _ in range(5)]
    write_pb(path[:-5] + "-d", sets)
    data, out = "pb:" + path[:-5] + "-d", path[:-5] + "-q.onnx"
    code, text, _ = c.tool("quantize", path, "--data", data, "-o", out)
    c.check(code == 0 and "Conv" in text and "Gemm" in text, "A9.5 a summary names what was quantized:\n"
            + text)
    code, text, err = c.tool("quantize", path, "--data", data, "-o", out, "--calib", 1000)
    c.check(code == 0, "A9.4 --calib 1000 takes the 5 there are: " + err[:200])
    first = open(out, "rb").read()
    c.tool("quantize", path, "--data", data, "-o", out, "--calib", 1000)
    c.check(first == open(out, "rb").read(), "A9.4 A5.10 the same bytes again")
    patterns = {"glob": "c*", "weight": "w1", "node": "c_node", "tensor": "c"}
    for kind, pattern in patterns.items():
        code, _, err = c.tool("quantize", path, "--data", data, "-o", out, "--set",
                              'SKIP_TRACE_MODULES=["%s"]' % pattern)
        kept = code == 0 and "w1" in inits(onnx.load(out))
        c.check(kept, "A9.8 left float by %s '%s': %s" % (kind, pattern, err.strip()[-150:]))
    code, text, err = c.tool("quantize", path, "--data", data, "-o", out, "--set",
                             'SKIP_TRACE_MODULES=["conv1"]')
    c.check("'conv1' matches no" in err, "A9.3 a pattern that matches nothing is said: "
            + err.strip()[-200:])


def main():
    only = os.environ.get("SBIT_BLOCKS", "").split()
    blocks = [a1_5, a1_6, a1_9, a1_10, a1_14, a2_1, a2_2, a2_3_and_12, a2_4, a2_6, a2_7,
              a2_9_and_10, a2_11, a3_16, a3_17, a4_1, a4_2, a4_5, a4_6, a4_7, a4_8, a4_10, a4_11, a4_15, a4_17,
              a4_18, a4_20, a4_21, a8_3, profiles, a9]
    for block in blocks:
        if only and block.__name__ not in only:
            continue
        try:
            block()
        except Exception as problem:  # one block must not hide the others
            c.check(False, "%s: %s: %s" % (block.__name__, type(problem).__name__, problem))
    c.finish("check_field_reports")


main()
