# SPDX-License-Identifier: BSD-3-Clause
"""scikit-learn's face of every estimator: parameters, state and prediction methods."""
