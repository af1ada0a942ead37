"""check_ml.py: the classical operators of ai.onnx.ml with random parameters against ONNX Runtime; the way of
check_ops_nn.py.

Left out where ONNX Runtime leaves the specification: one target or one score of two classes with SOFTMAX or PROBIT
(not transformed, or memory that is not written), base_values of two classes, NaN at BRANCH_NEQ; labels of two classes
that both get votes, and of linear support vector machines with two (tests/test_ml.c has those worked by hand).
"""
import sys

import numpy
from onnx import TensorProto, helper

import check_ops_nn as nn
from check_ops_nn import ints, normal, pick, rng

POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
TYPES = {"int": TensorProto.INT64, "text": TensorProto.STRING, "float": TensorProto.FLOAT}


class Case(nn.Case):
    """outputs: names of TYPES; `version` of ai.onnx.ml."""

    def __init__(self, op, inputs, outputs=("float",), version=3, **attributes):
        super().__init__(op, inputs, len(outputs), **attributes)
        self.kinds, self.version = outputs, version

    def model(self):
        model = super().model()
        model.graph.node[0].domain = "ai.onnx.ml"
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", self.version))
        for out, kind in zip(model.graph.output, self.kinds):
            out.ClearField("type")
            out.type.tensor_type.elem_type = TYPES[kind]
        return model


def floats(values):
    return [float(v) for v in numpy.ravel(values)]


def table(n, f, *kinds):
    kind = pick(numpy.float32, *kinds)
    x = rng.randn(n, f) * 3
    return numpy.round(x).astype(kind) if numpy.issubdtype(kind, numpy.integer) else x.astype(kind)


ALL = (numpy.float64, numpy.int64, numpy.int32)


def labels(n, ints_name):
    """Attributes, and the kind of the first output."""
    if rng.rand() < 0.5:
        return {"classlabels_strings": ["c%d" % (7 * k % 10) + "x" * k for k in range(n)]}, "text"
    return {ints_name: [int(v) for v in rng.permutation(90)[:n] - 40]}, "int"


def scaler():
    f = pick(1, 3, 5)
    n = pick(1, f)
    return Case("Scaler", [table(4, f, *ALL)], offset=floats(normal(n)), scale=floats(normal(n)))


def imputer():
    f = pick(1, 3)
    n = pick(1, f)
    if rng.rand() < 0.5:
        x = rng.randint(-2, 3, (5, f)).astype(numpy.int64)
        return Case("Imputer", [x], ("int",), imputed_value_int64s=ints(5, 9, n), replaced_value_int64=pick(0, 1, -2)) \
            if rng.rand() < 0.9 else Case("Imputer", [x], ("int",), imputed_value_int64s=[2 ** 62 + 1], replaced_value_int64=0)
    bad = pick(float("nan"), 1.0)
    x = normal(5, f)
    x[rng.rand(5, f) < 0.4] = bad
    return Case("Imputer", [x], imputed_value_floats=floats(normal(n)), replaced_value_float=bad)


def normalizer():
    x = table(5, pick(1, 4), *ALL)
    x[0] = 0
    return Case("Normalizer", [x], norm=pick("MAX", "L1", "L2"))


def one_hot():
    if rng.rand() < 0.4:
        words = ["a", "bb", "", "ccc"]
        x = numpy.array([pick(*words) for _ in range(6)]).reshape(pick((6,), (2, 3))).astype(object)
        return Case("OneHotEncoder", [x], cats_strings=words[:pick(2, 4)])
    kind = pick(numpy.int64, numpy.float32, numpy.float64)
    return Case("OneHotEncoder", [(rng.rand(*pick((6,), (2, 3))) * 5).astype(kind)], cats_int64s=pick([3, 1], [0, 4, 2, 9]),
                zeros=1)


