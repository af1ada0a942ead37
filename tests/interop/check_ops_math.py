"""check_ops_math.py: elementwise, reducing, moving, generating and quantizing operators with random
types, shapes and attributes against ONNX Runtime; the way of check_ops_nn.py.

Left out on purpose: integer division by zero, casts out of range, NaN in Min, Max and TopK: ONNX
defines no result.
"""
import os
import sys

import numpy
import onnx

import _common as c
import check_ops_nn as nn
from check_ops_nn import ints, pick, rng

F32, F64, F16 = numpy.float32, numpy.float64, numpy.float16
I8, U8, I32, I64, U32, U64 = (numpy.int8, numpy.uint8, numpy.int32, numpy.int64, numpy.uint32,
                              numpy.uint64)
I16, U16 = numpy.int16, numpy.uint16


class Case(nn.Case):
    """Output types are whatever shape inference says."""

    def __init__(self, op, inputs, **attributes):
        super().__init__(op, [a if a is None else numpy.asarray(a) for a in inputs], **attributes)

    def model(self):
        model = super().model()
        for out in model.graph.output:
            out.ClearField("type")
        known = onnx.shape_inference.infer_shapes(model)
        for out, found in zip(model.graph.output, known.graph.output):
            out.type.tensor_type.elem_type = found.type.tensor_type.elem_type
        return model


def values(dtype, shape, low=-20, high=20):
    if dtype == bool:
        return numpy.asarray(rng.rand(*shape) < 0.5)
    if numpy.issubdtype(dtype, numpy.floating):
        return numpy.asarray(rng.randn(*shape) * 3).astype(dtype)
    low = 0 if numpy.issubdtype(dtype, numpy.unsignedinteger) else low
    return numpy.asarray(rng.randint(low, high, shape)).astype(dtype)


def shape(low=0, high=4, size=5):
    return tuple(ints(1, size, rng.randint(low, high + 1)))


def against(full):
    """A shape that broadcasts with `full`."""
    part = [d if rng.rand() < 0.6 else 1 for d in full]
    return tuple(part[rng.randint(0, len(part) + 1):])


def unary():
    op = pick("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Reciprocal",
              "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh",
              "Atanh", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid",
              "Tanh", "Softplus", "Softsign", "ThresholdedRelu", "Shrink", "Mish", "Gelu",
              "HardSwish", "IsNaN", "IsInf", "Not", "BitwiseNot")
    dtype = bool if op == "Not" else pick(I8, U8, I32, U64) if op == "BitwiseNot" else \
        pick(F32, F32, F32, F64, F16, *((I8, I32, I64) if op in ("Abs", "Neg", "Sign") else ()))
    x = values(dtype, shape(0, 4, pick(5, 40)))
    if op in ("Sqrt", "Log"):
        x = numpy.abs(x) + dtype(0.01)
    if op in ("Asin", "Acos", "Atanh"):
        x = numpy.clip(x / dtype(10), -0.95, 0.95).astype(dtype)
    if op == "Acosh":
        x = numpy.abs(x) + dtype(1.01)
    if op in ("Tan", "Exp", "Sinh", "Cosh"):
        x = numpy.clip(x, -1.3, 1.3).astype(dtype)
    if op == "Reciprocal":
        x = numpy.where(numpy.abs(x) < 0.1, dtype(1), x)
    if op in ("IsNaN", "IsInf") and x.size:
        x = x.copy()
        x.reshape(-1)[rng.randint(x.size)] = pick(numpy.nan, numpy.inf, -numpy.inf)
    alpha = op in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid")
    return Case(op, [x], alpha=pick(None, 0.3) if alpha else None,
                approximate=pick(None, "tanh") if op == "Gelu" else None,
                lambd=0.7 if op == "Shrink" else None, bias=0.2 if op == "Shrink" else None)


