# SPDX-License-Identifier: BSD-3-Clause
"""Parameters of an estimator's parts, as ``<part>__<name>``."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from ._version import __version__
from ._warnings import warn


class DunderParameters(BaseEstimator):
    """Estimator that also takes parameters of its parts, as ``<part>__<name>``.

    They are attributes like any other parameter, and ``get_params``, ``set_params`` and ``clone``
    know them.
    """

    _dunder_prefixes = ("module", "optimizer", "callbacks")

    def _dunder_params(self) -> dict[str, Any]:
        """Parameters given as ``module__...`` and the like."""
        prefixes = tuple(f"{prefix}__" for prefix in self._dunder_prefixes)
        return {name: value for name, value in vars(self).items() if name.startswith(prefixes)}

    def _params_of(self, prefix: str) -> dict[str, Any]:
        start = f"{prefix}__"
        return {
            name.removeprefix(start): value
            for name, value in self._dunder_params().items()
            if name.startswith(start)
        }

    def _set_extra_params(self, params: dict[str, Any]) -> None:
        """Store the keyword arguments of the constructor; unknown ones are reported by fit."""
        self.__dict__.update(params)
        unknown = [name for name in params if name.split("__")[0] not in self._dunder_prefixes]
        if unknown:
            self._unknown_params = unknown

    def _refuse_unknown_parameters(self) -> None:
        if unknown := getattr(self, "_unknown_params", ()):
            raise TypeError(
                f"{type(self).__name__} got unknown parameters {sorted(unknown)}; it takes "
                f"{self._get_param_names()}, and parameters of its parts as "
                f"{[f'{prefix}__<name>' for prefix in self._dunder_prefixes]}."
            )

    def get_params(self, deep=True):
        unknown = {name: getattr(self, name) for name in getattr(self, "_unknown_params", ())}
        return {**super().get_params(deep=deep), **self._dunder_params(), **unknown}

    def set_params(self, **params):
        prefixes = tuple(f"{prefix}__" for prefix in self._dunder_prefixes)
        dunder = {name: value for name, value in params.items() if name.startswith(prefixes)}
        super().set_params(**{k: v for k, v in params.items() if k not in dunder})
        self.__dict__.update(dunder)
        return self

    def __getstate__(self):
        return {**super().__getstate__(), "_skdistill_version": __version__}

    def __setstate__(self, state):
        state = dict(state)
        _warn_of_other_version(type(self).__name__, state.pop("_skdistill_version", None))
        super().__setstate__(state)


def _warn_of_other_version(estimator: str, version: str | None) -> None:
    """Warn unless `version`, which pickled an estimator, is the one that loads it."""
    if version == __version__:
        return
    writer = "an older version, which noted no number" if version is None else version
    warn(
        f"{estimator} was pickled by skdistill {writer} and is loaded by {__version__}: its "
        "predictions may be wrong, or fail. Load it with the version that pickled it, or fit it "
        "anew.",
    )
