"""check_models.py: the networks of shared/models on real inputs give ONNX Runtime's outputs.

Photos of CIFAR-10 and of the ImageNet sample, resized; sound like speech with the state carried over the steps; batches
of 1 and 3 and two sizes where a model allows them. Outputs may differ by contracts.md's bounds (1e-4 of the largest,
1e-3 after more than 50 layers). SPARSEBIT_ACCEPTANCE or SBIT_MODELS=all: all of that; else a sample of a few seconds.
"""
import glob
import os
import sys

import numpy as np
import onnx

import _common as c

ALL = bool(os.environ.get("SPARSEBIT_ACCEPTANCE")) or os.environ.get("SBIT_MODELS") == "all"
# (model, sizes, (scale, offset) for a byte, bound)
UNIT, SIGNED = (1 / 255, 0.0), (1 / 127.5, -1.0)
IMAGES = [("zoo/mnist_8", [(1, 28, 28)], (1.0, 0.0), 1e-4), ("zoo/super_resolution_10", [(1, 224, 224)], UNIT, 1e-4),
          ("zoo/ultraface_rfb320", [(3, 240, 320)], (1 / 128, -127 / 128), 1e-3),
          ("zoo/yunet_n_dynamic", [(3, 96, 128), (3, 160, 96)], (1.0, 0.0), 1e-3),
          ("zoo/ppocr_cls", [(3, 48, 192), (3, 64, 160)], SIGNED, 1e-3),
          ("zoo/ppocrv4_det", [(3, 160, 224), (3, 96, 128)], SIGNED, 1e-3),
          ("zoo/ppocrv4_rec", [(3, 48, 160), (3, 48, 96)], SIGNED, 1e-3),
          ("zoo/efficientnet_lite0", [(3, 224, 224)], (1 / 128, -127 / 128), 1e-3),
          ("bench/mobilenet_v2", [(3, 224, 224)], SIGNED, 1e-3), ("bench/mobilenet_v3_small", [(3, 224, 224)], SIGNED, 1e-3),
          ("bench/squeezenet1_1", [(3, 224, 224)], SIGNED, 1e-4)]


def path_of(name):
    return os.path.join(c.SHARED, "models", name + ".onnx")


def resized(photo, height, width):
    """Bilinear, pixel centres: [3,H,W] bytes to [3,height,width] floats."""
    photo = photo.astype(np.float32)
    for axis, size in ((1, height), (2, width)):
        at = np.clip((np.arange(size) + 0.5) * photo.shape[axis] / size - 0.5, 0, photo.shape[axis] - 1)
        low = at.astype(int)
        high = np.minimum(low + 1, photo.shape[axis] - 1)
        part = (at - low).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(3)])
        photo = photo.take(low, axis) * (1 - part) + photo.take(high, axis) * part
    return photo


def photos(count):
    """[3,H,W] bytes each: of the ImageNet sample where PIL can read them, and of CIFAR-10."""
    raw = np.fromfile(os.path.join(c.SHARED, "data", "cifar10", "test-10k.bin"), np.uint8, count * 3073).reshape(-1, 3073)
    found = [p[1:].reshape(3, 32, 32) for p in raw]
    try:
        from PIL import Image
        files = sorted(glob.glob(os.path.join(c.SHARED, "data", "imagenet-sample", "*.jpg")))[:count]
        found = [np.asarray(Image.open(f).convert("RGB")).transpose(2, 0, 1) for f in files]
    except ImportError:
        c.skip("no PIL: photos of CIFAR-10 instead of those of ImageNet")
    return found


