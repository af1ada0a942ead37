"""check_microsoft.py: operators of com.microsoft against ONNX Runtime.

Models of one node with random shapes and attributes, and what ONNX Runtime makes of the shared
models when it optimizes them and saves the result: all of those must load, run, and give what it
gives. SBIT_CASES cases of each operator (default 12), SBIT_SEED chooses others.
"""
import glob
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import _common as c

CASES = int(os.environ.get("SBIT_CASES", "12"))
rng = np.random.RandomState(int(os.environ.get("SBIT_SEED", "1")))
f32 = np.float32


def pick(*values):
    return values[rng.randint(len(values))]


def normal(*shape):
    return rng.randn(*shape).astype(f32)


class Case:
    """A node: inputs (None: omitted), which are initializers, number of outputs, attributes."""

    def __init__(self, op, inputs, outputs=1, constant=(), domain="com.microsoft", opset=17,
                 tolerance=2e-5, **attributes):
        self.op, self.inputs, self.outputs, self.domain = op, inputs, outputs, domain
        self.constant, self.opset, self.tolerance = set(constant), opset, tolerance
        self.attributes = {k: v for k, v in attributes.items() if v is not None}

    def model(self):
        names = ["" if a is None else "i%d" % k for k, a in enumerate(self.inputs)]
        while names and names[-1] == "":
            names.pop()
        outs = ["o%d" % k if k in self.wanted() else "" for k in range(max(self.wanted()) + 1)]
        node = helper.make_node(self.op, names, outs, name="n", domain=self.domain,
                                **self.attributes)
        values, weights = [], []
        for k, a in enumerate(self.inputs):
            if a is None:
                continue
            if k in self.constant:
                weights.append(numpy_helper.from_array(a, names[k]))
            else:
                values.append(helper.make_tensor_value_info(
                    names[k], helper.np_dtype_to_tensor_dtype(a.dtype), a.shape))
        outputs = [helper.make_value_info(o, onnx.TypeProto()) for o in outs if o]
        graph = helper.make_graph([node], "g", values, outputs, weights)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)

    def wanted(self):
        return list(range(self.outputs)) if isinstance(self.outputs, int) else self.outputs

    def feeds(self):
        return {"i%d" % k: a for k, a in enumerate(self.inputs)
                if a is not None and k not in self.constant}

    def __str__(self):
        return "%s-%d %s %s" % (self.op, self.opset, [a if a is None else (a.dtype.name, a.shape)
                                                      for a in self.inputs], self.attributes)


