"""Weights in blocks (QUANTIZER.GROUP_SIZE): ONNX Runtime's DequantizeLinear gives the same numbers as
the formula, and the whole model the same outputs as ours."""
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

from _common import check, finish, tool

rng = np.random.RandomState(3)


def model(path):
    """x [N,50] -> MatMul [50,24] -> Relu -> Gemm [24,10], transB: blocks on both sides, short last."""
    h, n = onnx.helper, onnx.numpy_helper
    w1 = rng.randn(50, 24).astype(np.float32) * (1 + 9 * (np.arange(50) // 16 == 1))[:, None]
    w2 = rng.randn(10, 24).astype(np.float32)
    bias = rng.randn(10).astype(np.float32)
    nodes = [
        h.make_node("MatMul", ["x", "w1"], ["a"]),
        h.make_node("Relu", ["a"], ["b"]),
        h.make_node("Gemm", ["b", "w2", "bias"], ["y"], transB=1),
    ]
    graph = h.make_graph(
        nodes, "g",
        [h.make_tensor_value_info("x", 1, ["N", 50])],
        [h.make_tensor_value_info("y", 1, ["N", 10])],
        [n.from_array(w1.astype(np.float32), "w1"), n.from_array(w2, "w2"), n.from_array(bias, "bias")])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return {"w1": w1, "w2": w2}


def quantize(folder, settings):
    float_path, path = folder + "/float.onnx", folder + "/blocks.onnx"
    weights = model(float_path)
    args = ["quantize", float_path, "-o", path, "--set", "A.QUANTIZER.DISABLE=true",
            "--set", "W.QUANTIZER.GROUP_SIZE=16"]
    for setting in settings:
        args += ["--set", setting]
    code, _, errors = tool(*args)
    if not check(code == 0, "blocks %s: quantize %s" % (" ".join(settings), errors if code else "")):
        return
    quantized = onnx.load(path)
    onnx.checker.check_model(quantized, full_check=True)
    values = {t.name: onnx.numpy_helper.to_array(t) for t in quantized.graph.initializer}
    blocked = 0
    for node in quantized.graph.node:
        attrs = {a.name: a.i for a in node.attribute}
        if node.op_type != "DequantizeLinear" or "block_size" not in attrs:
            continue
        blocked += 1
        q, scale, zero = (values[name].astype(np.float32) for name in node.input)
        axis, block = attrs.get("axis", 1), attrs["block_size"]
        spread = lambda t: np.repeat(t, block, axis)[:q.shape[0], :q.shape[1]]
        formula = (q - spread(zero)) * spread(scale)
        keep = [t for t in quantized.graph.initializer if t.name in node.input]
        graph = onnx.helper.make_graph(
            [node], "g", [], [onnx.helper.make_tensor_value_info(node.output[0], 1, None)], keep)
        alone = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        theirs = ort.InferenceSession(alone.SerializeToString(),
                                      providers=["CPUExecutionProvider"]).run(None, {})[0]
        check(np.array_equal(theirs, formula), "blocks: %s equals the formula" % node.output[0])
        name = node.input[0].replace("_quantized", "")
        worst = (np.abs(formula - weights[name]) / spread(scale)).max()
        # the largest of a symmetric block is half a step beyond the grid
        check(worst <= 0.501, "blocks: %s is rounded to the nearest: %.3f" % (name, worst))
    check(blocked == 2, "blocks: %d of 2 weights" % blocked)
    x = rng.randn(7, 50).astype(np.float32)
    np.save(folder + "/x.npy", x)
    code, _, errors = tool("run", path, "--input", folder + "/x.npy", "-o", folder + "/out")
    if check(code == 0, "blocks: run %s" % (errors if code else "")):
        ours = np.load(folder + "/out/y.npy")
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        theirs = session.run(None, {"x": x})[0]
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        check(error < 1e-5, "blocks: outputs %.2g apart" % error)


def main():
    for settings in (["W.QUANTIZER.BIT=8"],
                     ["W.QUANTIZER.BIT=4", "EXPORT.INT4=true"],
                     ["W.QUANTIZER.BIT=4", "W.QSCHEME=per-channel-affine"]):
        with tempfile.TemporaryDirectory() as folder:
            quantize(folder, settings)
    finish("blocks")


if __name__ == "__main__":
    main()
