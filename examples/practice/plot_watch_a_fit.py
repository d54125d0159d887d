"""
Is a long fit still getting anywhere?
=====================================

With ``early_stopping=True`` each member sets rows aside, watches the loss on them, stops when it has
not fallen for a while, and keeps the best epoch. The history of the fit shows afterwards, or while
it runs by a callback, that the epochs it did without would have been wasted: the loss of training
goes on falling, that of validation does not.
"""

# %%
# The fit
# -------
#
# Callbacks are skorch's. This one prints a line now and then; ``verbose=1`` prints what is being
# trained, and for how long it will be.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from skorch.callbacks import Callback

from skdistill import BayesianEnsembleRegressor

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
    early_stopping=True,
    callbacks=[Report()],
    random_state=0,
).fit(X, y)