def fused_conv():
    g, ci, co = pick((1, 3, 4), (2, 4, 6), (4, 4, 4))
    x, w = normal(2, ci, 7, 6), normal(co, ci // g, 3, 3)
    act, params = pick(("Relu", None), ("Sigmoid", None), ("Tanh", None), ("LeakyRelu", [0.2]),
                       ("Clip", [-0.5, 1.0]), ("HardSigmoid", [0.3, 0.4]))
    inputs = [x, w, pick(None, normal(co))]
    pads, stride = pick([1, 1, 1, 1], [0, 1, 0, 0]), pick([1, 1], [2, 1])
    if rng.rand() < 0.4:
        shape = [2, co, (7 + pads[0] + pads[2] - 3) // stride[0] + 1,
                 (6 + pads[1] + pads[3] - 3) // stride[1] + 1]
        inputs += [normal(*shape)]
    return Case("FusedConv", inputs, opset=pick(8, 10, 11, 17, 21), constant=(1, 2), group=g,
                pads=pads, strides=stride, activation=act, activation_params=params)


def fused_gemm():
    a, b = pick(0, 1), pick(0, 1)
    x, w = normal(*((4, 3) if a else (3, 4))), normal(*((5, 4) if b else (4, 5)))
    act, extra = pick(("Relu", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.3}),
                      ("Tanh", {}))
    return Case("FusedGemm", [x, w, pick(normal(5), normal(3, 5))], transA=a, transB=b, alpha=0.5,
                beta=pick(1.0, 2.0), activation=act, **extra)


def fused_matmul():
    ta, tb, ba, bb = (pick(0, 1) for _ in range(4))

    def shaped(batch, m, n, t, tbatch):  # of what is multiplied: [batch.., m, n]
        dims = list(batch) + ([n, m] if t else [m, n])
        if tbatch:  # the first axis is the last but one of the operand as it is used
            used = list(batch) + [m, n]
            last = used[-2:][::-1] if t else used[-2:]
            dims = [last[0]] + list(batch) + [last[1]] if batch else dims
        return normal(*dims)
    batch = pick((2,), (2, 3))
    return Case(pick("FusedMatMul", "FusedMatMul", "TransposeMatMul") if not (ba or bb) else "FusedMatMul",
                [shaped(batch, 4, 5, ta, ba), shaped(batch, 5, 6, tb, bb)], transA=ta, transB=tb,
                alpha=pick(None, 0.25), transBatchA=ba or None, transBatchB=bb or None)


def gelu():
    op = pick("Gelu", "BiasGelu", "FastGelu", "FastGelu", "QuickGelu")
    x = normal(2, 3, 8) * 3
    bias = normal(8) if op == "BiasGelu" or (op == "FastGelu" and rng.rand() < 0.5) else None
    alpha = pick(None, 0.7) if op == "QuickGelu" else None
    return Case(op, [x, bias], alpha=alpha, opset=pick(12, 17, 21))


def skip_norm():
    simple = pick(True, False)
    op = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    x, skip = normal(2, 3, 8), pick(normal(2, 3, 8), normal(2, 3, 8), normal(3, 8), normal(1, 3, 8))
    bias, beta = pick(None, normal(8)), pick(None, normal(8))
    inputs = [x, skip, normal(8)] + ([bias] if simple else [beta, bias])
    return Case(op, inputs, outputs=pick([0], [0, 3]), epsilon=pick(None, 1e-3),
                opset=pick(12, 17))


def layer_norm():
    op = pick("LayerNormalization", "SimplifiedLayerNormalization")
    inputs = [normal(2, 3, 8), normal(8)] + ([normal(8)] if op[0] == "L" else [])
    return Case(op, inputs, domain="", opset=pick(9, 12, 16), axis=-1, epsilon=pick(None, 1e-3))


def embed_norm():
    b, s, h = 2, 5, 8
    ids = rng.randint(0, 11, (b, s)).astype(np.int32)
    segments = pick(None, rng.randint(0, 2, (b, s)).astype(np.int32))
    mask = pick(None, (np.arange(s)[None] < np.array([[3], [5]])).astype(np.int32))
    positions = pick(None, rng.randint(0, 9, (b, s)).astype(np.int32))
    inputs = [ids, segments, normal(11, h), normal(9, h), None if segments is None else normal(2, h),
              normal(h), normal(h), mask, positions]
    return Case("EmbedLayerNormalization", inputs, outputs=pick([0, 1], [0, 1, 2]),
                constant=(2, 3, 4, 5, 6), epsilon=pick(None, 1e-3))


def mask_of(b, s, total, raw3=True):
    kinds = [None, (np.arange(total)[None] < np.array([[total - 2], [total]])).astype(np.int32),
             np.array([total - 1, total], np.int32)]
    if raw3:
        kinds.append((rng.rand(b, s, total) < 0.7).astype(np.int32))
        kinds.append(np.array([total - 1, total, 1, 0], np.int32))
    return pick(*kinds)


def attention():
    b, s, n, h = 2, 4, 2, 4
    d = n * h
    past = pick(None, None, normal(2, b, n, 3, h))
    total = s + (3 if past is not None else 0)
    causal = pick(None, 1)
    mask = mask_of(b, s, total)
    scores = pick(None, None, normal(1, n, s, total), normal(b, n, s, total))
    if mask is not None and mask.ndim == 1 and past is not None:
        mask = None
    v = d if past is not None else pick(d, 2 * d)
    sizes = None if v == d else [d, d, v]
    inputs = [normal(b, s, 6), normal(6, 2 * d + v), normal(2 * d + v), mask, past, scores]
    return Case("Attention", inputs, outputs=2 if past is not None else 1, constant=(1, 2),
                num_heads=n, unidirectional=causal, scale=pick(None, 0.3), qkv_hidden_sizes=sizes,
                tolerance=1e-4)


def qattention():
    b, s, n, h = 2, 4, 2, 4
    d = n * h
    x = rng.randint(0, 256, (b, s, 6)).astype(np.uint8)
    w = rng.randint(-100, 101, (6, 3 * d)).astype(np.int8)
    inputs = [x, w, normal(3 * d), np.asarray(0.02, f32), np.asarray(0.01, f32), mask_of(b, s, s, False),
              np.asarray(120, np.uint8), np.asarray(0, np.int8)]
    return Case("QAttention", inputs, constant=(1, 2, 3, 4, 6, 7), num_heads=n,
                unidirectional=pick(None, 1), tolerance=1e-4)


def mha():
    b, s, n, h = 2, 4, 2, 4
    d, kv = n * h, pick(4, 6)
    kind = pick("plain", "plain", "packed kv", "packed qkv", "cross", "past")
    q, bias, past = normal(b, s, d), pick(None, normal(3 * d)), [None, None]
    length = kv
    if kind == "packed qkv":
        q, k, v, length = normal(b, s, n, 3, h), None, None, s
    elif kind == "packed kv":
        k, v, bias = normal(b, kv, n, 2, h), None, None
    elif kind == "cross":
        k, v, bias = normal(b, n, kv, h), normal(b, n, kv, h), None
    else:
        k, v = normal(b, kv, d), normal(b, kv, d)
    if kind == "past":
        k, v, length = normal(b, s, d), normal(b, s, d), s + 3
        past = [normal(b, n, 3, h), normal(b, n, 3, h)]
    mask = mask_of(b, s, length, False) if kind != "packed qkv" else None
    if mask is not None and mask.ndim == 1 and kind != "plain":
        mask = None
    scores = pick(None, normal(1, n, s, length), normal(b, n, s, length))
    return Case("MultiHeadAttention", [q, k, v, bias, mask, scores] + past,
                outputs=3 if kind == "past" else 1, num_heads=n, scale=pick(None, 0.4),
                unidirectional=pick(None, 1), tolerance=1e-4)


def gqa():
    b, n, kvn, h = 2, 4, pick(1, 2, 4), 16
    prompt = pick(True, False)
    s = pick(3, 5) if prompt else 1
    lengths = np.array([s, s] if prompt else [4, 6], np.int64)  # with the new ones
    past_len = 0 if prompt else int(lengths.max()) - 1
    room = pick(past_len, past_len + 3) if not prompt else 0
    q, k, v = normal(b, s, n * h), normal(b, s, kvn * h), normal(b, s, kvn * h)
    packed = pick(True, False)
    past = [normal(b, kvn, room, h), normal(b, kvn, room, h)]
    if packed:
        q, k, v = np.concatenate([q, k, v], 2), None, None
    rotary = pick(0, 1)
    caches = [normal(16, h // 2), normal(16, h // 2)] if rotary else [None, None]
    total = np.asarray(int(lengths.max()), np.int32)
    inputs = [q, k, v] + past + [(lengths - 1).astype(np.int32), total] + caches
    return Case("GroupQueryAttention", inputs, outputs=3, num_heads=n, kv_num_heads=kvn,
                scale=pick(None, 0.3), softcap=pick(None, 5.0), do_rotary=rotary or None,
                local_window_size=pick(None, None, 3),
                rotary_interleaved=pick(None, 1) if rotary else None, tolerance=1e-4)


def rotary():
    b, s, n, h = 2, 3, 2, 8
    part = pick(None, 4)
    x = pick(normal(b, s, n * h), normal(b, n, s, h))
    cols = (part or h) // 2
    ids = pick(rng.randint(0, 10, (b, s)).astype(np.int64), np.array([4], np.int64))
    return Case("RotaryEmbedding", [x, ids, normal(10, cols), normal(10, cols)],
                interleaved=pick(None, 1), num_heads=n if part or rng.rand() < 0.5 else None,
                rotary_embedding_dim=part, opset=pick(13, 17))


def nhwc_pool():
    x = rng.randint(0, 256, (2, 7, 8, 3)).astype(np.uint8)
    if rng.rand() < 0.5:
        x = x.view(np.int8)
    return Case("NhwcMaxPool", [x], kernel_shape=[2, 3], strides=pick([1, 1], [2, 2]),
                pads=pick([0, 0, 0, 0], [1, 1, 0, 1]), ceil_mode=pick(0, 1))


def qdq():
    kind = pick(np.uint8, np.int8, np.uint16, np.int16)
    info = np.iinfo(kind)
    axis = pick(None, 1)
    shape = (4,) if axis else ()
    scale = rng.uniform(0.01, 0.05, shape).astype(f32)
    zero = rng.randint(info.min // 2, info.max // 2 + 1, shape).astype(kind)
    if rng.rand() < 0.5:
        return Case("QuantizeLinear", [normal(2, 4, 3), scale, zero], axis=axis, tolerance=0)
    return Case("DequantizeLinear", [rng.randint(info.min, info.max + 1, (2, 4, 3)).astype(kind),
                                     scale, zero], axis=axis, tolerance=0)


def lstm():
    i, h, dirs = 4, 3, pick(1, 2)
    kind = pick(np.int8, np.uint8)
    info = np.iinfo(kind)

    def weights(rows):
        q = rng.randint(info.min, info.max + 1, (dirs, rows, 4 * h)).astype(kind)
        shape = pick((dirs,), (dirs, 4 * h))
        zero = np.full(shape, 128 if kind == np.uint8 else 0, kind)
        return q, rng.uniform(0.002, 0.01, shape).astype(f32), zero
    (w, ws, wz), (r, rs, rz) = weights(i), weights(h)
    inputs = [normal(5, 2, i), w, r, pick(None, normal(dirs, 8 * h)), None, None, None, None,
              ws, wz, rs, rz]
    return Case("DynamicQuantizeLSTM", inputs, outputs=3, constant=(1, 2, 3, 8, 9, 10, 11),
                hidden_size=h, direction="bidirectional" if dirs == 2 else pick("forward", "reverse"),
                tolerance=4e-2)  # it rounds x and h to 8 bits, here they stay float


KINDS = [fused_conv, fused_gemm, fused_matmul, gelu, skip_norm, layer_norm, embed_norm, attention,
         qattention, mha, gqa, rotary, nhwc_pool, qdq, lstm]


def session(path, **options):
    o = onnxruntime.SessionOptions()
    o.log_severity_level = 4
    o.intra_op_num_threads = 1
    for name, value in options.items():
        setattr(o, name, value)
    return onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])


def ours(path, feeds, names):
    """The tool's outputs by name."""
    args = []
    for name, value in feeds.items():
        file = os.path.join(c.TMP, "in_%s.npy" % name)
        np.save(file, value)
        args += ["--input", "%s=%s" % (name, file)]
    out = os.path.join(c.TMP, "out")
    code, _, err = c.tool("run", path, *args, "-o", out, "--threads", 1)
    if code != 0:
        raise RuntimeError(err.strip().splitlines()[-1])
    return [np.load(os.path.join(out, "%s.npy" % "".join(
        ch if ch.isalnum() or ch in "._-" else "_" for ch in n))) for n in names]


def off(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return "%s %s, not %s %s" % (got.dtype, got.shape, want.dtype, want.shape)
    a, b = got.astype(np.float64), want.astype(np.float64)
    return np.abs(a - b).max(initial=0) / max(1.0, np.abs(b).max(initial=0))


def check_kind(make):
    path = os.path.join(c.TMP, "node.onnx")
    bad, refused, ran = [], 0, 0
    for _ in range(CASES):
        case = make()
        onnx.save(case.model(), path)
        try:
            ort = session(path)
            want = ort.run(None, case.feeds())
        except Exception as why:  # what it has no kernel for
            refused += 1
            if os.environ.get("SBIT_VERBOSE"):
                print("     ONNX Runtime refuses %s: %s" % (case, str(why).splitlines()[0][:300]))
            continue
        ran += 1
        try:
            got = ours(path, case.feeds(), [o.name for o in ort.get_outputs()])
            errors = [off(g, w) for g, w in zip(got, want)]
            if any(isinstance(e, str) or not e <= case.tolerance for e in errors):
                bad.append("%s: %s" % (case, errors))
        except (RuntimeError, OSError) as why:
            bad.append("%s: %s" % (case, why))
    for text in bad:
        print("     " + text)
    c.check(not bad and ran > 0, "%s: %d of %d as ONNX Runtime (%d that it refuses)"
            % (make.__name__, ran - len(bad), ran, refused))


def inputs_of(model):
    """Random values for a model's inputs; open dims are 1, of images 96."""
    feeds = {}
    for value in model.get_inputs():
        dims = [d if isinstance(d, int) else (1 if i == 0 else 96) for i, d in enumerate(value.shape)]
        if value.type == "tensor(int64)":
            feeds[value.name] = np.full(dims, 16000, np.int64)  # Silero's sampling rate
        elif value.name in ("state", "h", "c"):
            feeds[value.name] = np.zeros([d if isinstance(d, int) else 1 for d in value.shape], f32)
        else:
            if len(dims) == 2:
                dims = [1, 512]
            feeds[value.name] = rng.uniform(-1, 1, dims).astype(f32)
    return feeds


def check_optimized():
    """The shared models as ONNX Runtime saves them: the same results as the model itself gives."""
    for path in sorted(glob.glob(os.path.join(c.SHARED, "models", "*", "*.onnx"))):
        name = os.path.basename(path)
        saved = os.path.join(c.TMP, "optimized.onnx")
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        session(path, graph_optimization_level=level, optimized_model_filepath=saved)
        model = onnx.load(saved)
        theirs = sorted({n.op_type for n in model.graph.node if n.domain == "com.microsoft"})
        ort = session(path, graph_optimization_level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
        feeds = inputs_of(ort)
        try:
            want = ort.run(None, feeds)
            got = ours(saved, feeds, [o.name for o in ort.get_outputs()])
            errors = [off(g, w) for g, w in zip(got, want)]
            good = all(not isinstance(e, str) and e < 1e-3 for e in errors)
            c.check(good, "%s with %s: %s" % (name, ", ".join(theirs) or "nothing", errors))
        except (RuntimeError, OSError) as why:
            c.check(False, "%s with %s: %s" % (name, ", ".join(theirs), why))


def check_constants():
    """Constants that an expanded operator brings along: in a branch, and beside a default that is fed."""
    bias = numpy_helper.from_array(normal(24), "bias")
    attend = helper.make_node("MultiHeadAttention", ["x", "x", "x", "bias"], ["y"], domain="com.microsoft", num_heads=2)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3, 8])
    branches = {"then_branch": helper.make_graph([attend], "then", [], [y], [bias]),
                "else_branch": helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "else", [],
                                                 [helper.make_tensor_value_info("e", TensorProto.FLOAT, [1, 3, 8])])}
    less = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0), helper.make_node("Less", ["most", "large"], ["c"]),
            helper.make_node("If", ["c"], ["z"], **branches)]
    large = numpy_helper.from_array(np.array(1e9, f32), "large")
    default = helper.make_tensor_value_info("bias", TensorProto.FLOAT, [24])
    graphs = {"attention in a branch": helper.make_graph(less, "g", [x], [z], [large]),
              "attention with a default fed": helper.make_graph([attend], "g", [x, default], [y], [bias])}
    for name, graph in graphs.items():
        path = os.path.join(c.TMP, "constants.onnx")
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
        feeds = {i.name: normal(*[d.dim_value for d in i.type.tensor_type.shape.dim]) for i in graph.input}
        try:
            want = session(path).run(None, feeds)
            errors = [off(g, w) for g, w in zip(ours(path, feeds, [graph.output[0].name]), want)]
            c.check(all(not isinstance(e, str) and e < 2e-5 for e in errors), "%s: %s" % (name, errors))
        except (RuntimeError, OSError) as why:
            c.check(False, "%s: %s" % (name, why))


def main():
    for kind in KINDS:
        if os.environ.get("SBIT_KIND", kind.__name__) == kind.__name__:
            check_kind(kind)
    if "SBIT_KIND" not in os.environ:
        check_constants()
        check_optimized()
    c.finish("check_microsoft")


if __name__ == "__main__":
    main()