def mapper():
    words, numbers = ["a", "bb", "ccc"], [7, -3, 12]
    if rng.rand() < 0.5:
        x = numpy.array([pick("a", "bb", "ccc", "d") for _ in range(6)]).reshape(2, 3).astype(object)
        return Case("CategoryMapper", [x], ("int",), cats_strings=words, cats_int64s=numbers, default_int64=pick(None, 5))
    x = numpy.array([pick(7, -3, 12, 4) for _ in range(6)], numpy.int64)
    return Case("CategoryMapper", [x], ("text",), cats_strings=words, cats_int64s=numbers, default_string=pick(None, "no"))


def vectorizer():
    kind = pick(numpy.float32, *ALL)
    sizes = ints(1, 4, pick(1, 2, 3))
    inputs = [(normal(3, s) * 3).astype(kind) for s in sizes]
    return Case("FeatureVectorizer", inputs, inputdimensions=[s + pick(0, 0, 1) for s in sizes])


def linear_regressor():
    f, t, post = pick(1, 4), pick(1, 1, 3), pick(*POSTS)
    if t == 1 or post == "PROBIT":
        post = "NONE"
    return Case("LinearRegressor", [table(5, f)], coefficients=floats(normal(t, f)), targets=t, post_transform=post,
                intercepts=pick(None, floats(normal(t))))


def linear_classifier():
    f, classes = pick(1, 4), pick(2, 3, 5)
    rows = 1 if classes == 2 and rng.rand() < 0.5 else classes
    names, kind = labels(classes, "classlabels_ints")
    post = pick(*POSTS[:4]) if rows > 1 else pick(*POSTS[:3])
    return Case("LinearClassifier", [table(5, f, *ALL)], (kind, "float"), coefficients=floats(normal(rows, f)),
                intercepts=floats(normal(rows)), post_transform=post, multi_class=pick(0, 1), **names)


def kernel(f, count):
    return dict(kernel_type=pick("LINEAR", "POLY", "RBF", "SIGMOID"), support_vectors=floats(normal(count, f)) or None,
                kernel_params=[0.3, 0.5, pick(1.0, 2.0, 3.0)])


def svm_regressor():
    f, count = pick(1, 3), pick(0, 1, 4)
    return Case("SVMRegressor", [table(5, f)], coefficients=floats(normal(count or f)), rho=[0.3], n_supports=count,
                one_class=pick(0, 0, 1), **kernel(f, count))


def svm_classifier():
    f, classes = pick(1, 3), pick(2, 3, 4)
    names, kind = labels(classes, "classlabels_ints")
    if rng.rand() < 0.2 and classes > 2:
        return Case("SVMClassifier", [table(6, f, *ALL)], (kind, "float"), coefficients=floats(normal(classes, f)),
                    rho=[0.2], kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0], post_transform=pick(*POSTS[:4]), **names)
    per = ints(1, 3, classes)
    pairs = classes * (classes - 1) // 2
    if rng.rand() < 0.4:
        names.update(prob_a=floats(-numpy.abs(normal(pairs)) - 0.5), prob_b=floats(normal(pairs) / 4))
    post = pick(*POSTS[:4]) if classes > 2 or "prob_a" in names else pick(*POSTS[:3])
    return Case("SVMClassifier", [table(6, f, *ALL)], (kind, "float"), coefficients=floats(normal(classes - 1, sum(per))),
                rho=floats(normal(pairs)), vectors_per_class=per, post_transform=post, **kernel(f, sum(per)), **names)