def lettered(photo, seed):
    """A sign with strokes like letters, for networks that look for text (where there is none, they give zeros)."""
    rng = np.random.default_rng(seed)
    height, width = photo.shape[1:]
    photo = photo.copy()
    top, bottom = height // 3, 2 * height // 3
    photo[:, top:bottom, width // 10:-width // 10] = 235
    size = (bottom - top) // 2
    for left in range(width // 10 + size // 2, width - width // 10 - size, size):
        for _ in range(3):
            y, x = top + size // 2 + rng.integers(0, size // 2), left + rng.integers(0, size // 2)
            tall = rng.integers(0, 2)
            photo[:, y:y + (size // 2 if tall else 3), x:x + (3 if tall else size // 2)] = 20
    return photo


def ours(path, feeds, outputs):
    flags = []
    for name, value in feeds.items():
        file = os.path.join(c.TMP, "feed-%s.npy" % name.replace("/", "_"))
        np.save(file, value)
        flags += ["--input", "%s=%s" % (name, file)]
    code, _, err = c.tool("run", path, *flags, "-o", c.TMP, "--threads", 2)
    if code != 0:
        raise RuntimeError(err.strip()[-300:])
    return [np.load(os.path.join(c.TMP, name.replace("/", "_") + ".npy")) for name in outputs]


def gap(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    return float(np.abs(got.astype(np.float64) - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-6))


def with_arguments(path):
    """The model with what its last Sigmoid and Softmax nodes are given among the outputs; those nodes' own outputs.

    Of a probability far below 1 a relative difference says nothing: ONNX Runtime's Sigmoid gives 0 below 1e-8."""
    model = onnx.load(path)
    last = [n for n in model.graph.node
            if n.op_type in ("Sigmoid", "Softmax") and n.output[0] in {o.name for o in model.graph.output}]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted({n.input[0] for n in last}))
    out = os.path.join(c.TMP, "arguments.onnx")
    onnx.save(model, out)
    return out, {n.output[0] for n in last}


def compare(session, path, feeds, shares=()):
    """The worst difference of all outputs; of shares of 1 the absolute one."""
    names = [o.name for o in session.get_outputs()]
    pairs = zip(names, ours(path, feeds, names), session.run(names, feeds))
    return max(float(np.abs(a - b).max(initial=0)) if name in shares and a.shape == b.shape else gap(a, b) for name, a, b in pairs)


def image_model(name, sizes, byte, bound, pictures):
    path, shares = with_arguments(path_of(name))
    session = c.ort_session(path, False)
    info = session.get_inputs()[0]
    batches = (1,) if isinstance(info.shape[0], int) and info.shape[0] == 1 else (1, 3)
    worst, runs = 0.0, 0
    for channels, height, width in sizes if ALL else sizes[:1]:
        for batch in batches if ALL else batches[-1:]:
            for first in range(0, 6 if ALL else 1, batch):
                seen = pictures[first:first + batch]
                seen = [lettered(p, i) for i, p in enumerate(seen)] if "ppocr" in name else seen
                x = np.stack([resized(p, height, width) for p in seen])
                x = x if channels == 3 else x.mean(1, keepdims=True)
                x = (x * np.float32(byte[0]) + np.float32(byte[1])).astype(np.float32)
                worst = max(worst, compare(session, path, {info.name: x}, shares))
                runs += 1
    c.check(worst <= bound, "%s: %d runs on photos, worst difference %.2g (bound %g)" % (name, runs, worst, bound))


def cifar_model(path):
    session = c.ort_session(path, False)
    count = 60 if ALL else 3
    x, _ = c.cifar("test-10k.bin", count)
    want = c.ort_run(path, x, False)
    got = c.our_run(path, x, 60)
    worst = gap(got, want)
    for batch in (1, 3) if ALL else ():
        worst = max(worst, gap(c.our_run(path, x[:batch]), want[:batch]))
    c.check(worst <= 1e-4 and (got.argmax(1) == want.argmax(1)).all(), "%s: %d photos%s, worst difference %.2g, equal predictions"
            % (os.path.basename(path), count, " and batches of 1 and 3" if ALL else "", worst))


def speech(samples, seed):
    """Voiced stretches (a pitch that glides, formants, breath) and pauses."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / 16000
    pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 0.7 * t + seed)) / 16000
    voice = sum(np.sin(k * pitch) / k * np.exp(-((k * 130 - f) / 300) ** 2) for k in range(1, 25) for f in (500, 1500, 2500))
    loud = np.clip(np.sin(2 * np.pi * 1.3 * t + seed), 0, None)
    return (0.3 * loud * voice + 0.01 * rng.standard_normal(samples)).astype(np.float32)


def silero(name, states, batch, length):
    path = path_of(name)
    session = c.ort_session(path, False)
    outputs = [o.name for o in session.get_outputs()]
    steps = 50 if ALL else 5
    sound = np.stack([speech(length * steps, s) for s in range(batch)])
    kept = {n: (np.zeros((2, batch, w), np.float32),) * 2 for n, w, _ in states}
    worst, seen = 0.0, []
    for step in range(steps):
        x = np.ascontiguousarray(sound[:, step * length:(step + 1) * length])
        feeds = [dict({"input": x, "sr": np.array(16000, np.int64)}, **{n: kept[n][who] for n, _, _ in states}) for who in (0, 1)]
        got, want = ours(path, feeds[0], outputs), session.run(outputs, feeds[1])
        worst = max([worst] + [gap(a, b) for a, b in zip(got, want)])
        kept = {n: (got[outputs.index(o)], want[outputs.index(o)]) for n, _, o in states}
        seen.append(float(want[0].max()))
    c.check(worst <= 1e-3 and (not ALL or max(seen) > 2 * min(seen)),
            "%s: batch %d, %d steps with their state, speech from %.2f to %.2f, worst difference %.2g"
            % (name, batch, steps, min(seen), max(seen), worst))


def light(path, seed):
    """A graph whose weights are ConstantOfShape: they become random numbers, small enough to stay finite."""
    model = onnx.load(path)
    rng = np.random.default_rng(seed)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    made, kept = [], []
    for node in model.graph.node:
        if node.op_type == "Constant":
            shapes[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = [int(d) for d in shapes[node.input[0]]]
            made.append((node.output[0], shape))
        else:
            kept.append(node)
    users = {}
    for node in kept:
        for i, name in enumerate(node.input):
            users.setdefault(name, (node.op_type, i))
    for name, shape in made:
        op, index = users.get(name, ("", 0))
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        if op == "BatchNormalization" and index in (1, 4) or op == "Mul":
            value = rng.uniform(0.5, 1.5, shape)
        else:
            value = rng.standard_normal(shape) * (np.sqrt(2 / max(fan, 1)) if len(shape) > 1 else 0.1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    known = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in known]
    out = os.path.join(c.TMP, "light.onnx")
    onnx.save(model, out)
    out, shares = with_arguments(out)  # a Softmax may give one 1 and many 0
    session = c.ort_session(out, False)
    feeds = {i.name: rng.standard_normal([d.dim_value or 1 for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in inputs}
    worst = compare(session, out, feeds, shares)
    spread = max(float(np.std(o)) for o in session.run(None, feeds))
    c.check(worst <= 1e-3 and spread > 0, "%s: %d weights at random, worst difference %.2g"
            % (os.path.basename(path), len(made), worst))
    os.remove(out)


def main():
    if not os.path.exists(path_of("cifar10/resnet20")):
        c.skip("no shared models")
        c.finish("check_models")
    if len(sys.argv) > 1:  # one light graph
        light(sys.argv[1], 0)
        c.finish("check_models")
    pictures = photos(8)
    for path in sorted(glob.glob(os.path.join(c.SHARED, "models", "cifar10", "*.onnx"))):
        cifar_model(path)
    for name, sizes, byte, bound in IMAGES if ALL else IMAGES[:-3]:  # without bench: random weights
        image_model(name, sizes, byte, bound, pictures)
    for batch in (1, 3) if ALL else (3,):
        silero("zoo/silero_vad_v4", [("h", 64, "hn"), ("c", 64, "cn")], batch, 512)
        silero("zoo/silero_vad_v5", [("state", 128, "stateN")], batch, 576)
    lights = sorted(glob.glob(os.path.join(c.ROOT, "tests", "build", "onnx-backend", "light", "*.onnx")))
    for i, path in enumerate(lights):
        if ALL or "squeezenet" in path:
            light(path, i)
    if not lights:
        c.skip("no ONNX backend data: light graphs")
    c.finish("check_models")


main()
