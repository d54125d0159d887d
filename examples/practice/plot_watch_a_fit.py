"""
Early stopping and learning curves
==================================

With ``DeepEnsemble(early_stopping=True)`` each member sets validation samples aside, monitors their
loss, stops when it no longer falls, and keeps the best epoch. The history of the fit, or a callback
while it runs, shows that further epochs would not have helped: the training loss still decreases,
the validation loss does not.
"""

# %%
# Fit
# ---
#
# Callbacks are skorch's. This one prints the training loss at some epochs; ``verbose=1`` prints
# how long each stage of a fit takes.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from skorch.callbacks import Callback

from skdistill import BayesianEnsembleRegressor
from skdistill.samplers import DeepEnsemble

n_members = 5  # networks of the ensemble
max_epochs = 400  # at most


class Report(Callback):
    """Print the mean losses of the members every so many epochs."""

    def __init__(self, every=20):
        self.every = every

    def on_epoch_end(self, net, **kwargs):
        """Print them, if it is time."""
        row = net.history[-1]
        if row["epoch"] % self.every == 0:
            print(f"epoch {row['epoch']:4}: training {np.mean(row['train_loss']):.3f}")


X, y = load_diabetes(return_X_y=True)
ensemble = BayesianEnsembleRegressor(
    n_members,
    max_epochs=max_epochs,
    batch_size=64,
    inference=DeepEnsemble(early_stopping=True),
    callbacks=[Report()],
    random_state=0,
).fit(X, y)
print("best epoch of each member:", ensemble.best_epochs_)

# %%
# Figure
# ------
#
# Means over the members that were still in training. The target is standardised. The training loss
# is the beta-NLL, the validation loss the NLL: compare the shapes of the two curves, not their
# levels.

history = ensemble.history_
epochs = history[:, "epoch"]
figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
ax.plot(epochs, history[:, "train_loss"], "--", color="#D55E00", label="training (beta-NLL)")
ax.plot(epochs, history[:, "valid_loss"], color="#0072B2", label="validation (NLL)")
for number, epoch in enumerate(ensemble.best_epochs_):
    ax.axvline(epoch, color="0.7", zorder=0, label="best epochs" if number == 0 else None)
ax.set(xlabel="epoch", ylabel="mean loss of the members")
ax.legend()
plt.show()
