# SPDX-License-Identifier: BSD-3-Clause
"""Distillers that are classifiers or regressors as their teachers are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sklearn.base import MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._base import CallbackSupportMixin, with_callbacks
from .._parameters import DunderParameters
from ._distiller import Distiller

_TASKS = ("classifier", "regressor")


def _task_of(teacher: Any) -> str | None:
    """What a teacher is, None for what is no teacher."""
    if isinstance(teacher, str):
        return teacher if teacher in _TASKS else None
    if isinstance(teacher, type) or not hasattr(teacher, "get_params"):
        return None
    kinds = is_classifier(teacher), is_regressor(teacher)
    return next((task for task, is_kind in zip(_TASKS, kinds, strict=True) if is_kind), None)


def student_can(method: str) -> Callable[[Any], bool]:
    """Condition for ``available_if``: the student has the method, or will have it."""

    def check(self) -> bool:
        if "student_" in vars(self):
            return hasattr(self.student_, method)
        task = _task_of(self.teacher)
        return task is not None and hasattr(self._students[task], method)

    return check


class MetaDistiller(MetaEstimatorMixin, CallbackSupportMixin, DunderParameters):
    """Distiller that is a classifier or a regressor as its teacher is, as a search is.

    `fit` builds a student that takes the same parameters, fits it and keeps it as `student_`.
    What is called on the distiller is handed on to it, and so are fitted attributes.
    """

    # The student's class by its task.
    _students: ClassVar[dict[str, type[Distiller]]]

    student_: Any

    def __sklearn_tags__(self):
        if _task_of(self.teacher) is None:  # fit will say so
            return super().__sklearn_tags__()
        return self._new_student().__sklearn_tags__()

    def __sklearn_is_fitted__(self) -> bool:
        return "student_" in vars(self) and self.student_.__sklearn_is_fitted__()

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_") and "student_" in vars(self):
            return getattr(self.student_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _new_student(self) -> Distiller:
        """An unfitted student with the same parameters."""
        task = _task_of(self.teacher)
        if task is None:
            raise TypeError(
                "teacher must be a classifier or a regressor, or, with member_predictions, "
                "'classifier' or 'regressor'; skdistill.teachers.as_teacher makes one of a list of "
                f"fitted models, or of a torch module. Got {self.teacher!r}."
            )
        params = self.get_params(deep=False)
        if isinstance(self.teacher, str):
            params["teacher"] = None
        return self._students[task](**params)

    @with_callbacks
    def fit(self, X, y, sample_weight=None, X_transfer=None, member_predictions=None):
        """Fit the teacher, if it is not fitted, and distil it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardised; images or series of shape (n_samples, ...) if `module` takes
            them. float32 is computed in float32, all else in float64. Predictions have the same
            dtype, but are float64 where float32 would round targets that are far from 0.
        y : array-like of shape (n_samples,)
            Targets, for regression also of shape (n_samples, n_targets), or class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in the teacher's fit and in the student's loss.
        X_transfer : array-like of shape (n_rows, n_features) or TransferSet, default=None
            Further rows, without labels, on which the student imitates the teacher, with weight
            1. In a cross-validation wrap them as :class:`skdistill.transfer.TransferSet`.
        member_predictions : array-like, default=None
            What the members of a teacher say about X: class probabilities of shape (n_samples,
            n_members, n_classes), columns in the order of the sorted labels; or means and
            variances, (n_samples, n_members, n_targets, 2), in units of y. `teacher` is
            "classifier" or "regressor" then, and nobody can be asked about other rows.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is not what it may be, the teacher is for another task,
            has no members or was fitted on other columns or classes, the module's output does not
            have the width that it should, or the student diverged.
        KeyboardInterrupt
            On Ctrl-C; during the student's training with what was trained kept.
        """
        return self._fit_student(
            X,
            y,
            sample_weight,
            X_transfer=X_transfer,
            member_predictions=member_predictions,
        )

    def _fit_student(self, X, y, sample_weight, *, member_predictions, **others):
        """Fit a student that takes these arguments, and keep it."""
        self._refuse_unknown_parameters()
        self.__dict__.pop("student_", None)
        student = self._new_student()
        if isinstance(self.teacher, str) and member_predictions is None:
            raise ValueError(
                f"teacher={self.teacher!r} goes with member_predictions, which are None; without "
                "them teacher must be an estimator."
            )
        task = self._init_callback_context(max_subtasks=1)
        task.call_on_fit_task_begin(estimator=self, X=X, y=y)
        subtask = task.subcontext(task_name="distiller")
        with subtask.propagate_callback_context(student):
            subtask.call_on_fit_task_begin(estimator=self, X=X, y=y)
            self.student_ = student  # so that what a fit that fails leaves is there to see
            student.fit(X, y, sample_weight, member_predictions=member_predictions, **others)
            subtask.call_on_fit_task_end(estimator=self, X=X, y=y)
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    # --- handed on

    @available_if(student_can("predict"))
    def predict(self, X, **params):
        """Predict the class of each row, or its mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        **params : dict
            For regressors ``return_std=True``, to return the standard deviation too.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Labels, or means in units of y; with ``return_std`` a tuple of means and standard
            deviations.
        """
        return self._fitted_student().predict(X, **params)

    @available_if(student_can("predict_proba"))
    def predict_proba(self, X):
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._fitted_student().predict_proba(X)

    @available_if(student_can("predict_log_proba"))
    def predict_log_proba(self, X):
        """Predict the logarithm of each class's probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        return self._fitted_student().predict_log_proba(X)

    @available_if(student_can("predict_uncertainty"))
    def predict_uncertainty(self, X):
        """Predict the total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        uncertainty : Uncertainty
            Arrays of shape (n_samples,), or (n_samples, n_targets) for several targets, with
            ``total = aleatoric + epistemic``: variances in squared units of y for regression,
            entropies in nats for classification. The parts are None where the student cannot
            tell them.
        """
        return self._fitted_student().predict_uncertainty(X)

    @available_if(student_can("predict_interval"))
    def predict_interval(self, X, coverage=0.9):
        """Predict the central interval that holds y with probability `coverage`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float, default=0.9
            Strictly between 0 and 1.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper end in units of y.
        """
        return self._fitted_student().predict_interval(X, coverage)

    @available_if(student_can("predict_quantiles"))
    def predict_quantiles(self, X, quantiles):
        """Predict quantiles of y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        quantiles : float or array-like of shape (n_quantiles,)
            Strictly between 0 and 1.

        Returns
        -------
        quantiles : ndarray of shape (n_samples, n_quantiles) or (n_samples, n_targets, n_quantiles)
            In units of y.
        """
        return self._fitted_student().predict_quantiles(X, quantiles)

    @available_if(student_can("predict_distribution"))
    def predict_distribution(self, X):
        """Predict the distribution that everything else is read off.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distribution : object
            One of :mod:`skdistill.distributions`.
        """
        return self._fitted_student().predict_distribution(X)

    @available_if(student_can("predict_members"))
    def predict_members(self, X):
        """Predict what each member says, or each draw that stands for one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        members : ndarray of shape (n_samples, n_members, n_classes) or \
                (n_samples, n_members, n_targets, 2)
            Class probabilities; or means and variances in units of y.
        """
        return self._fitted_student().predict_members(X)

    @available_if(student_can("sample_y"))
    def sample_y(self, X, n_samples=1, random_state=None):
        """Draw labels or targets from what is predicted.

        The same draws serve every row, so what is drawn for a row does not depend on the others.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws for each row.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_targets, n_samples)
        """
        return self._fitted_student().sample_y(X, n_samples, random_state)

    def score(self, X, y, sample_weight=None):
        """Return the accuracy of a classifier, the R2 of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        return self._fitted_student().score(X, y, sample_weight)

    def _fitted_student(self) -> Any:
        if not self.__sklearn_is_fitted__():  # the check itself takes longer than a prediction
            check_is_fitted(self)
        return self.student_