def binary():
    op = pick("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "PRelu", "And", "Or", "Xor",
              "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Equal", "Less", "LessOrEqual",
              "Greater", "GreaterOrEqual")
    fmod = None
    if op in ("And", "Or", "Xor"):
        dtype = bool
    elif op.startswith("Bitwise"):
        dtype = pick(I8, U8, I16, I32, I64)
    elif op == "BitShift":
        dtype = pick(U8, U16, U32, U64)
    else:
        dtype = pick(F32, F32, F32, F64, F16, I32, I64, *(() if op in ("PRelu", "Pow") else (U8, I8)))
    full = shape(1, 4, pick(4, 4, 33))
    a, b = values(dtype, full), values(dtype, against(full))
    if op != "PRelu" and rng.rand() < 0.4:
        a, b = b, a
    if op in ("Div", "Mod"):
        b = numpy.where(b == 0, dtype(3), b)
    if op == "Mod":
        fmod = 1 if numpy.issubdtype(dtype, numpy.floating) else pick(None, 1)
    if op == "Pow":
        a, b = numpy.abs(a) % dtype(4) + dtype(1), numpy.abs(b) % dtype(4)
        b = b.astype(pick(dtype, F32, I32))
    if op == "BitShift":
        b = (b % 8).astype(dtype)
    return Case(op, [a, b], fmod=fmod, opset=18,
                direction=pick("LEFT", "RIGHT") if op == "BitShift" else None)


def variadic():
    full = shape(1, 3)
    op = pick("Sum", "Mean", "Max", "Min")
    dtype = pick(F32, F64) if op in ("Sum", "Mean") else pick(F32, F64, I32, I64)
    return Case(op, [values(dtype, full)] + [values(dtype, against(full))
                                             for _ in range(rng.randint(0, 4))])


def where():
    full = shape(1, 4)
    dtype = pick(F32, I64, U8, I32, F64)
    return Case("Where", [values(bool, against(full)), values(dtype, full),
                          values(dtype, against(full))])


def clip():
    dtype = pick(F32, F64, I8, U8, I32, I64)
    x = values(dtype, shape())
    return Case("Clip", [x, pick(None, values(dtype, ())), pick(None, dtype(7) + values(dtype, ()))],
                constant=pick((), (1,), (1, 2)))


