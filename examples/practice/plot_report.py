"""
Report on a student
===================

Twenty networks predict the progression of diabetes after one year, and a student is distilled from
them. Is the student good enough to be deployed? A report compares it with its teacher on held-out
patients: accuracy, calibration, fidelity and cost.
"""

# %%
# Student
# -------
#
# Features have clinical units; both models standardise them.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, report

n_members = 20  # networks of the ensemble
max_epochs = "auto"  # as many as suit the number of samples
settings = {"max_epochs": max_epochs, "random_state": 0}

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
teacher = BayesianEnsembleRegressor(n_members, **settings)
student = HydraPlusRegressor(teacher, **settings).fit(X_train, y_train)

# %%
# Scores
# ------
#
# Each score has a standard error. That of the difference is smaller, since both models predict for
# the same patients: it shows whether the student is worse.

found = report(student, X_test, y_test)
frame = found.to_frame()
columns = ["quantity", "student", "student_error", "teacher", "difference", "difference_error"]
shown = frame.section.isin(["accuracy", "proper scores", "calibration"])
print(frame.loc[shown, columns].round(3).to_string(index=False))

# %%
# Epistemic uncertainty by feature
# --------------------------------
#
# Values of the body mass index for which more patients would help: the mean epistemic part of ten
# groups of equally many patients.

groups = pd.qcut(X_test["bmi"], 10)
fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, model in (("student", student), ("teacher", student.teacher_)):
    epistemic = pd.Series(model.predict_uncertainty(X_test).epistemic, X_test.index)
    ax.plot(
        X_test["bmi"].groupby(groups).median(), epistemic.groupby(groups).mean(), "o-", label=name
    )
ax.set(xlabel="body mass index", ylabel="mean epistemic variance", ylim=(0, None))
ax.legend()
plt.show()

# %%
# Report
# ------
#
# ``found.save("report.html")`` writes the report to a file. A notebook, and this gallery, show it
# when it is the last line of a cell.

found
