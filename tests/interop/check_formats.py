"""Formats of quantized models: what ONNX Runtime computes from the file is what we do."""
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from _common import check, finish, tool

rng = np.random.RandomState(5)
h, npy = onnx.helper, onnx.numpy_helper


def model(path):
    """Convolutions (grouped, asymmetric padding), Gemm with alpha and both layouts, MatMul."""
    make = lambda name, *dims: npy.from_array((rng.randn(*dims) * 0.3).astype(np.float32), name)
    nodes = [
        h.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 0, 1, 2]),
        h.make_node("Relu", ["c1"], ["r1"]),
        h.make_node("Conv", ["r1", "w2"], ["c2"], group=4, strides=[2, 1]),
        h.make_node("Conv", ["r1", "w5", "b5"], ["c5"], strides=[2, 1]),
        h.make_node("Add", ["c2", "c5"], ["s2"]),
        h.make_node("GlobalAveragePool", ["s2"], ["p"]),
        h.make_node("Flatten", ["p"], ["f"]),
        h.make_node("Gemm", ["f", "w3", "b3"], ["g"], transB=1, alpha=0.75),
        h.make_node("Relu", ["g"], ["r3"]),
        h.make_node("MatMul", ["r3", "w4"], ["m"]),
        h.make_node("Gemm", ["m", "w6", "b6"], ["y"]),
    ]
    graph = h.make_graph(
        nodes, "g", [h.make_tensor_value_info("x", 1, ["N", 3, 9, 10])],
        [h.make_tensor_value_info("y", 1, ["N", 6])],
        [make("w1", 8, 3, 3, 3), make("b1", 8), make("w2", 12, 2, 3, 3), make("w5", 12, 8, 3, 3), make("b5", 12),
         make("w3", 50, 12), make("b3", 50), make("w4", 50, 40), make("w6", 40, 6), make("b6", 6)])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


def outputs(path, x, folder):
    np.save(folder + "/x.npy", x)
    code, _, errors = tool("run", path, "--input", folder + "/x.npy", "--simulate", "-o", folder + "/out")
    if not check(code == 0, "run %s" % (errors if code else "")):
        return None, None
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.load(folder + "/out/y.npy"), session.run(None, {name: x})[0]


def compare(folder, what, args, operators, limit, least=25):
    float_path, path = folder + "/float.onnx", folder + "/q.onnx"
    model(float_path)
    np.save(folder + "/calib.npy", rng.randn(64, 3, 9, 10).astype(np.float32))
    settings = [word for setting in args for word in ("--set", setting)]
    code, _, errors = tool("quantize", float_path, "-o", path, "--force", "--data", "npy:" + folder + "/calib.npy", *settings)
    if not check(code == 0, "%s: quantize %s" % (what, errors if code else "")):
        return
    quantized = onnx.load(path)
    if "com.microsoft" not in [o.domain for o in quantized.opset_import]:
        onnx.checker.check_model(quantized, full_check=True)
    names = [node.op_type for node in quantized.graph.node]
    for op, count in operators.items():
        check(names.count(op) == count, "%s: %d of %d %s" % (what, names.count(op), count, op))
    x = rng.randn(16, 3, 9, 10).astype(np.float32)
    ours, theirs = outputs(path, x, folder)
    if ours is not None:
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        check(error < limit, "%s: outputs %.2g apart" % (what, error))
        _, plain = outputs(float_path, x, folder)
        signal = 10 * np.log10((plain ** 2).sum() / ((plain - theirs) ** 2).sum())
        few = any("BIT=%d" % bits in " ".join(args) for bits in (2, 3, 4))
        check(signal > (1 if few else least), "%s: SQNR %.1f dB" % (what, signal))


def single(folder, what, node, inputs, constants, limit):
    """One node of com.microsoft."""
    path = folder + "/node.onnx"
    graph = h.make_graph(
        [node], "g", [h.make_tensor_value_info("x", 1, list(inputs.shape))], [h.make_tensor_value_info("y", 1, None)],
        [npy.from_array(value, name) for name, value in constants.items()])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=8), path)
    ours, theirs = outputs(path, inputs, folder)
    if ours is not None:
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        check(error < limit, "%s: outputs %.2g apart" % (what, error))


