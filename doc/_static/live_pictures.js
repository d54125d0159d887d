// SPDX-License-Identifier: BSD-3-Clause
// The pictures of the first page, live_student.html: students that answer where the reader points.
"use strict";

(() => {
  const { line, plane } = window.liveStudentsFitted;
  const BLUE = "#3182bd", ORANGE = "#e6760a";
  const PARTS = [["total", `${BLUE}66`], ["aleatoric", BLUE], ["epistemic", ORANGE]];
  const CLASSES = [["●", "#ff7f0e"], ["■", "#17becf"], ["▲", "#e377c2"]];
  const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const QUANTILE = 1.645; // of the standard normal distribution, for 90 %

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const spaced = (low, high, n) =>
    Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));

  // Rows of a name, a bar and a number; returns a function that shows other numbers.
  function bars(element, rows) {
    const shown = rows.map(([name, color]) => {
      const bar = `<span class="live-bar"><i style="background:${color}"></i></span>`;
      element.insertAdjacentHTML("beforeend", `<span>${name}</span>${bar}<b></b>`);
      return [...element.children].slice(-2);
    });
    return (values, most) => shown.forEach(([bar, number], i) => {
      bar.firstChild.style.width = `${clamp(values[i] / most, 0, 1) * 100}%`;
      number.textContent = values[i].toFixed(3);
    });
  }

  // A canvas in units of the samples, on which the reader moves a point.
  function picture(id, [left, right], [bottom, top], draw, point, hovers) {
    const canvas = document.querySelector(`#${id} canvas`);
    const pen = canvas.getContext("2d");
    const view = {
      pen, point,
      x: (value) => ((value - left) / (right - left)) * canvas.clientWidth,
      y: (value) => ((top - value) / (top - bottom)) * canvas.clientHeight,
      redraw() {
        const ratio = window.devicePixelRatio || 1;
        canvas.width = canvas.clientWidth * ratio;
        canvas.height = canvas.clientHeight * ratio;
        pen.scale(ratio, ratio);
        view.ink = getComputedStyle(canvas).color; // differs between light and dark pages
        draw(view);
      },
    };
    function move(x, y) {
      view.point = [clamp(x, left, right), clamp(y, bottom, top)];
      view.redraw();
    }
    function follow(event) {
      const box = canvas.getBoundingClientRect();
      move(left + ((event.clientX - box.left) / box.width) * (right - left),
        top - ((event.clientY - box.top) / box.height) * (top - bottom));
    }
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      follow(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons || hovers) follow(event);
    });
    canvas.addEventListener("keydown", (event) => {
      const [right, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1],
        ArrowDown: [0, -1] }[event.key] ?? [0, 0];
      if (!right && !up) return;
      event.preventDefault(); // the page would scroll
      move(view.point[0] + 0.1 * right, view.point[1] + 0.1 * up);
    });
    return view;
  }

  // --- regression: a gap that moves --------------------------------------------------------------

  const slider = document.querySelector("#live-line input");
  slider.max = line.students.length - 1;
  slider.value = slider.max / 2;
  const showLine = bars(document.querySelector("#live-line .live-values"),
    [["mean at <span></span>", "none"], ...PARTS]);
  const place = document.querySelector("#live-line .live-values span span");
  const grid = spaced(-6, 6, 241);
  const known = []; // students that were shown, and what they predict on the grid

  function drawLine({ pen, point, x, y, ink }) {
    const centre = line.gapCentres[slider.value];
    if (!known[slider.value]) {
      const student = liveStudent.read(line.students[slider.value]);
      const found = grid.map((v) => liveStudent.predict(student, [v]));
      known[slider.value] = { student, found };
    }
    const { student, found } = known[slider.value];
    for (const [part, color] of PARTS.slice(0, 2)) {
      const end = (i, sign) =>
        pen.lineTo(x(grid[i]), y(found[i].mean + sign * QUANTILE * Math.sqrt(found[i][part])));
      pen.beginPath();
      for (let i = 0; i < grid.length; i++) end(i, 1);
      for (let i = grid.length; i--;) end(i, -1);
      pen.fillStyle = color;
      pen.fill();
    }
    pen.fillStyle = pen.strokeStyle = ink;
    line.x.forEach((v, i) => {
      pen.globalAlpha = Math.abs(v - centre) > line.gapWidth / 2 ? 0.8 : 0.25;
      pen.beginPath();
      pen.arc(x(v), y(line.y[i]), 2, 0, 7);
      pen.fill();
    });
    pen.globalAlpha = 0.8;
    pen.font = "11px sans-serif";
    for (const tick of [-4, -2, 0, 2, 4]) pen.fillText(tick, x(tick) - 4, y(-3) - 5);
    for (const tick of [-2, -1, 0, 1, 2]) pen.fillText(tick, 5, y(tick) + 4);
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.beginPath();
    grid.forEach((v, i) => pen.lineTo(x(v), y(found[i].mean)));
    pen.stroke();
    const now = liveStudent.predict(student, [point[0]]);
    const spreads = PARTS.map(([part]) => Math.sqrt(now[part]));
    pen.strokeStyle = pen.fillStyle = ORANGE;
    pen.beginPath();
    for (const sign of [-1, 1]) pen.lineTo(x(point[0]), y(now.mean + sign * QUANTILE * spreads[0]));
    pen.stroke();
    pen.beginPath();
    pen.arc(x(point[0]), y(now.mean), 5, 0, 7);
    pen.fill();
    place.textContent = point[0].toFixed(2);
    slider.nextElementSibling.textContent = `at ${centre.toFixed(1)}`;
    showLine([now.mean, ...spreads], 1.5);
  }

  // --- classification: a point that is dragged ---------------------------------------------------

  const student = liveStudent.read(plane.student);
  const EXTENT = [-11, 11];
  const showPlane = bars(document.querySelector("#live-plane .live-values"),
    [...CLASSES.map(([sign, color]) =>
      [`class <span style="color:${color}">${sign}</span>`, color]),
      ...PARTS]);
  const map = epistemicMap(80);

  // A canvas of n by n pixels.
  function epistemicMap(n) {
    const ticks = spaced(...EXTENT, n);
    const values = [...ticks].reverse().flatMap((v) =>
      ticks.map((u) => liveStudent.predict(student, [u, v]).epistemic));
    const most = Math.max(...values), image = new ImageData(n, n);
    values.forEach((value, i) => {
      const at = (value / most) * (VIRIDIS.length - 1), low = Math.min(Math.floor(at), 3);
      const color = VIRIDIS[low].map((c, j) => c + (at - low) * (VIRIDIS[low + 1][j] - c));
      image.data.set([...color, 255], 4 * i);
    });
    const canvas = Object.assign(document.createElement("canvas"), { width: n, height: n });
    canvas.getContext("2d").putImageData(image, 0, 0);
    document.querySelector(".live-most").textContent = most.toFixed(2);
    return canvas;
  }

  function drawPlane({ pen, point, x, y }) {
    pen.drawImage(map, 0, 0, x(EXTENT[1]), y(EXTENT[0]));
    pen.font = "10px sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 2;
    plane.X.forEach(([u, v], i) => {
      const [sign, color] = CLASSES[plane.y[i]];
      pen.strokeStyle = "black";
      pen.strokeText(sign, x(u), y(v));
      pen.fillStyle = color;
      pen.fillText(sign, x(u), y(v));
    });
    for (const [color, width] of [["black", 6], ["white", 3]]) {
      Object.assign(pen, { strokeStyle: color, lineWidth: width });
      pen.beginPath();
      pen.arc(x(point[0]), y(point[1]), 9, 0, 7);
      pen.stroke();
    }
    const now = liveStudent.predict(student, point);
    showPlane([...now.probabilities, ...PARTS.map(([part]) => now[part])], 1.1);
  }

  // --- the page ----------------------------------------------------------------------------------

  document.querySelector(".live").hidden = false; // without this script it stays away
  const views = [
    picture("live-line", [-6, 6], [-3, 3], drawLine, [0, 0], true),
    picture("live-plane", EXTENT, EXTENT, drawPlane, [0, -10], false),
  ];
  const redraw = () => views.forEach((view) => view.redraw());
  slider.addEventListener("input", redraw);
  new ResizeObserver(redraw).observe(document.querySelector(".live"));
  const theme = { attributeFilter: ["data-theme"] }; // light or dark
  new MutationObserver(redraw).observe(document.documentElement, theme);
  redraw();
})();
