"""
Custom posterior expectations
=============================

A patient's uncertainty may not matter if every plausible model gives the same diagnosis. Any
function of a model's probabilities can be distilled: the student learns its posterior mean while
the chain runs. Here it is the share of the chain's networks that classify a tumour as malignant, a
vote that is clearer than the mean probability.
"""

# %%
# Expectation
# -----------
#
# The function takes the probabilities of some networks, of shape (networks, samples, classes), and
# returns a value for each network and sample. Votes are 0 or 1, and their mean is between: the
# student's output has a sigmoid link, and is trained by cross-entropy.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleClassifier, GPEDDistiller
from skdistill.expectations import Expectation
from skdistill.samplers import SGLD

max_epochs = 300  # epochs of the chain


def votes_malignant(probs):
    """Whether each network gives the class 0, malignant, more than one half."""
    return (probs[..., 0] > 0.5).to(probs.dtype)


X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X[["mean texture", "mean concave points"]]  # the problem is too easy with all 30
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

chain = BayesianEnsembleClassifier(
    inference=SGLD(step_size=5e-4, prior_precision=1, burn_in=0.2, thinning=2),
    max_epochs=max_epochs,
    random_state=0,
)
vote = Expectation(votes_malignant, loss="binary_cross_entropy", link="sigmoid", name="votes")
student = GPEDDistiller(chain, expectations=("predictive", vote), random_state=0)
student.fit(X_train, y_train, X_monitor=X_test)

# %%
# Results
# -------
#
# The chain's predictions for the test samples are averaged while it runs, as ``monitor_``. The
# student does not learn from them.

said = student.predict_expectation(X_test, "votes").ravel()
asked = np.asarray(student.monitor_["votes"]).ravel()
malignant = student.predict_proba(X_test)[:, 0]
print(f"share of votes: mean absolute error {np.abs(said - asked).mean():.3f}")
print(f"mean probability instead: mean absolute error {np.abs(malignant - asked).mean():.3f}")
doubtful = np.abs(malignant - 0.5) < 0.4
agreed = np.abs(asked - 0.5) > 0.4
print(f"test samples with a mean probability of .1 to .9: {doubtful.sum()}")
print(f"of these, samples on which nine in ten networks agree: {(doubtful & agreed).sum()}")

# %%
# Figure
# ------
#
# Left: the student's share of votes against the chain's. Right: against the mean probability. Votes
# are closer to 0 and 1, as networks may agree on a class of which each is uncertain.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
axes[0].plot(asked, said, ".", color="#0072B2")
axes[0].set(
    xlabel="share of votes, chain", ylabel="share of votes, student", title="Fidelity to the chain"
)
axes[1].plot(malignant, said, ".", color="#D55E00")
axes[1].set(xlabel="mean probability, student", title="Votes and mean probability")
for ax in axes:
    ax.axline((0, 0), slope=1, color="0.6", zorder=0)
plt.show()
