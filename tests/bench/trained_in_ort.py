"""trained_in_ort.py: what accept_train.c left, in ONNX Runtime: top-1 beside ours.

    python3 trained_in_ort.py FOLDER [PART]     files FOLDER/*PART*.onnx that have a result beside

Needs onnxruntime and SPARSEBIT_SHARED. Ends with status 1 if one differs by more than 0.1 points.
"""
import glob
import json
import os
import sys

import numpy as np
import onnxruntime

MEAN = np.float32([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
STD = np.float32([0.247, 0.2435, 0.2616]).reshape(3, 1, 1)


def images(count):
    path = os.path.join(os.environ["SPARSEBIT_SHARED"], "data/cifar10/test-10k.bin")
    rows = np.fromfile(path, np.uint8).reshape(-1, 3073)[:count]
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def top1(path, pixels, labels):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name, right = session.get_inputs()[0].name, 0
    for i in range(0, len(pixels), 100):
        x = ((pixels[i:i + 100] / np.float32(255)) - MEAN) / STD
        out = session.run(None, {name: x.astype(np.float32)})[0]
        right += int((out.argmax(1) == labels[i:i + 100]).sum())
    return 100 * right / len(pixels)


def main():
    part, worst = sys.argv[2] if len(sys.argv) > 2 else "", 0.0
    for path in sorted(glob.glob(os.path.join(sys.argv[1], f"*{part}*.onnx"))):
        if not os.path.exists(path + ".json"):
            continue
        with open(path + ".json", encoding="utf-8") as file:
            result = json.load(file)
        ours = 100 * result.get("after", result)["top1"]
        theirs = top1(path, *images(10000 if "-long" in path else 2000))
        worst = max(worst, abs(ours - theirs))
        print(f"{os.path.basename(path):48} ours {ours:.2f} ONNX Runtime {theirs:.2f}", flush=True)
    sys.exit(worst > 0.1)


if __name__ == "__main__":
    main()
