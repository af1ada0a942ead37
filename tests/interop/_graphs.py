"""_graphs.py: random valid ONNX graphs. One generator for all that want many graphs.

    model, feeds = graph(seed)          any float network: 3 to 25 nodes of some 60 operators
    model, feeds = graph(seed, "cnn")   layers of convolutional networks only (to be quantized, pruned)
    model, feeds = graph(seed, "typed") tensors of any type: integers, bool, float16, float8, double, text; Loop, Scan,
                                        sequences, SequenceMap, optionals, functions, quantized numbers

A graph depends on the seed alone. Values are kept tame: no division by small numbers, no logarithm
of what may be negative. Each node's output shapes come from ONNX's own shape inference.
"""
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21)
UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softplus", "Softsign", "Floor", "Ceil", "Elu", "Selu",
         "LeakyRelu", "HardSigmoid", "ThresholdedRelu", "Celu", "Sin", "Cos", "Atan", "Identity", "Round", "Sign")
ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "Clip", "HardSwish", "SiLU", "PRelu", "Tanh")


class Builder:
    def __init__(self, seed, kind):
        self.rng = numpy.random.default_rng(seed)
        self.kind = kind
        self.opset = int(self.rng.choice([o for o in OPSETS if kind != "cnn" or o >= 13]))
        self.nodes, self.constants, self.inputs = [], [], []
        self.shapes = {}  # of float tensors that may be used further
        self.count = 0
        self.depth = 0

    # ---- pieces

    def name(self, stem="t"):
        self.count += 1
        return "%s%d" % (stem, self.count)

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def some(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def constant(self, value, dtype=numpy.float32):
        name = self.name("c")
        self.constants.append(numpy_helper.from_array(numpy.asarray(value, dtype), name))
        return name

    def weight(self, *shape):
        fan = max(1, int(numpy.prod(shape[1:])))
        return self.constant(self.rng.standard_normal(shape) / numpy.sqrt(fan))

    def ints(self, values):
        return self.constant(values, numpy.int64)

    def input(self, shape):
        name = self.name("x")
        self.inputs.append((name, shape))
        self.shapes[name] = shape
        return name

    def node(self, op, inputs, outputs=1, **attrs):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=self.name(op), **attrs))
        return names[0] if outputs == 1 else names

    def keep(self, name):
        """The tensor may be used by later nodes; its shape by inference over all so far."""
        model = self.model([name], check=False)
        inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        for value in list(inferred.graph.output) + list(inferred.graph.value_info):
            if value.name == name:
                dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
                if all(d > 0 for d in dims) and numpy.prod(dims or [1]) < 40000:
                    self.shapes[name] = tuple(dims)
                    onnx.checker.check_model(self.model([name], check=False))
                    return name
        return None

    def take(self, rank=None):
        """A tensor to go on from, the newer the likelier."""
        names = [n for n, s in self.shapes.items() if rank is None or len(s) == rank]
        if not names:
            return None
        return names[-1 - min(int(self.rng.exponential(1.2)), len(names) - 1)]

    # ---- layers: each takes a tensor's name and gives the new one, or None where it does not fit

    def conv(self, x):
        n, c, h, w = self.shapes[x]
        groups = self.pick(1, 1, 1, c, *(g for g in (2, 3, 4) if c % g == 0))
        out = groups * self.some(1, 3) if groups > 1 else self.some(1, 12)
        k = [min(self.pick(1, 1, 3, 3, 5, 2), s) for s in (h, w)]
        dilation = [self.pick(1, 1, 1, 2) if (k[i] - 1) * 2 < (h, w)[i] else 1 for i in range(2)]
        pads = [self.some(0, (k[i % 2] - 1) * dilation[i % 2]) for i in range(4)]
        inputs = [x, self.weight(out, c // groups, *k)]
        if self.some(0, 3):
            inputs.append(self.constant(self.rng.standard_normal(out) * 0.3))
        attrs = dict(kernel_shape=k, strides=[self.pick(1, 1, 2), self.pick(1, 1, 2)], group=groups)
        if self.some(0, 5) == 0 and dilation == [1, 1]:
            attrs["auto_pad"] = self.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        else:
            attrs.update(pads=pads, dilations=dilation)
        return self.node("Conv", inputs, **attrs)

    def conv1d(self, x):
        n, c, w = self.shapes[x]
        k = min(3, w)
        return self.node("Conv", [x, self.weight(self.some(1, 8), c, k)], kernel_shape=[k], pads=[self.some(0, k - 1)] * 2)

    def conv_transpose(self, x):
        n, c, h, w = self.shapes[x]
        groups = self.pick(1, 1, *(g for g in (2, 3) if c % g == 0))
        stride, k = self.pick(1, 2, 3), self.pick(1, 2, 3)
        attrs = dict(kernel_shape=[k, k], strides=[stride, stride], group=groups, pads=[self.some(0, k - 1)] * 4)
        if stride > 1 and self.some(0, 1):
            attrs["output_padding"] = [self.some(0, stride - 1)] * 2
        if (h - 1) * stride + k - 2 * attrs["pads"][0] < 1 or (w - 1) * stride + k - 2 * attrs["pads"][0] < 1:
            return None
        return self.node("ConvTranspose", [x, self.weight(c, self.some(1, 4), k, k)], **attrs)

    def pool(self, x):
        shape = self.shapes[x]
        op = self.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
        if op.startswith("Global"):
            return self.node(op, [x])
        k = [min(self.some(1, 3), s) for s in shape[2:]]
        attrs = dict(kernel_shape=k, strides=[self.some(1, 2) for _ in k],
                     pads=[self.some(0, v - 1) for v in k] * 2)
        if self.some(0, 3) == 0:
            attrs["ceil_mode"] = 1
            attrs["pads"] = [0] * (2 * len(k))  # runtimes differ about windows that begin in padding
        if op == "AveragePool":
            attrs["count_include_pad"] = self.some(0, 1)
        return self.node(op, [x], **attrs)

    def batch_norm(self, x):
        c = self.shapes[x][1]
        return self.node("BatchNormalization", [x, self.constant(self.rng.uniform(0.5, 1.5, c)),
                         self.constant(self.rng.standard_normal(c) * 0.2), self.constant(self.rng.standard_normal(c) * 0.2),
                         self.constant(self.rng.uniform(0.5, 1.5, c))])

    def activation(self, x):
        op = self.pick(*ACTIVATIONS)
        if op == "Clip":
            low, high = self.pick(0.0, -1.0), self.pick(6.0, 1.0)
            if self.opset < 11:
                return self.node("Clip", [x], min=low, max=high)
            return self.node("Clip", [x, self.constant(low), self.constant(high)])
        if op == "SiLU":
            return self.node("Mul", [x, self.node("Sigmoid", [x])])
        if op == "HardSwish" and self.opset < 14:
            return self.node("Mul", [x, self.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])
        if op == "PRelu":
            shape = self.shapes[x]
            slope = [shape[1] if i == 1 else 1 for i in range(len(shape))][1:] if len(shape) > 1 else [1]
            return self.node("PRelu", [x, self.constant(self.rng.uniform(0, 0.5, slope))])
        return self.node(op, [x])

    def unary(self, x):
        return self.node(self.pick(*UNARY), [x])

    def gelu(self, x):
        erf = self.node("Erf", [self.node("Div", [x, self.constant(1.4142135)])])
        half = self.node("Mul", [x, self.node("Add", [erf, self.constant(1.0)])])
        return self.node("Mul", [half, self.constant(0.5)])

    def tame(self, x):
        op = self.pick("Sqrt", "Log", "Reciprocal", "Exp")
        if op == "Exp":
            return self.node("Exp", [self.node("Tanh", [x])])
        return self.node(op, [self.node("Add", [self.node("Abs", [x]), self.constant(0.5)])])

    def binary(self, x):
        shape = self.shapes[x]
        op = self.pick("Add", "Sub", "Mul", "Div", "Max", "Min", "Add", "Mul")
        others = [n for n, s in self.shapes.items() if n != x and (s == shape or self.fits(s, shape))]
        if others and self.some(0, 2):
            y = self.pick(*others)
        else:
            dims = [d if self.some(0, 1) else 1 for d in shape][self.some(0, len(shape)):]
            y = self.constant(self.rng.uniform(0.5, 2.0, dims) * self.pick(1.0, -1.0))
        if op == "Div" and y in self.shapes:
            op = "Add"
        return self.node(op, [x, y] if self.some(0, 3) or op == "Div" else [y, x])

    @staticmethod
    def fits(a, b):
        try:
            return numpy.broadcast_shapes(a, b) == b
        except ValueError:
            return False

    def residual(self, x):
        n, c, h, w = self.shapes[x]
        y = self.node("Conv", [x, self.weight(c, c, 3, 3)], kernel_shape=[3, 3], pads=[1] * 4)
        y = self.node("Add", [x, y] if self.some(0, 1) else [y, x])
        return self.node("Relu", [y]) if self.some(0, 1) else y

    def squeeze_excite(self, x):
        n, c, h, w = self.shapes[x]
        s = self.node("GlobalAveragePool", [x])
        s = self.node("Relu", [self.node("Conv", [s, self.weight(2, c, 1, 1)], kernel_shape=[1, 1])])
        s = self.node(self.pick("Sigmoid", "HardSigmoid"), [self.node("Conv", [s, self.weight(c, 2, 1, 1)], kernel_shape=[1, 1])])
        return self.node("Mul", [x, s])

    def shuffle(self, x):
        n, c, h, w = self.shapes[x]
        groups = self.pick(*(g for g in (2, 3, 4, 1) if c % g == 0))
        y = self.node("Reshape", [x, self.ints([n, groups, c // groups, h, w])])
        y = self.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
        return self.node("Reshape", [y, self.ints([n, c, h, w])])

    def concat(self, x):
        shape = self.shapes[x]
        axis = 1 if self.kind == "cnn" else self.some(0, len(shape) - 1)
        mates = [n for n, s in self.shapes.items()
                 if len(s) == len(shape) and all(i == axis or s[i] == shape[i] for i in range(len(s)))]
        parts = [x] + [self.pick(*mates) for _ in range(self.some(1, 2))]
        return self.node("Concat", parts, axis=axis if self.some(0, 1) else axis - len(shape))

    def split(self, x):
        shape = self.shapes[x]
        axis = self.some(0, len(shape) - 1)
        if shape[axis] < 2:
            return None
        cut = self.some(1, shape[axis] - 1)
        sizes = [cut, shape[axis] - cut]
        if self.opset < 13:
            a, b = self.node("Split", [x], 2, axis=axis, split=sizes)
        else:
            a, b = self.node("Split", [x, self.ints(sizes)], 2, axis=axis)
        self.keep(a)
        return b

    def slice(self, x):
        shape = self.shapes[x]
        axis = self.some(0, len(shape) - 1)
        step = self.pick(1, 1, 2, -1)
        start, end = (self.some(0, shape[axis] - 1), 9999) if step > 0 else (-1, -9999)
        if self.opset < 10:
            return self.node("Slice", [x], starts=[max(start, 0)], ends=[9999], axes=[axis])
        return self.node("Slice", [x, self.ints([start]), self.ints([end]), self.ints([axis]), self.ints([step])])

    def transpose(self, x):
        return self.node("Transpose", [x], perm=[int(p) for p in self.rng.permutation(len(self.shapes[x]))])

    def reshape(self, x):
        shape = self.shapes[x]
        if len(shape) >= 2 and self.some(0, 1):
            return self.node("Flatten", [x], axis=self.some(0, len(shape)))
        total = int(numpy.prod(shape))
        first = self.pick(*[d for d in range(1, total + 1) if total % d == 0])
        return self.node("Reshape", [x, self.ints(self.pick([first, -1], [-1], [1, first, -1]))])

    def unsqueeze(self, x):
        if len(self.shapes[x]) > 4:
            return None
        axis = self.some(0, len(self.shapes[x]))
        return self.node("Unsqueeze", [x], axes=[axis]) if self.opset < 13 else self.node("Unsqueeze", [x, self.ints([axis])])

    def squeeze(self, x):
        ones = [i for i, d in enumerate(self.shapes[x]) if d == 1]
        if not ones:
            return None
        axis = self.pick(*ones)
        return self.node("Squeeze", [x], axes=[axis]) if self.opset < 13 else self.node("Squeeze", [x, self.ints([axis])])

    def reduce(self, x):
        shape = self.shapes[x]
        op = self.pick("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2", "ReduceL1", "ReduceLogSumExp")
        axes = sorted(int(a) for a in self.rng.permutation(len(shape))[:self.some(1, len(shape))])
        keep = self.some(0, 1)
        if (op == "ReduceSum" and self.opset >= 13) or self.opset >= 18:
            return self.node(op, [x, self.ints(axes)], keepdims=keep)
        return self.node(op, [x], axes=axes, keepdims=keep)

    def softmax(self, x):
        return self.node(self.pick("Softmax", "LogSoftmax"), [x], axis=self.some(-len(self.shapes[x]), len(self.shapes[x]) - 1))

    def layer_norm(self, x):
        d = self.shapes[x][-1]
        if d < 4:
            return None
        gamma, beta = self.constant(self.rng.uniform(0.5, 1.5, d)), self.constant(self.rng.standard_normal(d) * 0.1)
        if self.opset >= 17:
            return self.node("LayerNormalization", [x, gamma, beta])
        mean = self.node("ReduceMean", [x], axes=[-1], keepdims=1)
        centred = self.node("Sub", [x, mean])
        var = self.node("ReduceMean", [self.node("Mul", [centred, centred])], axes=[-1], keepdims=1)
        std = self.node("Sqrt", [self.node("Add", [var, self.constant(1e-5)])])
        return self.node("Add", [self.node("Mul", [self.node("Div", [centred, std]), gamma]), beta])

    def instance_norm(self, x):
        n, c, h, w = self.shapes[x]
        if h * w < 4:
            return None
        return self.node("InstanceNormalization", [x, self.constant(self.rng.uniform(0.5, 1.5, c)), self.constant(self.rng.standard_normal(c))])

    def matmul(self, x):
        k = self.shapes[x][-1]
        return self.node("MatMul", [x, self.weight(k, self.some(1, 12))]) if len(self.shapes[x]) > 1 else None

    def gemm(self, x):
        m, k = self.shapes[x]
        n = self.some(1, 12)
        flip = self.some(0, 1)
        w = self.weight(n, k) if flip else self.weight(k, n)
        bias = self.constant(self.rng.standard_normal(self.pick((n,), (1, n), (1,), (m, 1))))
        return self.node("Gemm", [x, w, bias], transB=flip, alpha=self.pick(1.0, 0.5), beta=self.pick(1.0, 2.0))

    def attention(self, x):
        shape = self.shapes[x]
        if len(shape) != 3:
            return None
        d = shape[-1]
        q, k, v = (self.node("MatMul", [x, self.weight(d, d)]) for _ in range(3))
        s = self.node("MatMul", [q, self.node("Transpose", [k], perm=[0, 2, 1])])
        s = self.node("Softmax", [self.node("Mul", [s, self.constant(1 / numpy.sqrt(d))])], axis=-1)
        return self.node("Add", [x, self.node("MatMul", [s, v])])

    def pad(self, x):
        shape = self.shapes[x]
        mode = self.pick("constant", "reflect", "edge")
        most = min(shape) - 1 if mode == "reflect" else 2
        pads = [self.some(0, max(0, min(2, most))) for _ in range(2 * len(shape))]
        if self.opset < 11:
            return self.node("Pad", [x], pads=pads, mode=mode, value=0.5)
        return self.node("Pad", [x, self.ints(pads)] + ([self.constant(0.5)] if mode == "constant" else []), mode=mode)

    def resize(self, x):
        mode = self.pick("nearest", "linear")
        attrs = dict(mode=mode, coordinate_transformation_mode=self.pick("asymmetric", "half_pixel", "align_corners"))
        if mode == "nearest":
            attrs["nearest_mode"] = "floor"
        down = self.pick(1.0, 2.0, 0.5)
        if down < 1 and attrs["coordinate_transformation_mode"] == "align_corners":
            down = 2.0  # ONNX Runtime's own reading of a length that is no whole number
        scales = self.constant([1.0, 1.0, down, self.pick(1.0, 2.0, 3.0)])
        if int(self.shapes[x][2]) < 2:
            return None
        if self.opset < 11:  # Upsample, then Resize with its inputs
            if self.opset < 10 and down < 1:
                return None
            times = [1.0, 1.0, down, self.pick(1.0, 2.0, 3.0)]
            if self.opset < 9:
                return self.node("Upsample", [x], mode=mode, scales=times)
            return self.node("Upsample" if self.opset == 9 else "Resize", [x, self.constant(times)], mode=mode)
        roi = "" if self.opset >= 13 else self.constant([])
        return self.node("Resize", [x, roi, scales], **attrs)

    def gather(self, x):
        shape = self.shapes[x]
        axis = self.some(0, len(shape) - 1)
        index = self.rng.integers(-shape[axis] if self.opset >= 11 else 0, shape[axis], self.pick((), (2,), (3,)))
        return self.node("Gather", [x, self.ints(index)], axis=axis)

    def depth_to_space(self, x):
        n, c, h, w = self.shapes[x]
        if c % 4 == 0 and self.opset < 11:
            return self.node("DepthToSpace", [x], blocksize=2)
        if c % 4 == 0:
            return self.node("DepthToSpace", [x], blocksize=2, mode=self.pick("DCR", "CRD"))
        return self.node("SpaceToDepth", [x], blocksize=2) if h % 2 == 0 and w % 2 == 0 else None

    def where(self, x):
        condition = self.node("Greater", [x, self.constant(0.1)])
        return self.node("Where", [condition, x, self.constant(self.pick(0.0, -2.0))])

    def expand(self, x):
        return self.node("Expand", [x, self.ints([self.some(1, 2)] + [1] * len(self.shapes[x]))]) if len(self.shapes[x]) < 5 else None

    def tile(self, x):
        return self.node("Tile", [x, self.ints([self.pick(1, 1, 2) for _ in self.shapes[x]])])

    def shape_arithmetic(self, x):
        """Exporters' way to flatten: the first dim from Shape, Gather, Unsqueeze, Concat."""
        first = self.node("Gather", [self.node("Shape", [x]), self.ints(0)], axis=0)
        first = self.node("Unsqueeze", [first], axes=[0]) if self.opset < 13 else self.node("Unsqueeze", [first, self.ints([0])])
        return self.node("Reshape", [x, self.node("Concat", [first, self.ints([-1])], axis=0)])

    def recurrent(self, x):
        steps, n, d = self.shapes[x]
        op, gates = self.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
        hidden, directions = self.some(1, 5), self.pick(1, 1, 2)
        inputs = [x, self.weight(directions, gates * hidden, d), self.weight(directions, gates * hidden, hidden)]
        if self.some(0, 1):
            inputs.append(self.constant(self.rng.standard_normal((directions, 2 * gates * hidden)) * 0.2))
        attrs = dict(hidden_size=hidden, direction="bidirectional" if directions == 2 else self.pick("forward", "reverse"))
        if op == "GRU":
            attrs["linear_before_reset"] = self.some(0, 1)
        return self.node(op, inputs, 1, **attrs)

    def branch(self, x):
        """If on a sum of the data."""
        total = self.node("ReduceSum", [x], keepdims=0)
        condition = self.node("Greater", [total, self.constant(0.0)])
        graphs = []
        for op in (self.pick("Relu", "Tanh"), self.pick("Neg", "Abs")):
            out = self.name("b")
            graphs.append(helper.make_graph([helper.make_node(op, [x], [out])], self.name("body"), [],
                          [helper.make_tensor_value_info(out, TensorProto.FLOAT, self.shapes[x])]))
        return self.node("If", [condition], then_branch=graphs[0], else_branch=graphs[1])

    # ---- all

    LAYERS = {4: ("conv", "conv", "conv", "conv_transpose", "pool", "pool", "batch_norm", "activation", "residual",
                  "squeeze_excite", "shuffle", "concat", "split", "instance_norm", "resize", "depth_to_space", "pad", "binary",
                  "reduce", "softmax"),
              3: ("conv1d", "pool", "matmul", "attention", "recurrent", "layer_norm", "transpose", "softmax", "reshape"),
              2: ("gemm", "gemm", "matmul", "softmax", "layer_norm", "activation")}
    ANY = ("unary", "unary", "binary", "binary", "gelu", "tame", "transpose", "reshape", "unsqueeze", "squeeze", "reduce", "slice",
           "gather", "where", "expand", "tile", "concat", "split", "pad", "layer_norm", "softmax", "shape_arithmetic", "branch")
    CNN = ("conv", "conv", "conv", "batch_norm", "activation", "activation", "residual", "squeeze_excite", "pool", "concat",
           "binary", "shuffle", "resize")

    def grow(self):
        x = self.take(4 if self.kind == "cnn" else None)
        rank = len(self.shapes[x])
        if self.kind == "cnn":
            layers = self.CNN
        else:
            layers = self.LAYERS.get(rank, ()) + self.ANY if rank > 0 else ("unary", "tame", "unsqueeze")
        state = len(self.nodes), len(self.constants)
        try:
            out = getattr(self, self.pick(*layers))(x)
            if out is not None and self.keep(out):
                return
        except (ValueError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
            pass
        del self.nodes[state[0]:], self.constants[state[1]:]
        known = {n for node in self.nodes for n in node.output} | {n for n, _ in self.inputs}
        self.shapes = {n: s for n, s in self.shapes.items() if n in known}

    def model(self, outputs, check=True):
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs]
        outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes.get(n)) for n in outputs]
        graph = helper.make_graph(self.nodes, "random", inputs, outs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        if check:
            onnx.checker.check_model(model, full_check=True)
        return model


F32, F64, F16, BOOL, TEXT = (getattr(TensorProto, n) for n in ("FLOAT", "DOUBLE", "FLOAT16", "BOOL", "STRING"))
I8, I16, I32, I64 = (getattr(TensorProto, "INT%d" % n) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (getattr(TensorProto, "UINT%d" % n) for n in (8, 16, 32, 64))
EIGHTS = tuple(getattr(TensorProto, "FLOAT8" + n) for n in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ"))
INTS = (I8, I16, I32, I64, U8, U16, U32, U64)
NUMBERS = (F32, F64) + INTS
WIDE = (F32, F64, I32, I64)  # what ONNX Runtime computes with
WORDS = ("", "a", "b", "ab", "zebra", "\u00e4")


class Typed(Builder):
    """Tensors of any type. `types` has the type and shape of those that may be used further."""

    def __init__(self, seed):
        super().__init__(seed, "typed")
        self.opset = self.pick(*OPSETS, 22, 23)
        self.types, self.functions = {}, []

    # ---- pieces

    def values(self, dtype, shape):
        if dtype == TEXT:
            return self.rng.choice(numpy.array(WORDS, object), shape)
        if dtype == BOOL:
            return self.rng.integers(0, 2, shape).astype(bool)
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        if dtype in INTS:
            return self.rng.integers(0 if dtype in (U8, U16, U32, U64) else -9, 10, shape).astype(kind)
        return numpy.round(self.rng.standard_normal(shape), 2).astype(kind)

    def constant_of(self, dtype, value):
        name = self.name("c")
        kind = object if dtype == TEXT else helper.tensor_dtype_to_np_dtype(dtype)
        self.constants.append(numpy_helper.from_array(numpy.asarray(value, kind), name))
        return name

    def typed_input(self, dtype, shape):
        name = self.name("x")
        self.inputs.append((name, shape))
        self.types[name] = (dtype, shape)
        return name

    def keep(self, name):
        inferred = shape_inference.infer_shapes(self.model([name], check=False), strict_mode=True, data_prop=True)
        for value in list(inferred.graph.output) + list(inferred.graph.value_info):
            kind = value.type.tensor_type
            if value.name == name and value.type.HasField("tensor_type") and kind.HasField("shape"):
                dims = [d.dim_value for d in kind.shape.dim]
                if all(d > 0 for d in dims) and numpy.prod(dims or [1]) < 4000:
                    self.types[name] = (kind.elem_type, tuple(dims))
                    onnx.checker.check_model(self.model([name], check=False))
                    return name
        return None

    def take_of(self, *dtypes, rank=None):
        names = [n for n, (t, s) in self.types.items() if (not dtypes or t in dtypes) and (rank is None or len(s) >= rank)]
        return names[-1 - min(int(self.rng.exponential(1.5)), len(names) - 1)] if names else None

    def value_info(self, name, dtype, shape):
        return helper.make_tensor_value_info(name, dtype, shape)

    def model(self, outputs, check=True):
        inputs = [self.value_info(n, *self.types[n]) for n, _ in self.inputs]
        outs = [self.value_info(n, *self.types[n]) if n in self.types else onnx.ValueInfoProto(name=n) for n in outputs]
        graph = helper.make_graph(self.nodes, "random", inputs, outs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid("local", 1)] * bool(self.functions)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=self.functions)
        if check:
            onnx.checker.check_model(model, full_check=True)
        return model

    # ---- layers

    def mate(self, x, dtype=None):
        """A second operand of x's type that x broadcasts with."""
        own, shape = self.types[x]
        names = [n for n, (t, s) in self.types.items() if t == (dtype or own) and n != x and self.fits(s, shape)]
        if names and self.some(0, 2):
            return self.pick(*names)
        dims = [d if self.some(0, 1) else 1 for d in shape][self.some(0, len(shape)):]
        return self.constant_of(dtype or own, self.values(dtype or own, dims))

    def arithmetic(self):
        x = self.take_of(*WIDE)
        return x and self.node(self.pick("Add", "Sub", "Mul", "Max", "Min"), [x, self.mate(x)])

    def divide(self):
        x = self.take_of(*WIDE)
        if not x:
            return None
        y = self.constant_of(self.types[x][0], self.pick(2, 3, -4, 7))
        if self.some(0, 1) and self.opset >= 13:
            return self.node("Mod", [x, y], fmod=1 if self.types[x][0] in (F32, F64) else self.some(0, 1))
        return self.node("Div", [x, y])

    def power(self):
        x = self.take_of(*WIDE)
        return x and self.node("Pow", [x, self.constant_of(self.pick(I32, I64, F32), self.pick(1, 2))]) if self.opset >= 12 else None

    def signs(self):
        x = self.take_of(*NUMBERS)
        return x and self.node(self.pick("Abs", "Sign"), [x])

    def negative(self):
        x = self.take_of(F32, F64, I8, I32, I64)
        return x and self.node("Neg", [x])

    def compare(self):
        x = self.take_of(*WIDE)
        op = self.pick("Equal", "Greater", "Less", *(("GreaterOrEqual", "LessOrEqual") if self.opset >= 12 else ()))
        return x and self.node(op, [x, self.mate(x)])

    def logic(self):
        x = self.take_of(BOOL)
        if x and self.some(0, 2) == 0:
            return self.node("Not", [x])
        return x and self.node(self.pick("And", "Or", "Xor", "Equal"), [x, self.mate(x)])

    def bits(self):
        x = self.take_of(*INTS)
        if not x or self.opset < 18:
            x = self.take_of(U8, U32, U64)
            return x and self.node("BitShift", [x, self.constant_of(self.types[x][0], self.some(0, 3))], direction=self.pick("LEFT", "RIGHT"))
        if self.some(0, 3) == 0:
            return self.node("BitwiseNot", [x])
        return self.node(self.pick("BitwiseAnd", "BitwiseOr", "BitwiseXor"), [x, self.mate(x)])

    def select(self):
        x = self.take_of(F32, F64, I32, I64, U8, TEXT)
        return x and self.node("Where", [self.mate(x, BOOL), x, self.mate(x)])

    def cast(self):
        """Floats to integers only where they fit: else each runtime has an answer of its own."""
        x = self.take_of(*NUMBERS, BOOL, F16)
        if not x:
            return None
        own = self.types[x][0]
        if own == F32 and self.some(0, 3) == 0:  # there and back: the type is for storage
            return self.node("Cast", [self.node("Cast", [x], to=TensorProto.BFLOAT16)], to=F32)
        if own == F32 and self.opset >= 19 and self.some(0, 2) == 0:
            return self.node("Cast", [self.node("Cast", [x], to=self.pick(*EIGHTS), saturate=self.some(0, 1))], to=F32)
        to = self.pick(*(t for t in NUMBERS + (BOOL, F16) if t != own and not (own == F16 and t in INTS)))
        if own in (F32, F64) and to in INTS:
            if self.opset < 12:
                return None
            x = self.node("Clip", [x, self.constant_of(own, 0), self.constant_of(own, 100)])
        return self.node("Cast", [x], to=to)

    def clip(self):
        x = self.take_of(F32, F64, I8, U8, I32, I64)
        return x and self.opset >= 12 and self.node("Clip", [x] + [self.constant_of(self.types[x][0], v) for v in (1, 5)]) or None

    def half(self):
        x = self.take_of(F16)
        return x and self.node(self.pick("Add", "Mul", "Sub"), [x, self.mate(x)])

    def floats(self):
        x = self.take_of(F32, F64)
        return x and self.node(self.pick("Relu", "Sigmoid", "Tanh", "Abs"), [x])

    def reduce_typed(self):
        x = self.take_of(F32, F64, I32, I64, rank=1)
        if not x:
            return None
        axis = self.some(0, len(self.types[x][1]) - 1)
        op = self.pick("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd" if self.types[x][1][axis] < 4 else "ReduceSum", "ReduceMean")
        if (op == "ReduceSum" and self.opset >= 13) or self.opset >= 18:
            return self.node(op, [x, self.ints([axis])], keepdims=self.some(0, 1))
        return self.node(op, [x], axes=[axis], keepdims=self.some(0, 1))

    def best(self):
        x = self.take_of(F32, F64, I32, rank=1)
        if not x:
            return None
        axis = self.some(0, len(self.types[x][1]) - 1)
        if self.some(0, 1):
            return self.node(self.pick("ArgMax", "ArgMin"), [x], axis=axis, keepdims=self.some(0, 1),
                             **({"select_last_index": self.some(0, 1)} if self.opset >= 12 else {}))
        if self.types[x][0] == I32:
            return None
        values, places = self.node("TopK", [x, self.ints([self.some(1, self.types[x][1][axis])])], 2, axis=axis, largest=self.some(0, 1))
        return values  # of equal ones any may come first

    def sums(self):
        x = self.take_of(*WIDE, rank=1)
        return x and self.node("CumSum", [x, self.constant_of(I64, self.some(0, len(self.types[x][1]) - 1))],
                               exclusive=self.some(0, 1), reverse=self.some(0, 1))

    def product(self):
        x = self.take_of(F32, F64, I32, I64, U32, U64, rank=2)
        if not x:
            return None
        dtype, shape = self.types[x]
        return self.node("MatMul", [x, self.constant_of(dtype, self.values(dtype, (shape[-1], self.some(1, 5))))])

    def integer_product(self):
        x = self.take_of(U8, I8, rank=2)
        if not x:
            return None
        dtype, shape = self.types[x]
        zero = [self.constant_of(dtype, 3)] if self.some(0, 1) else []
        return self.node("MatMulInteger", [x, self.constant_of(U8, self.values(U8, (shape[-1], 3)))] + zero)

    def quantize(self):
        x = self.take_of(F32)
        if not x:
            return None
        shape, to = self.types[x][1], self.pick(U8, I8)
        axis = self.some(0, len(shape) - 1) if shape and self.opset >= 13 and self.some(0, 1) else None
        dims = () if axis is None else (shape[axis],)
        scale = self.constant(self.rng.uniform(0.05, 0.5, dims))
        if self.opset >= 19 and self.some(0, 3) == 0:
            to = self.pick(*EIGHTS)
        zeros = (lambda d: self.constant_of(to, numpy.zeros(d))) if to in EIGHTS else (
            lambda d: self.constant_of(to, self.rng.integers(0, 6, d)))
        zero = zeros(dims)
        attrs = {} if axis is None else {"axis": axis}
        if shape and self.opset >= 21 and self.some(0, 1):  # blocks along an axis
            axis = self.some(0, len(shape) - 1)
            block = self.pick(*(b for b in range(1, shape[axis] + 1) if shape[axis] % b == 0))
            dims = tuple(d // block if i == axis else d for i, d in enumerate(shape))
            scale, zero = self.constant(self.rng.uniform(0.05, 0.5, dims)), zeros(dims)
            attrs = {"axis": axis, "block_size": block}
        q = self.node("QuantizeLinear", [x, scale, zero], **attrs)
        return self.node("DequantizeLinear", [q, scale, zero], **attrs) if to in EIGHTS or self.some(0, 1) else q

    def dequantize(self):
        x = self.take_of(U8, I8, I32)
        if not x:
            return None
        dtype = self.types[x][0]
        zero = [] if dtype == I32 or self.some(0, 1) else [self.constant_of(dtype, 2)]
        return self.node("DequantizeLinear", [x, self.constant(0.25)] + zero)

    def dynamic(self):
        x = self.take_of(F32)
        if not x:
            return None
        y, scale, zero = self.node("DynamicQuantizeLinear", [x], 3)
        self.keep(scale)
        return y

    def move(self):
        x = self.take_of(rank=1)
        if not x:
            return None
        dtype, shape = self.types[x]
        axis = self.some(0, len(shape) - 1)
        what = self.some(0, 8)
        if what == 0:
            return self.node("Transpose", [x], perm=[int(p) for p in self.rng.permutation(len(shape))])
        if what == 1:
            return self.node("Reshape", [x, self.ints(self.pick([-1], [1, -1], [0, -1]))])
        if what == 2:
            parts = [n for n, (t, s) in self.types.items() if t == dtype and len(s) == len(shape) and
                     all(i == axis or s[i] == shape[i] for i in range(len(s)))]
            return self.node("Concat", [x] + [self.pick(*parts) for _ in range(self.some(1, 2))], axis=axis - len(shape) * self.some(0, 1))
        if what == 3:
            step = self.pick(1, 2, -1)
            start, end = (self.some(0, shape[axis] - 1), 9999) if step > 0 else (-1, -9999)
            return self.node("Slice", [x, self.ints([start]), self.ints([end]), self.ints([axis]), self.ints([step])])
        if what == 4:
            index = self.rng.integers(-shape[axis], shape[axis], self.pick((), (2,), (1, 3)))
            return self.node("Gather", [x, self.constant_of(self.pick(I32, I64), index)], axis=axis)
        if what == 5:
            return self.node("Tile", [x, self.ints([self.pick(1, 1, 2) for _ in shape])]) if dtype != F16 else None
        if what == 6 and len(shape) < 5:
            return self.node("Unsqueeze", [x], axes=[axis]) if self.opset < 13 else self.node("Unsqueeze", [x, self.ints([axis])])
        if what == 7:
            index = self.rng.integers(0, shape[axis], shape)
            return self.node("GatherElements", [x, self.ints(index)], axis=axis)
        return self.node("Expand", [x, self.ints([2] + [1] * len(shape))]) if len(shape) < 5 else None

    def scatter(self):
        x = self.take_of(F32, F64, I32, I64, U8, BOOL, rank=1)
        if not x:
            return None
        dtype, shape = self.types[x]
        axis = self.some(0, len(shape) - 1)
        dims = list(shape)
        dims[axis] = 1
        index = self.rng.integers(-shape[axis], shape[axis], dims)
        if self.some(0, 1) == 0:
            return self.node("ScatterElements", [x, self.ints(index), self.constant_of(dtype, self.values(dtype, dims))], axis=axis)
        rows = self.rng.permutation(shape[0])[:self.some(1, shape[0])].reshape(-1, 1)
        return self.node("ScatterND", [x, self.ints(rows), self.constant_of(dtype, self.values(dtype, (len(rows),) + shape[1:]))])

    def text(self):
        x = self.take_of(TEXT)
        if not x or self.opset < 20:
            return x and self.opset >= 19 and self.node("Equal", [x, self.mate(x)]) or None
        return self.node(*self.pick(("StringConcat", [x, self.mate(x)]), ("Equal", [x, self.mate(x)])))

    def sequence(self):
        x = self.take_of(F32, I32, I64, rank=1)
        if not x:
            return None
        items = self.node("SequenceConstruct", [x, x])
        if self.some(0, 1):
            items = self.node("SequenceInsert", [items, x] + [self.constant_of(I64, self.pick(0, 1, -1))] * self.some(0, 1))
        if self.opset >= 17 and self.some(0, 1):
            items = self.map(x, items)
        if self.some(0, 1):
            return self.node("ConcatFromSequence", [items], axis=0, new_axis=self.some(0, 1))
        return self.node("SequenceAt", [items, self.constant_of(I64, self.pick(0, -1))])

    def map(self, x, items):
        """SequenceMap with a tensor beside the sequence."""
        dtype, shape = self.types[x]
        item, other, out = (self.name("q") for _ in range(3))
        y = self.constant_of(dtype, self.values(dtype, shape[-1:]))
        body = helper.make_graph([helper.make_node(self.pick("Add", "Sub", "Mul"), [item, other], [out])], self.name("body"),
                                 [self.value_info(item, dtype, shape), self.value_info(other, dtype, shape[-1:])],
                                 [self.value_info(out, dtype, shape)])
        return self.node("SequenceMap", [items, y], body=body)

    def optional(self):
        x = self.take_of(*WIDE, BOOL)
        if not x or self.opset < 15:
            return None
        y = self.node("Optional", [x])
        return self.node(self.pick("OptionalHasElement", "OptionalGetElement", "OptionalGetElement"), [y])

    def loop(self):
        """State and scan output, with a value from outside; ends by the count or by the condition."""
        x = self.take_of(F32, I32, I64)
        if not x:
            return None
        dtype, shape = self.types[x]
        i, go, state, new, again, out, limit = (self.name("l") for _ in range(7))
        step = self.constant_of(dtype, 1)
        most = self.constant_of(I64, self.some(1, 4))
        body = helper.make_graph(
            [helper.make_node("Add", [state, step], [new]), helper.make_node("Less", [i, most], [again]),
             helper.make_node("Mul", [new, x], [out])], self.name("body"),
            [self.value_info(i, I64, ()), self.value_info(go, BOOL, ()), self.value_info(state, dtype, shape)],
            [self.value_info(again, BOOL, ()), self.value_info(new, dtype, shape), self.value_info(out, dtype, shape)])
        trips = self.constant_of(I64, self.some(0, 5))
        last, rows = self.node("Loop", [trips, self.constant_of(BOOL, True), x], 2, body=body)
        if self.some(0, 1):  # how many there are is known only after running
            return self.node("ReduceSum", [rows, self.ints([0])] if self.opset >= 13 else [rows], keepdims=0,
                             **({} if self.opset >= 13 else {"axes": [0]}))
        return last

    def scan(self):
        x = self.take_of(F32, F64, I64, rank=2)
        if not x:
            return None
        dtype, shape = self.types[x]
        axis = self.some(0, 1)
        item = shape[:axis] + shape[axis + 1:]
        state, row, new, out = (self.name("s") for _ in range(4))
        body = helper.make_graph([helper.make_node(self.pick("Add", "Sub"), [state, row], [new]),
                                  helper.make_node("Neg", [new], [out])], self.name("body"),
                                 [self.value_info(state, dtype, item), self.value_info(row, dtype, item)],
                                 [self.value_info(new, dtype, item), self.value_info(out, dtype, item)])
        last, rows = self.node("Scan", [self.constant_of(dtype, self.values(dtype, item)), x], 2, body=body, num_scan_inputs=1,
                               scan_input_axes=[axis], scan_input_directions=[self.some(0, 1)],
                               scan_output_directions=[self.some(0, 1)], scan_output_axes=[self.some(0, len(item))])
        self.keep(last)
        return rows

    def function(self):
        x = self.take_of(*WIDE)
        if not x:
            return None
        name = self.name("Fn")
        op = self.pick("Add", "Mul")
        self.functions.append(helper.make_function("local", name, ["p"], ["q"], [
            helper.make_node(op, ["p", "p"], ["r"]), helper.make_node("Abs", ["r"], ["q"])], [helper.make_opsetid("", self.opset)]))
        out = self.name()
        self.nodes.append(helper.make_node(name, [x], [out], domain="local", name=self.name(name)))
        return out

    LAYERS_TYPED = ("arithmetic", "arithmetic", "divide", "power", "signs", "negative", "compare", "logic", "bits", "select", "cast",
                    "cast", "clip", "half", "floats", "reduce_typed", "best", "sums", "product", "integer_product", "quantize",
                    "dequantize", "dynamic", "move", "move", "move", "move", "scatter", "text", "sequence", "sequence", "optional", "loop", "scan", "function")

    def grow(self):
        state = len(self.nodes), len(self.constants), len(self.functions), dict(self.types)
        try:
            out = getattr(self, self.pick(*self.LAYERS_TYPED))()
            if out and self.keep(out):
                return
        except (ValueError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
            pass
        del self.nodes[state[0]:], self.constants[state[1]:], self.functions[state[2]:]
        self.types = state[3]


def typed(seed):
    b = Typed(seed)
    dtypes = (F32, b.pick(*NUMBERS), b.pick(*INTS), b.pick(BOOL, F16, F64, TEXT))
    for dtype in dtypes[:b.some(2, 4)]:
        shape = b.pick((b.some(1, 3), b.some(1, 4), b.some(1, 5)), (b.some(1, 4), b.some(1, 6)), (b.some(1, 8),), ())
        if dtype == TEXT:
            name = b.constant_of(dtype, b.values(dtype, shape))
            b.types[name] = (dtype, shape)
        else:
            b.typed_input(dtype, shape)
    for _ in range(b.some(5, 16)):
        b.grow()
    used = {n for node in b.nodes for n in node.input}
    made = {n for node in b.nodes for n in node.output}
    ends = [n for n, (t, _) in b.types.items() if n in made and n not in used and t != TEXT]
    if not ends:
        x = b.inputs[0][0]
        ends = [b.node("Identity", [x])]
        b.types[ends[0]] = b.types[x]
    try:
        model = b.model(ends)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):  # a type that this opset lacks
        return typed(seed + 1000003)
    return model, {n: numpy.asarray(b.values(*b.types[n]), helper.tensor_dtype_to_np_dtype(b.types[n][0])) for n, _ in b.inputs}


def graph(seed, kind="any"):
    if kind == "typed":
        return typed(seed)
    b = Builder(seed, kind)
    if kind == "cnn":
        b.input((b.some(1, 2), b.pick(1, 3, 4), b.some(6, 14), b.some(6, 14)))
    else:
        for _ in range(b.pick(1, 1, 2)):
            b.input(b.pick((b.some(1, 2), b.some(1, 8), b.some(3, 11), b.some(3, 11)), (b.some(1, 4), b.some(2, 3), b.some(2, 9)),
                           (b.some(1, 4), b.some(1, 16)), (b.some(2, 20),)))
    for _ in range(b.some(3, 14)):
        b.grow()
    used = {n for node in b.nodes for n in node.input}
    ends = [n for n in b.shapes if n not in used and n not in dict(b.inputs)]
    if not ends:
        ends = [b.node("Identity", [b.take()])]
        b.keep(ends[0])
    if kind == "cnn":  # a head, as classifiers have
        x = b.node("Flatten", [b.node("GlobalAveragePool", [ends[-1]])])
        b.keep(x)
        ends = [b.node("Gemm", [x, b.weight(5, b.shapes[x][1]), b.constant(b.rng.standard_normal(5))], transB=1)]
        b.keep(ends[0])
    model = b.model(ends)
    feeds = {n: b.rng.standard_normal(s).astype(numpy.float32) for n, s in b.inputs}
    return model, feeds
