# SPDX-License-Identifier: BSD-3-Clause
"""The version, which pickles carry, and where its documentation is."""

__version__ = "0.1.0"

# Pages to which scikit-learn's HTML representation links: of skdistill, and of its modules.
DOCUMENTATION = "https://skdistill.readthedocs.io/en/stable/"
API_PAGE = DOCUMENTATION + "generated/skdistill.{estimator_name}.html"
API_PAGE_OF_MODULE = DOCUMENTATION + "generated/{estimator_module}.{estimator_name}.html"