def trees(features, count, depth, leaf):
    """Random trees; leaf(tree, id) is told of each leaf. Numbers of nodes are mixed, too."""
    a = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
                         "missing_value_tracks_true", "hitrates")}
    for tree in range(count):
        numbers = [int(v) for v in rng.permutation(2 ** (depth + 1))] if rng.rand() < 0.5 else list(range(2 ** (depth + 1)))
        made = [0]

        def grow(level):
            me = numbers[made[0]]
            made[0] += 1
            at = len(a["modes"])
            branch = level < depth and (level == 0 or rng.rand() < 0.7)
            for key, value in (("treeids", tree), ("nodeids", me), ("featureids", rng.randint(features) if branch else 0),
                               ("values", float(numpy.float32(rng.randn() if rng.rand() < 0.7 else rng.randint(-2, 3)))),
                               ("modes", pick("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ")
                                if branch else "LEAF"), ("truenodeids", 0), ("falsenodeids", 0),
                               ("missing_value_tracks_true", pick(0, 1)), ("hitrates", 1.0)):
                a[key].append(value)
            if branch:
                a["truenodeids"][at], a["falsenodeids"][at] = grow(level + 1), grow(level + 1)
            else:
                leaf(tree, me)
            return me
        grow(0)
    a = {"nodes_" + k: v for k, v in a.items()}
    for key in ("nodes_missing_value_tracks_true", "nodes_hitrates"):
        if rng.rand() < 0.4:
            del a[key]
    return a


def tree_input(features, nan):
    x = table(7, features, numpy.float64, numpy.int64, numpy.int32) if not nan else table(7, features)
    if nan:
        x[rng.rand(*x.shape) < 0.3] = numpy.nan
    return x


def as_tensors(x, attributes, names):
    """float64 parameters go into *_as_tensor for float64 inputs."""
    for name in names:
        if x.dtype == numpy.float64 and name in attributes:
            values = attributes.pop(name)
            attributes[name + "_as_tensor"] = helper.make_tensor(name, TensorProto.DOUBLE, [len(values)], values)
    return attributes


def tree_regressor():
    targets, features = pick(1, 2, 3), pick(1, 3)
    votes = {k: [] for k in ("target_treeids", "target_nodeids", "target_ids", "target_weights")}

    def leaf(tree, node):
        for t in range(targets):
            for key, value in zip(votes, (tree, node, t, float(rng.randn()))):
                votes[key].append(value)
    post = pick(*POSTS[:4]) if targets > 1 else "NONE"
    a = dict(trees(features, pick(1, 3), pick(1, 3), leaf), n_targets=targets, post_transform=post,
             aggregate_function=pick("SUM", "AVERAGE", "MIN", "MAX"), **votes)
    if rng.rand() < 0.5:
        a["base_values"] = floats(normal(targets))
    x = tree_input(features, rng.rand() < 0.4)
    return Case("TreeEnsembleRegressor", [x], version=pick(1, 3) if x.dtype != numpy.float64 else 3,
                **as_tensors(x, a, ("nodes_values", "target_weights", "base_values", "nodes_hitrates")))


def tree_classifier():
    classes, features = pick(2, 3, 4), pick(1, 3)
    one = classes == 2
    names, kind = labels(classes, "classlabels_int64s")
    votes = {k: [] for k in ("class_treeids", "class_nodeids", "class_ids", "class_weights")}
    low = pick(0.0, -0.5)

    def leaf(tree, node):
        for t in range(1 if one else classes):
            for key, value in zip(votes, (tree, node, t, float(rng.rand() + low))):
                votes[key].append(value)
    post = pick(*POSTS[:3]) if one else pick(*POSTS[:4])
    a = dict(trees(features, pick(1, 3), pick(1, 3), leaf), post_transform=post, **votes, **names)
    if rng.rand() < 0.5:
        a["base_values"] = floats(normal(1 if one else classes))
    x = tree_input(features, rng.rand() < 0.4)
    return Case("TreeEnsembleClassifier", [x], (kind, "float"), version=pick(1, 3) if x.dtype != numpy.float64 else 3,
                **as_tensors(x, a, ("nodes_values", "class_weights", "base_values", "nodes_hitrates")))


KINDS = [scaler, imputer, normalizer, one_hot, mapper, vectorizer, linear_regressor, linear_classifier, svm_regressor,
         svm_classifier, tree_regressor, tree_classifier]

if __name__ == "__main__":
    nn.KINDS[:] = KINDS
    sys.exit(nn.main("check_ml"))