def reduce():
    op = pick("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    full = shape(1, 4, pick(4, 4, 19))
    dtype = pick(F32, F32, F32, F64, I32)
    if op in ("LogSum", "LogSumExp") and dtype == I32:
        dtype = F32
    x = values(dtype, full, -3, 4)
    if op == "LogSum":
        x = numpy.abs(x) + dtype(0.1)
    if op == "Prod":
        x = (numpy.sign(x) * (numpy.abs(x) % 2 + 1)).astype(dtype) % dtype(3)
    axes = sorted(set(ints(-len(full), len(full) - 1, rng.randint(1, len(full) + 1))))
    axes = sorted({a % len(full) for a in axes})
    as_input = numpy.array(axes, I64) if rng.rand() < 0.8 else None
    return Case("Reduce" + op, [x, as_input], opset=18, keepdims=pick(None, 0, 1),
                constant=pick((), (1,)) if as_input is not None else (),
                noop_with_empty_axes=pick(None, 1))


def arg():
    full = shape(1, 4)
    x = values(pick(F32, F64, I32, I8, U8), full, -3, 4)
    return Case(pick("ArgMax", "ArgMin"), [x], opset=13, keepdims=pick(None, 0),
                axis=int(rng.randint(-len(full), len(full))), select_last_index=pick(None, 1))


def running():
    full = shape(1, 4)
    return Case("CumSum", [values(pick(F32, F64, I32, I64), full),
                           numpy.array(rng.randint(-len(full), len(full)), pick(I32, I64))],
                exclusive=pick(None, 1), reverse=pick(None, 1))


def top_k():
    full = shape(1, 3, 12)
    axis = int(rng.randint(-len(full), len(full)))
    dtype = pick(F32, F64, I32, I64)
    return Case("TopK", [values(dtype, full, -4, 4), numpy.array([rng.randint(1, full[axis] + 1)])],
                outputs=2, axis=axis, largest=pick(None, 0), constant=pick((), (1,)))


def transpose():
    full = shape(1, 5, pick(3, 17))
    perm = [int(p) for p in rng.permutation(len(full))]
    return Case("Transpose", [values(pick(F32, U8, I64, F16, bool), full)], perm=pick(perm, None))


def concat():
    full = list(shape(1, 4))
    axis = int(rng.randint(0, len(full)))
    dtype = pick(F32, U8, I64)
    parts = [values(dtype, tuple(full[:axis] + [int(rng.randint(0, 4))] + full[axis + 1:]))
             for _ in range(rng.randint(1, 5))]
    return Case("Concat", parts, axis=pick(axis, axis - len(full)))


def split():
    full = list(shape(1, 4))
    axis = int(rng.randint(0, len(full)))
    sizes = ints(0, 3, rng.randint(1, 4))
    full[axis] = sum(sizes)
    return Case("Split", [values(F32, tuple(full)), numpy.array(sizes, I64)], outputs=len(sizes),
                axis=axis, opset=18, constant=pick((), (1,)))


def slices():
    full = shape(1, 4, 7)
    n = rng.randint(1, len(full) + 1)
    axes = [int(a) for a in rng.permutation(len(full))[:n]]
    steps = [int(s) for s in rng.choice([-3, -2, -1, 1, 1, 2, 3], n)]
    kind = pick(I32, I64)
    return Case("Slice", [values(pick(F32, U8, I64), full), numpy.array(ints(-9, 9, n), kind),
                          numpy.array(ints(-9, 9, n), kind), numpy.array(axes, kind),
                          numpy.array(steps, kind)], constant=pick((), (1, 2, 3, 4)))


def pad():
    full = shape(1, 4, 5)
    mode = pick("constant", "edge", "reflect", "wrap")
    most = min(full) - 1 if mode in ("reflect", "wrap") else 3
    pads = ints(0, max(most, 0), 2 * len(full))
    if mode == "constant" and rng.rand() < 0.5:
        pads = [p if full[k % len(full)] < 3 else int(rng.randint(-1, 3)) for k, p in enumerate(pads)]
    dtype = pick(F32, F64, I32, U8)
    return Case("Pad", [values(dtype, full), numpy.array(pads, I64),
                        values(dtype, ()) if mode == "constant" and rng.rand() < 0.5 else None],
                mode=mode, opset=19, constant=pick((), (1,)))


def gather():
    full = shape(1, 4)
    axis = int(rng.randint(0, len(full)))
    op = pick("Gather", "GatherElements")
    like = shape(0, 2) if op == "Gather" else tuple(rng.randint(1, d + 1) for d in full)
    index = rng.randint(-full[axis], full[axis], like)
    return Case(op, [values(pick(F32, U8, I64), full), numpy.array(index, pick(I32, I64))],
                axis=pick(axis, axis - len(full)))


def gather_nd():
    full = shape(1, 4)
    batch = int(rng.randint(0, len(full)))
    depth = int(rng.randint(1, len(full) - batch + 1))
    lead = full[:batch] + shape(0, 2)
    index = numpy.stack([rng.randint(-full[batch + d], full[batch + d], lead)
                         for d in range(depth)], -1)
    return Case("GatherND", [values(F32, full), index.astype(I64)], batch_dims=batch)


def scatter():
    full = shape(1, 3)
    axis = int(rng.randint(0, len(full)))
    like = tuple(int(rng.randint(1, d + 1)) for d in full)
    dtype = pick(F32, I32, I64)
    reduction = pick("add", "mul", "max", "min")
    index = rng.randint(-full[axis], full[axis], like)
    return Case("ScatterElements", [values(dtype, full, 1, 4), index.astype(I64),
                                    values(dtype, like, 1, 4)],
                axis=axis, reduction=reduction, opset=18)


def scatter_nd():
    full = shape(1, 3)
    depth = int(rng.randint(1, len(full) + 1))
    lead = shape(1, 2)
    index = numpy.stack([rng.randint(0, full[d], lead) for d in range(depth)], -1)
    return Case("ScatterND", [values(F32, full), index.astype(I64),
                              values(F32, lead + full[depth:])], reduction="add", opset=18)


def stretch():
    full = shape(1, 4)
    if rng.rand() < 0.5:
        return Case("Tile", [values(pick(F32, I64), full), numpy.array(ints(0, 3, len(full)), I64)],
                    constant=pick((), (1,)))
    wide = shape(0, 1) + full
    return Case("Expand", [values(F32, against(full)), numpy.array(wide, I64)],
                constant=pick((), (1,)))


def one_hot():
    full = shape(0, 2)
    depth = int(rng.randint(1, 6))
    return Case("OneHot", [rng.randint(-depth - 1, depth + 1, full).astype(I64),
                           numpy.array(depth, I64), values(F32, (2,))],
                axis=int(rng.randint(-len(full) - 1, len(full) + 1)), constant=pick((), (1,)))


def trilu():
    return Case("Trilu", [values(pick(F32, I64, F64), shape(2, 4)),
                          pick(None, numpy.array(rng.randint(-6, 7), I64))], upper=pick(None, 0))


def cast():
    x = values(pick(F32, F64, F16, I32, I64, U8, I8, bool), shape(), 0, 20)
    to = pick(F32, F64, F16, I32, I64, bool)
    return Case("Cast", [x], to=onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(to)))