def nbits(folder, bits, block, zeros, bias):
    k, n = 70, 11
    blocks = -(-k // block)
    constants = {"b": rng.randint(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
                 "s": rng.rand(n, blocks).astype(np.float32)}
    names = ["x", "b", "s"]
    if zeros is not None:
        row = -(-blocks * bits // 8)
        constants["z"] = rng.randint(0, 256, (n, row)).astype(np.uint8) if zeros == "codes" else \
            rng.rand(n, blocks).astype(np.float32) * 3
        names.append("z")
    if bias:
        constants["c"] = rng.randn(n).astype(np.float32)
        names += [""] * (5 - len(names)) + ["c"]
    node = h.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    single(folder, "MatMulNBits %d %d %s%s" % (bits, block, zeros, " bias" if bias else ""), node,
           rng.randn(2, 3, k).astype(np.float32), constants, 1e-5)


def dynamic(folder, dtype, per_column, zero, bias):
    k, n = 40, 9
    info = np.iinfo(dtype)
    constants = {"b": rng.randint(info.min, info.max, (k, n)).astype(dtype),
                 "s": np.asarray(rng.rand(n)[:n if per_column else 1] * 0.01, np.float32).reshape([n] if per_column else [])}
    names = ["x", "b", "s"]
    if zero:
        constants["z"] = np.asarray(rng.randint(0, 9, [n] if per_column else []), dtype)
        names.append("z")
    if bias:
        constants["c"] = rng.randn(n).astype(np.float32)
        names += [""] * (4 - len(names)) + ["c"]
    node = h.make_node("DynamicQuantizeMatMul", names, ["y"], domain="com.microsoft")
    single(folder, "DynamicQuantizeMatMul %s" % np.dtype(dtype), node, rng.randn(5, k).astype(np.float32), constants, 1e-5)


class Reader(CalibrationDataReader):
    def __init__(self, data):
        self.left = [{"x": data[i:i + 16]} for i in range(0, len(data), 16)]

    def get_next(self):
        return self.left.pop(0) if self.left else None


def sqnr(signal, other):
    return 10 * np.log10((signal ** 2).sum() / ((signal - other) ** 2).sum())


def foreign(folder, form, activations, per_channel):
    """Files of ONNX Runtime's quantizer: made float, written in the other format, quantized once more."""
    what = "%s %s%s" % (form, activations, " per channel" if per_channel else "")
    float_path, path, out = folder + "/float.onnx", folder + "/theirs.onnx", folder + "/out.onnx"
    model(float_path)
    data = rng.randn(64, 3, 9, 10).astype(np.float32)
    np.save(folder + "/calib.npy", data)
    quantize_static(float_path, path, Reader(data), quant_format=form, activation_type=activations,
                    weight_type=QuantType.QInt8, per_channel=per_channel)
    x = rng.randn(16, 3, 9, 10).astype(np.float32)
    ours, theirs = outputs(path, x, folder)
    _, plain = outputs(float_path, x, folder)
    code, _, errors = tool("dequantize", path, "-o", out)
    if check(code == 0, "%s: dequantize %s" % (what, errors if code else "")):
        left = [n.op_type for n in onnx.load(out).graph.node if "Quantize" in n.op_type or "QLinear" in n.op_type]
        check(not left, "%s: no integers are left %s" % (what, left))
        _, floats = outputs(out, x, folder)
        near, far = sqnr(plain, floats), sqnr(plain, theirs)
        check(near > far, "%s: the float model is nearer to the original: %.1f dB, %.1f dB" % (what, near, far))
    for target in ("qoperator", "qdq"):
        code, _, errors = tool("convert", path, "--format", target, "-o", out)
        if check(code == 0, "%s: convert to %s %s" % (what, target, errors if code else "")):
            _, again = outputs(out, x, folder)
            check(sqnr(theirs, again) > 35, "%s as %s: %.1f dB" % (what, target, sqnr(theirs, again)))
    code, _, errors = tool("quantize", path, "--data", "npy:" + folder + "/calib.npy", "-o", out, "--target", "onnxruntime")
    if check(code == 0, "%s: quantize %s" % (what, errors if code else "")):
        scales = lambda p: {t.name: npy.to_array(t) for t in onnx.load(p).graph.initializer if "scale" in t.name}
        first, second = scales(path), scales(out)
        kept = sum(any(np.array_equal(np.unique(a), np.unique(b)) for b in first.values()) for a in second.values())
        check(kept >= 12, "%s: %d of %d scales are those of the file" % (what, kept, len(second)))
        _, again = outputs(out, x, folder)
        check(sqnr(theirs, again) > 25, "%s once more: %.1f dB" % (what, sqnr(theirs, again)))


with tempfile.TemporaryDirectory() as folder:
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        for activations in (QuantType.QUInt8, QuantType.QInt8):
            for per_channel in (False, True):
                foreign(folder, form, activations, per_channel)
    compare(folder, "dynamic", ["EXPORT.FORMAT=dynamic"],
            {"DynamicQuantizeLinear": 5, "ConvInteger": 3, "MatMulInteger": 3, "DequantizeLinear": 0}, 1e-5)
    compare(folder, "dynamic, per tensor, affine weights",
            ["EXPORT.FORMAT=dynamic", "W.QSCHEME=per-tensor-affine"], {"ConvInteger": 3, "MatMulInteger": 3}, 1e-5)
    for settings in (["A.QUANTIZER.BIT=16"], ["A.QUANTIZER.BIT=16", "A.QSCHEME=per-tensor-symmetric", "W.QUANTIZER.BIT=16"],
                     ["A.QUANTIZER.BIT=4", "EXPORT.INT4=true"], ["A.QUANTIZER.BIT=4", "W.QUANTIZER.BIT=4", "EXPORT.INT4=true"],
                     ["A.QUANTIZER.POWER_OF_TWO=true", "W.QUANTIZER.POWER_OF_TWO=true", "W.QSCHEME=per-tensor-symmetric",
                      "A.QSCHEME=per-tensor-symmetric"]):
        compare(folder, " ".join(settings), settings, {}, 1e-3)
        if "POWER" in settings[0]:
            for tensor in onnx.load(folder + "/q.onnx").graph.initializer:
                if tensor.name.endswith("_scale") and "bias" not in tensor.name:
                    values = np.log2(npy.to_array(tensor))
                    check(np.array_equal(values, np.round(values)), "%s: powers of two" % tensor.name)
    compare(folder, "hqq", ["W.QUANTIZER.TYPE=hqq", "W.QUANTIZER.BIT=4", "W.QSCHEME=per-channel-affine", "EXPORT.INT4=true"], {},
            1e-3)
    for kind in ("float8_e4m3fn", "float8_e5m2"):
        for settings in (["A.QUANTIZER.TYPE=" + kind], ["W.QUANTIZER.TYPE=" + kind],
                         ["A.QUANTIZER.TYPE=" + kind, "W.QUANTIZER.TYPE=" + kind]):
            compare(folder, " ".join(settings), settings, {}, 1e-3, 10)
    code, _, errors = tool("quantize", folder + "/float.onnx", "--data", "npy:" + folder + "/calib.npy", "-o",
                           folder + "/named.onnx", "--input-names", "picture", "--output-names", "scores", "--opset", "19",
                           "--dynamic", "picture:2=height", "--extra-info", "--set", "A.QUANTIZER.BIT=4")
    if check(code == 0, "export settings %s" % (errors if code else "")):
        named = onnx.load(folder + "/named.onnx")
        onnx.checker.check_model(named, full_check=True)
        check([i.name for i in named.graph.input] == ["picture"] and [o.name for o in named.graph.output] == ["scores"],
              "names of inputs and outputs")
        dims = named.graph.input[0].type.tensor_type.shape.dim
        check([d.dim_param or d.dim_value for d in dims] == ["N", 3, "height", 10], "open dims")
        check(named.opset_import[0].version == 19, "opset")
        theirs = ort.InferenceSession(folder + "/named.onnx", providers=["CPUExecutionProvider"])
        check(theirs.run(["scores"], {"picture": np.zeros((1, 3, 12, 10), np.float32)})[0].shape == (1, 6), "another height")
        extra = onnx.load(folder + "/named_extra.onnx").graph.node
        bits = [a.i for n in extra for a in n.attribute if a.name == "bits"]
        pairs = [n for n in extra if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
        check(len(bits) == len(pairs) and {4, 8, 32} == set(bits), "bits of %d nodes: %s" % (len(pairs), set(bits)))
    for bits in (4, 8, 3):
        for block in (16, 32, 128):
            for scheme in ("symmetric", "affine"):
                compare(folder, "nbits %d %d %s" % (bits, block, scheme),
                        ["EXPORT.FORMAT=matmul_nbits", "W.QUANTIZER.BIT=%d" % bits, "W.QUANTIZER.GROUP_SIZE=%d" % block,
                         "W.QSCHEME=per-channel-" + scheme], {"MatMulNBits": 2}, 1e-5)
    for bits in (2, 4, 8):
        for block in (16, 64):
            for zeros in (None, "codes") + (("floats",) if bits < 8 else ()):  # ONNX Runtime refuses the rest
                nbits(folder, bits, block, zeros, False)
    nbits(folder, 4, 32, "codes", True)
    for dtype in (np.int8, np.uint8):
        for per_column in (False, True):
            for zero in (False, True):
                dynamic(folder, dtype, per_column, zero, per_column)
finish("check_formats")
