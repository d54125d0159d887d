// SPDX-License-Identifier: BSD-3-Clause
// Students that predict in the browser. Those of the first page, written by
// doc/images/live_student.py, are in live_students_fitted.js.
"use strict";

const liveStudent = (() => {
  // --- arithmetic --------------------------------------------------------------------------------

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const dot = (a, b) => a.reduce((total, value, i) => total + value * b[i], 0);
  const standardised = (x, { starts, widths }) => x.map((v, i) => (v - starts[i]) / widths[i]);
  // Numbers grow as a logarithm beyond five standard deviations.
  const compressed = (z) =>
    Math.abs(z) > 5 ? Math.sign(z) * (5 + Math.log(Math.abs(z) - 4)) : z;

  // start + x @ rows
  function product(x, rows, start = new Array(rows[0].length).fill(0)) {
    const found = [...start];
    rows.forEach((row, i) => row.forEach((weight, j) => { found[j] += x[i] * weight; }));
    return found;
  }

  const softplus = (z) => Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z)));

  function logSoftmax(z) {
    const largest = Math.max(...z);
    const log = largest + Math.log(sum(z.map((v) => Math.exp(v - largest))));
    return z.map((v) => v - log);
  }

  const ACTIVATIONS = {
    ReLU: (z) => Math.max(z, 0),
    SiLU: (z) => z / (1 + Math.exp(-z)),
    Tanh: Math.tanh,
  };

  // --- reading a student -------------------------------------------------------------------------

  // Turns {shape, f4 or f8: base64} into nested arrays, wherever it is.
  function decoded(value) {
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map(decoded);
    if (!value.shape) {
      return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, decoded(v)]));
    }
    const bytes = Uint8Array.from(atob(value.f4 ?? value.f8), (c) => c.charCodeAt(0)).buffer;
    const flat = [...(value.f4 === undefined ? new Float64Array(bytes) : new Float32Array(bytes))];
    return value.shape.slice(1).reduceRight(nested, flat);
  }

  const nested = (flat, size) =>
    Array.from({ length: flat.length / size }, (_, i) => flat.slice(i * size, (i + 1) * size));

  function read(packed) {
    const student = decoded(packed);
    const { points, nugget } = student.functions;
    const matrix = points.map((point) => kernel(student.functions, point));
    matrix.forEach((row, i) => { row[i] += nugget; });
    student.functions.factor = cholesky(matrix);
    return student;
  }

  // Lower triangle L of a matrix L L^T.
  function cholesky(matrix) {
    const factor = [];
    for (const row of matrix) {
      const solved = forward(factor, row);
      factor.push([...solved, Math.sqrt(row[factor.length] - dot(solved, solved))]);
    }
    return factor;
  }

  // Solves L y = b for the rows of L that there are.
  function forward(factor, b) {
    const y = [];
    for (const row of factor) {
      let rest = b[y.length];
      for (let j = 0; j < y.length; j++) rest -= row[j] * y[j];
      y.push(rest / row[y.length]);
    }
    return y;
  }

  // --- prediction of one sample x ----------------------------------------------------------------

  // Standardised numbers, which grow as a logarithm beyond 5, and shares of bins.
  function encoded(x, { nNumbers, sources, starts, widths }) {
    const z = standardised(sources.map((column) => x[column]), { starts, widths });
    return z.map((v, i) => (i < nNumbers ? compressed(v) : clamp(v, 0, 1)));
  }

  // What each head predicts.
  function outputs(student, x) {
    let hidden = encoded(x, student.inputs);
    for (const layer of student.layers) {
      hidden = layer.weight
        ? product(hidden, layer.weight, layer.bias)
        : hidden.map(ACTIVATIONS[layer]);
    }
    return student.heads.weight.map((w, s) => product(hidden, w, student.heads.bias[s]));
  }

  const kernel = ({ points, squares }, z) =>
    points.map((p) => Math.exp(-0.5 * sum(p.map((v, i) => squares[i] * (v - z[i]) ** 2))));

  // Inputs, kernel functions and shares of gaps of random functions, and the variance of these.
  function features(functions, x) {
    const all = standardised(x, functions).map(compressed);
    const distance = clamp(Math.hypot(...all), functions.radius, 1e9);
    const z = all.map((v) => clamp(v, -50, 50));
    const atPoints = kernel(functions, z);
    const known = forward(functions.factor, atPoints);
    const left = Math.max(functions.most - dot(known, known), 0);
    const shares = functions.gapColumns.map((column, g) => {
      const [below, above] = functions.gapSlopes.map((slopes, end) =>
        Math.max(functions.gapOffsets[end][g] + x[column] * slopes[g], 0));
      return Math.min(1 / (1 / below + 1 / above), functions.gapMost[g]);
    });
    const ofGaps = product(shares, functions.gapVariance);
    const variance = functions.within.map((within, k) =>
      left * (within + distance * functions.slope[k]) ** 2 + ofGaps[k]);
    return { z, atPoints, shares, variance };
  }

  // A value of each function for each class.
  function draws(functions, x) {
    const { z, atPoints, shares, variance } = features(functions, x);
    const waves = product(z, functions.frequencies, functions.phases).map(Math.sin);
    let values = product(waves, functions.weightsOfWaves);
    values = product(atPoints, functions.weightsOfKernel, values);
    values = product(shares.map(Math.sqrt), functions.weightsOfGaps, values);
    values = nested(values, variance.length);
    const scale = variance.map((v, k) =>
      Math.sqrt(v / Math.max(mean(values.map((row) => row[k] ** 2)), 1e-30)));
    return values.map((row) => row.map((v, k) => v * scale[k]));
  }

  // Means and variances of the heads. The last head, if it is a gain, tells by which factor their
  // means are to be further apart; what this adds is taken from the variances, if these have it.
  function gaussians({ gain }, found) {
    const last = gain ? found.at(-1)[0] : 0;
    const heads = gain ? found.slice(0, -1) : found;
    const means = heads.map((head) => head[0]);
    const variances = heads.map((head) => softplus(head[1]) + 1e-6);
    const centre = mean(means);
    const spread = mean(means.map((m) => (m - centre) ** 2));
    if (!gain) return { centre, spread, variances };
    const factor = Math.exp(gain.largestLog * Math.tanh(last / gain.largestLog));
    const left = variances.map((v) => Math.max(v - (factor - 1) * spread, gain.shareKept * v));
    return { centre, spread: factor * spread, variances: left };
  }

  function regression(student, x) {
    const { centre, spread, variances } = gaussians(student, outputs(student, x));
    const squared = student.scale ** 2;
    const aleatoric = squared * mean(variances);
    const epistemic = squared * spread + features(student.functions, x).variance[0];
    const total = aleatoric + epistemic;
    return { mean: student.loc + student.scale * centre, total, aleatoric, epistemic };
  }

  function classification(student, x) {
    const values = draws(student.functions, x);
    const logs = outputs(student, x).map((logits, s) =>
      logSoftmax(logSoftmax(logits).map((v, k) => v + values[s][k])));
    const members = logs.map((row) => row.map(Math.exp));
    const probabilities = members[0].map((_, k) => mean(members.map((row) => row[k])));
    const aleatoric = -mean(logs.map((row, s) => dot(row, members[s])));
    const total = -sum(probabilities.map((p) => p && p * Math.log(p)));
    return { probabilities, total, aleatoric, epistemic: Math.max(total - aleatoric, 0) };
  }

  const predict = (student, x) =>
    student.scale === undefined ? classification(student, x) : regression(student, x);

  return { predict, read };
})();
