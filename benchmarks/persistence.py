# SPDX-License-Identifier: BSD-3-Clause
"""Saving: how long it takes to write and read fitted models, and how large their files are.

Four models of the diabetes data (442 rows, 10 columns), each with its default network and number of
epochs, so that their histories have the length they have in use:

student     DistributionDistiller, of an ensemble of 20 networks
ensemble    BayesianEnsembleRegressor(n_members=20)
GPED        GPEDDistiller, of one Langevin chain
booster     BDistilBooster with 7 rounds, of the ensemble

Each is written and read in four ways:

save            skdistill.save and load, without the teacher, which predicting does not need
with teacher    the same with include_teacher=True, for models that have one; the chain of GPED
pickle, joblib  dump and load; the teacher is always in

save waits until the disk has the file (fsync), pickle and joblib do not. Times are of the wall
clock, in one process and on one thread; ways take turns, figures are medians over rounds.

Then the cold start: a new Python process that loads the saved student, one that unpickles it, and,
as the least that either can take, one that imports what skdistill rests on: torch, and the modules
of scikit-learn and scipy that it names.

    python benchmarks/persistence.py
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import joblib
from _common import argument_parser, interleaved, one_thread, print_table, record, write_json
from sklearn.base import BaseEstimator
from sklearn.datasets import load_diabetes
from sklearn.frozen import FrozenEstimator

import skdistill
from skdistill import BayesianEnsembleRegressor, BDistilBooster, DistributionDistiller, GPEDDistiller
from skdistill.samplers import SGLD

N_MEMBERS = 20
TARGET_MS = 20  # of the student, to save and to load
