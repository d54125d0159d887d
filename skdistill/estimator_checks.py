# SPDX-License-Identifier: BSD-3-Clause
"""Checks of scikit-learn's ``check_estimator`` that estimators of this package do not pass."""

from sklearn.base import BaseEstimator

from .samplers import MCDropout

__all__ = ["expected_failed_checks"]


def expected_failed_checks(estimator: BaseEstimator) -> dict[str, str]:
    """Return the checks of scikit-learn that an estimator need not pass, each with the reason.

    There is one at most: that a sample of weight two is the same as the sample twice. It is not
    where random numbers are drawn for each sample, as scikit-learn declares of its bagging too. No
    tag of an estimator can tell such exemptions.

    Parameters
    ----------
    estimator : estimator
        One of this package, with its parameters.

    Returns
    -------
    reasons : dict of str to str
        For ``expected_failed_checks=`` of ``check_estimator``; the function itself is for that of
        ``parametrize_with_checks``.

    Examples
    --------
    >>> from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
    >>> from skdistill.estimator_checks import expected_failed_checks
    >>> list(expected_failed_checks(HydraPlusRegressor()))
    ['check_sample_weight_equivalence_on_dense_data']
    >>> expected_failed_checks(HydraPlusRegressor(transfer=None))
    {}
    >>> expected_failed_checks(BayesianEnsembleRegressor())
    {}
    """
    params = estimator.get_params(deep=False)
    if params.get("transfer") is not None:
        drawn = "new samples are drawn"
    elif isinstance(params.get("inference"), MCDropout):
        drawn = "units are dropped"
    else:
        return {}
    reason = f"{drawn} for each sample, so two samples are not one sample of weight two"
    return {"check_sample_weight_equivalence_on_dense_data": reason}
