"""check_qlinear.py: integer operators with random shapes, attributes and types.

Every case is a one-node model in the layout of the ONNX backend data, whose outputs are computed
here with numpy by the definition: integers exactly, then float32 one operation after the other.
build/test_conformance runs them all and wants the same bits (SBIT_CONFORMANCE names another
program); ONNX Runtime, which has arithmetic of its own for some, may be one step away.
SBIT_CASES cases of each kind (default 12), SBIT_SEED chooses others.
"""
import os
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

import _common as c

CASES = int(os.environ.get("SBIT_CASES", "12"))
rng = np.random.RandomState(int(os.environ.get("SBIT_SEED", "1")))
f32 = np.float32


def pick(*values):
    return values[rng.randint(len(values))]


def dtype():
    return pick(np.uint8, np.int8)


def ints(kind, *shape):
    info = np.iinfo(kind)
    return rng.randint(info.min, info.max + 1, shape).astype(kind)


def scale(*shape):
    return np.asarray(rng.uniform(0.005, 0.05, shape), f32)


def zero(kind, *shape):
    return np.asarray(ints(kind, *shape) // 4 + (96 if kind == np.uint8 else 0), kind)


def dq(q, s, z):
    return (q.astype(np.int32) - np.int32(z)).astype(f32) * f32(s)


def sat(x, z, kind):
    info = np.iinfo(kind)
    return np.clip(np.rint(x).astype(np.float64) + float(z), info.min, info.max).astype(kind)


def q(x, s, z):
    return sat((x / f32(s)).astype(f32), z, z.dtype)


def conv_sum(x, w, zx, zw, stride, pad, dilation, group):
    """int64 sums of a 2-D convolution; zw is per output channel."""
    x = np.pad(x.astype(np.int64) - int(zx), ((0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])))
    w = w.astype(np.int64) - zw.astype(np.int64).reshape(-1, 1, 1, 1)
    kh, kw = w.shape[2:]
    oh = (x.shape[2] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (x.shape[3] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    y = np.zeros((x.shape[0], w.shape[0], oh, ow), np.int64)
    og, ig = w.shape[0] // group, w.shape[1]
    for g in range(group):
        for i in range(kh):
            for j in range(kw):
                part = x[:, g * ig:(g + 1) * ig, i * dilation[0]:, j * dilation[1]:]
                part = part[:, :, :(oh - 1) * stride[0] + 1:stride[0],
                            :(ow - 1) * stride[1] + 1:stride[1]]
                y[:, g * og:(g + 1) * og] += np.einsum("nchw,oc->nohw", part,
                                                       w[g * og:(g + 1) * og, :, i, j])
    return y


def requantize(acc, sx, sw, sy, zy):
    m = (f32(sx) * sw.astype(f32)).astype(f32) / f32(sy)
    return sat((acc.astype(np.int32).astype(f32) * m.astype(f32)).astype(f32), zy, zy.dtype)


class Case:
    def __init__(self, op, inputs, output, domain="", constant=(), steps=0, **attributes):
        self.op, self.inputs, self.output, self.domain = op, inputs, output, domain
        self.constant, self.steps, self.attributes = set(constant), steps, attributes

    def model(self):
        names = ["" if a is None else "i%d" % k for k, a in enumerate(self.inputs)]
        node = helper.make_node(self.op, names, ["o"], name="n", domain=self.domain,
                                **self.attributes)
        values, weights = [], []
        for k, array in enumerate(self.inputs):
            if array is not None and k in self.constant:
                weights.append(numpy_helper.from_array(array, names[k]))
            elif array is not None:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                dims = [pick(d, "d%d_%d" % (k, i)) for i, d in enumerate(array.shape)]
                values.append(helper.make_tensor_value_info(names[k], kind, dims))
        out = helper.make_tensor_value_info(
            "o", helper.np_dtype_to_tensor_dtype(self.output.dtype), None)
        graph = helper.make_graph([node], "g", values, [out], weights)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)

    def write(self, folder):
        data = os.path.join(folder, "test_data_set_0")
        os.makedirs(data)
        model = self.model()
        onnx.save(model, os.path.join(folder, "model.onnx"))
        feeds = {}
        for k, value in enumerate(model.graph.input):
            array = self.inputs[int(value.name[1:])]
            feeds[value.name] = array
            with open(os.path.join(data, "input_%d.pb" % k), "wb") as file:
                file.write(numpy_helper.from_array(array, value.name).SerializeToString())
        with open(os.path.join(data, "output_0.pb"), "wb") as file:
            file.write(numpy_helper.from_array(self.output, "o").SerializeToString())
        try:
            got = c.ort_session(os.path.join(folder, "model.onnx"), False).run(None, feeds)[0]
        except Exception as why:  # types and attributes that it has no kernel for
            return str(why).splitlines()[0]
        off = np.abs(got.astype(np.float64) - self.output.astype(np.float64)).max(initial=0)
        assert off <= (self.steps if self.output.dtype != f32 else 1e-4), (self.op, off)
        return None


def conv(integer):
    kind, kw = dtype(), pick(np.int8, np.uint8)
    group = pick(1, 1, 2, 4, 40)
    cin = group * pick(1, 3, 4) if group < 40 else 40
    cout = group * pick(1, 2, 5) if group < 40 else 40
    k, stride, dilation = [pick(1, 2, 3) for _ in "hw"], [pick(1, 1, 2) for _ in "hw"], \
        [pick(1, 1, 2) for _ in "hw"]
    pad = [rng.randint(0, 2) for _ in range(4)]
    x = ints(kind, pick(1, 2), cin, rng.randint(5, 12), rng.randint(5, 12))
    w = ints(kw, cout, cin // group, *k)
    sx, sw, sy = scale(), scale(*pick((), (cout,))), np.asarray(scale() * f32(60))
    zx, zy = zero(kind), zero(kind)
    zw = pick(np.zeros((), kw), zero(kw), zero(kw, cout), np.asarray(128 if kw == np.uint8 else 0, kw))
    attributes = {"group": group, "strides": stride, "dilations": dilation, "pads": pad}
    acc = conv_sum(x, w, zx, np.broadcast_to(zw, (cout,)), stride, pad, dilation, group)
    if integer:
        return Case("ConvInteger", [x, w, zx, zw], acc.astype(np.int32), "", pick((1, 3), ()),
                    **attributes)
    bias = pick(None, rng.randint(-5000, 5000, cout).astype(np.int32))
    acc = acc + (bias.reshape(-1, 1, 1) if bias is not None else 0)
    y = requantize(acc, sx, np.broadcast_to(sw, (cout,)).reshape(-1, 1, 1), sy, zy)
    constant = pick((1, 2, 3, 4, 5, 6, 7, 8), ())
    return Case("QLinearConv", [x, sx, zx, w, sw, zw, sy, zy, bias], y, "", constant, 1,
                **attributes)


def conv_q():
    return conv(False)


def conv_integer():
    return conv(True)


def matrices():
    kind, kw = dtype(), dtype()
    m, k, n = rng.randint(1, 20), rng.randint(1, 40), rng.randint(1, 80)
    left, right = pick(((), ()), ((2,), ()), ((2, 3), (3,)), ((), (2,)), ((2, 1), (2, 3)))
    return kind, kw, ints(kind, *left, m, k), ints(kw, *right, k, n), m, n


def matmul_q():
    kind, kw, a, b, m, n = matrices()
    kw = kind if pick(True, False) else kw
    b = b.view(kw)
    sa, sb, sy = scale(), scale(*pick((), (n,))), np.asarray(scale() * f32(60))
    za, zb, zy = zero(kind), zero(kw, *sb.shape), zero(kind)
    acc = np.matmul(a.astype(np.int64) - int(za), b.astype(np.int64) - zb.astype(np.int64))
    return Case("QLinearMatMul", [a, sa, za, b, sb, zb, sy, zy], requantize(acc, sa, sb, sy, zy),
                "", pick((1, 2, 3, 4, 5, 6, 7), ()), 1)


def matmul_integer():
    kind, kw, a, b, m, n = matrices()
    za, zb = zero(kind, *pick((), (m,))), zero(kw, *pick((), (n,)))
    acc = np.matmul(a.astype(np.int64) - za.astype(np.int64).reshape(-1, 1),
                    b.astype(np.int64) - zb.astype(np.int64))
    return Case("MatMulInteger", [a, b, za, zb], acc.astype(np.int32), "", pick((1, 3), ()))


def gemm_q():
    kind, kw = dtype(), dtype()
    m, k, n = rng.randint(1, 20), rng.randint(1, 40), rng.randint(1, 80)
    ta, tb, alpha = pick(0, 1), pick(0, 1), pick(1.0, 0.5)
    a, b = ints(kind, m, k), ints(kw, k, n)
    sa, sb, sy = scale(), scale(*pick((), (n,))), np.asarray(scale() * f32(60))
    za, zb, zy = zero(kind), zero(kw, *sb.shape), zero(kind)
    bias = pick(None, rng.randint(-5000, 5000, n).astype(np.int32),
                rng.randint(-5000, 5000, (1, n)).astype(np.int32))
    acc = np.matmul(a.astype(np.int64) - int(za), b.astype(np.int64) - zb.astype(np.int64))
    acc = (acc + (bias if bias is not None else 0)).astype(np.int32)
    product = (f32(alpha) * sa) * sb if alpha != 1 else sa * sb
    if pick(True, False):
        y = sat((acc.astype(f32) * (product / sy).astype(f32)).astype(f32), zy, kind)
    else:
        y, sy, zy = acc.astype(f32) * product.astype(f32), None, None
    a, b = np.ascontiguousarray(a.T if ta else a), np.ascontiguousarray(b.T if tb else b)
    return Case("QGemm", [a, sa, za, b, sb, zb, bias, sy, zy], y, "com.microsoft",
                pick((1, 2, 3, 4, 5, 6, 7, 8), ()), 1, transA=ta, transB=tb, alpha=alpha)


def binary():
    op, kind = pick("Add", "Mul"), dtype()
    a, b = pick(((3, 5, 70), (3, 5, 70)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1)), ((6,), ()))
    a, b = ints(kind, *a), ints(kind, *b)
    sa, sb, sy, za, zb, zy = scale(), scale(), scale(), zero(kind), zero(kind), zero(kind)
    u, v = dq(a, sa, za), dq(b, sb, zb)
    y = q(u + v if op == "Add" else u * v, sy, zy)
    return Case("QLinear" + op, [a, sa, za, b, sb, zb, sy, zy], y, "com.microsoft",
                (1, 2, 4, 5, 6, 7), 1)


def concat():
    kind, axis = dtype(), pick(0, 1, 2, -1)
    sy, zy, inputs, parts = scale(), zero(kind), [], []
    for i in range(rng.randint(1, 4)):
        shape = [2, 3, 4]
        shape[axis] = rng.randint(1, 5)
        x, s, z = ints(kind, *shape), scale(), zero(kind)
        if i == 0:
            s, z = sy, zy
        inputs += [x, s, z]
        parts.append(dq(x, s, z))
    constant = [k for k in range(2 + len(inputs)) if k < 2 or k % 3 != 2]
    return Case("QLinearConcat", [sy, zy] + inputs, q(np.concatenate(parts, axis), sy, zy),
                "com.microsoft", constant, 1, axis=axis)


def unary():
    op, kind = pick("LeakyRelu", "Sigmoid"), dtype()
    x, sx, zx = ints(kind, 3, 300), scale(), zero(kind)
    sy, zy = (scale(), zero(kind)) if op == "LeakyRelu" else \
        (f32(1 / 256), np.asarray(0 if kind == np.uint8 else -128, kind))
    sy = np.asarray(sy)
    v = dq(x, sx, zx)
    if op == "LeakyRelu":
        y = np.where(v < 0, f32(0.1) * v, v)
    else:
        y = (1 / (1 + np.exp(-v.astype(np.float64)))).astype(f32)
    attributes = {"alpha": 0.1} if op == "LeakyRelu" else {}
    return Case("QLinear" + op, [x, sx, zx, sy, zy], q(y, sy, zy), "com.microsoft", (1, 2, 3, 4),
                1, **attributes)


def softmax():
    kind = dtype()
    x, sx, zx = ints(kind, 2, rng.randint(1, 40), 3), scale(), zero(kind)
    sy, zy = np.asarray(1 / 256, f32), np.asarray(0 if kind == np.uint8 else -128, kind)
    axis = pick(1, 2)
    v = dq(x, sx, zx).astype(np.float64)
    e = np.exp(v - v.max(axis, keepdims=True))
    y = e / e.sum(axis, keepdims=True) / float(sy)
    if np.abs(np.abs(y - np.floor(y)) - 0.5).min() < 1e-4:
        return softmax()
    return Case("QLinearSoftmax", [x, sx, zx, sy, zy], sat(y, zy, kind), "com.microsoft",
                (1, 2, 3, 4), 1, axis=axis, opset=13)


def pool(is_global):
    kind, last = dtype(), pick(0, 1)
    n, ch, h, w = pick(1, 2), pick(1, 3, 70), rng.randint(4, 9), rng.randint(4, 9)
    x, sx, zx, sy, zy = ints(kind, n, ch, h, w), scale(), zero(kind), scale(), zero(kind)
    v = dq(x, sx, zx)
    if is_global:
        k, s, pads, include = [h, w], [1, 1], [0] * 4, 0
    else:
        k, s = [pick(2, 3), pick(2, 3)], [pick(1, 2), pick(1, 2)]
        pads, include = [rng.randint(0, 2) for _ in range(4)], pick(0, 1)
    oh, ow = (h + pads[0] + pads[2] - k[0]) // s[0] + 1, (w + pads[1] + pads[3] - k[1]) // s[1] + 1
    y = np.zeros((n, ch, oh, ow), f32)
    for i in range(oh):
        for j in range(ow):
            total, count = np.zeros((n, ch), f32), 0
            for a in range(k[0]):
                for b in range(k[1]):
                    p, r = i * s[0] - pads[0] + a, j * s[1] - pads[1] + b
                    if 0 <= p < h and 0 <= r < w:
                        total = total + v[:, :, p, r]
                        count += 1
            y[:, :, i, j] = total / f32(k[0] * k[1] if include else count)
    y = q(y, sy, zy)
    if last:
        x, y = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.ascontiguousarray(
            y.transpose(0, 2, 3, 1))
    attributes = {} if is_global else {"kernel_shape": k, "strides": s, "pads": pads,
                                       "count_include_pad": include}
    return Case("QLinearGlobalAveragePool" if is_global else "QLinearAveragePool",
                [x, sx, zx, sy, zy], y, "com.microsoft", (1, 2, 3, 4), 1, channels_last=last,
                **attributes)


def pool_average():
    return pool(False)


def pool_global():
    return pool(True)


def main():
    root = os.path.join(c.TMP, "ops")
    program = os.environ.get("SBIT_CONFORMANCE")
    if not program:
        tests = os.path.join(c.ROOT, "tests")
        subprocess.run(["make", "-s", "-C", tests, "build/test_conformance"], check=True)
        program = os.path.join(tests, "build", "test_conformance")
    made = {}
    for kind in (conv_q, conv_integer, matmul_q, matmul_integer, gemm_q, binary, concat, unary,
                 softmax, pool_average, pool_global):
        refused = 0
        for i in range(CASES):
            case, name = kind(), "test_%s_%d" % (kind.__name__, i)
            why = case.write(os.path.join(root, "node", name))
            refused += why is not None
            made[name] = (case.op, case.attributes, [a is not None and (str(a.dtype), a.shape)
                                                     for a in case.inputs])
        print("%s: ONNX Runtime ran %d of %d" % (kind.__name__, CASES - refused, CASES), why or "")
    for isa in ("", "scalar", "avx2"):
        env = dict(os.environ, SPARSEBIT_BACKEND=root)
        if isa:
            env["SPARSEBIT_FORCE_ISA"] = isa
        done = subprocess.run([program, "test_"], env=env, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        for line in lines:
            if not line.startswith("pass "):
                print(line)
                print(*["    %s" % (made[n],) for n in made if n + " " in line + " "], sep="\n")
        passed = sum(line.startswith("pass ") for line in lines)
        c.check(passed == len(made), "%d of %d cases give the defined bits, %s"
                % (passed, len(made), isa or "best instruction set"))
    c.finish("check_qlinear")


if __name__ == "__main__":
    sys.exit(main())