def quantize():
    full = shape(1, 4, 6)
    axis = int(rng.randint(0, len(full)))
    count = pick((), (full[axis],))
    kind = pick(U8, I8, U16, I16)
    x = (rng.randn(*full) * 40).astype(F32)
    scale = numpy.asarray(rng.rand(*count) + 0.05).astype(F32)
    zero = values(kind, count)
    if rng.rand() < 0.5:
        return Case("DequantizeLinear", [values(kind, full), scale, zero], axis=axis,
                    constant=pick((), (1, 2)))
    return Case("QuantizeLinear", [x, scale, zero], axis=axis, constant=pick((), (1, 2)))


def dynamic():
    op = pick("NonZero", "Unique", "Compress", "DynamicQuantizeLinear", "NonMaxSuppression")
    full = shape(1, 3)
    if op == "DynamicQuantizeLinear":
        return Case(op, [values(F32, full)], outputs=3)
    if op == "Unique":
        axis = pick(None, int(rng.randint(-len(full), len(full))))
        return Case(op, [values(pick(F32, I64), full, 0, 4)], outputs=4, axis=axis,
                    sorted=pick(None, 0))
    if op == "Compress":
        axis = pick(None, int(rng.randint(0, len(full))))
        size = int(numpy.prod(full)) if axis is None else full[axis]
        return Case(op, [values(F32, full), values(bool, (int(rng.randint(1, size + 1)),))], axis=axis)
    if op == "NonMaxSuppression":
        n, classes, batch = int(rng.randint(1, 12)), int(rng.randint(1, 4)), int(rng.randint(1, 3))
        corner = rng.rand(batch, n, 2).astype(F32)
        boxes = numpy.concatenate([corner, corner + rng.rand(batch, n, 2).astype(F32)], -1)
        return Case(op, [boxes, rng.rand(batch, classes, n).astype(F32), numpy.array([3], I64),
                         numpy.array([0.4], F32), numpy.array([0.2], F32)],
                    center_point_box=pick(None, 1))
    return Case(op, [values(pick(F32, I64, bool), full, -1, 2)])


nn.KINDS = [unary, binary, variadic, where, clip, reduce, arg, running, top_k, transpose, concat,
            split, slices, pad, gather, gather_nd, scatter, scatter_nd, stretch, one_hot, trilu,
            cast, quantize, dynamic]

if __name__ == "__main__":
    finish = c.finish
    c.finish = lambda name: finish(os.path.basename(__file__)[:-3])
    sys.exit(nn.main())
