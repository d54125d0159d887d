"""
ONNX export and prediction without torch
========================================

`export_onnx` writes all predictions of a student, uncertainty included, as one ONNX graph. A server
needs only numpy and onnxruntime. It returns the same predictions without importing torch. A single
sample takes less time, because inputs are not validated.
"""

# %%
# Graph
# -----

import subprocess
import sys
import tempfile
from pathlib import Path
from timeit import repeat

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier, export_onnx

n_members = 10  # networks of the teacher
max_epochs = 40  # epochs of each model

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X.astype(np.float32), y, random_state=0)
teacher = BayesianEnsembleClassifier(n_members, max_epochs=max_epochs, random_state=0)
student = HydraPlusClassifier(teacher, max_epochs=max_epochs, random_state=0)
student.fit(X_train, y_train)

folder = tempfile.TemporaryDirectory()
graph = Path(folder.name, "student.onnx")
export_onnx(student, graph)
print(f"{graph.name}: {graph.stat().st_size / 1024:.0f} KiB")

# %%
# Server
# ------
#
# A separate process runs this program. ``examples/serve_with_onnxruntime.py`` is a longer one,
# which predicts the samples of a file in blocks.

server = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
total, epistemic = session.run(["total", "epistemic"], {"X": numpy.load(sys.argv[2])})
numpy.save(sys.argv[3], epistemic)
print("the server has imported torch:", "torch" in sys.modules)
"""
rows, answer = Path(folder.name, "rows.npy"), Path(folder.name, "epistemic.npy")
np.save(rows, X_test)
command = [sys.executable, "-c", server, str(graph), str(rows), str(answer)]
print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")

epistemic = np.load(answer)
expected = student.predict_uncertainty(X_test).epistemic
print(f"largest difference in epistemic uncertainty: {np.abs(epistemic - expected).max():.1e} nats")

# %%
# Latency of one sample
# ---------------------
#
# The graph returns label, probabilities and all parts of the uncertainty. The student's
# `predict_uncertainty` returns the uncertainty only.

session = onnxruntime.InferenceSession(graph)
row = X_test[:1]
calls = {
    "student, with torch": lambda: student.predict_uncertainty(row),
    "graph, with onnxruntime": lambda: session.run(None, {"X": row}),
}
times = {name: 1e3 * min(repeat(call, number=20, repeat=10)) / 20 for name, call in calls.items()}
for name, milliseconds in times.items():
    print(f"{name}: {milliseconds:.3f} ms per sample")

# %%
# Figure
# ------

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
left.loglog(expected, epistemic, ".", color="#0072B2")
ends = [expected.min(), expected.max()]
left.loglog(ends, ends, color="0.6", zorder=0)
left.set(xlabel="student [nats]", ylabel="graph [nats]", title="Epistemic uncertainty")
right.barh(list(times), list(times.values()), color="#0072B2")
right.set(xlabel="milliseconds per sample", title="Latency")
plt.show()
folder.cleanup()
