// One line chart as SVG: ticks at round numbers, labels that cannot overlap, a shared cursor.
// Drawn at the card's real width, so text keeps its size; drawn again when that changes.
"use strict";
(() => {
  const { h, svg, number } = axisrl;
  const HEIGHT = 168;
  const MARGIN = { top: 10, right: 12, bottom: 22 };
  const CHAR = 6.6;
  const Y_TICKS = 5;
  const SCORE = /^(reward\/(mean|min|max)|eval\/(accuracy|reward|pass@\d+))$/;
  const QUANTITY = /^(time|system|train)\/|frac|token|turns|queue|staleness|norm|lr$|part\//;
  const live = new Set();

  // About `count` round ticks that cover [low, high].
  function ticks(low, high, count, integers) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const factor = [1, 2, 5, 10].find((f) => f * power >= rough * 0.999);
    const step = integers ? Math.max(1, factor * power) : factor * power;
    const first = Math.ceil(low / step - 1e-9);
    const found = [];
    for (let i = first; i * step <= high + step * 1e-9; i++) found.push(i * step);
    return { step, values: found };
  }

  function tickLabel(value, step) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
    if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
    if (step < 1e-3) return value.toExponential(1).replace(".0e", "e");
    return value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  }

  // Scores are drawn on 0..1 and other quantities from 0, so that a small change looks small.
  function range(name, values) {
    let [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    if (low >= 0 && high <= 1 && SCORE.test(name)) return [0, 1];
    if (low >= 0 && QUANTITY.test(name)) low = 0;
    if (low === high) [low, high] = low ? [low - Math.abs(low) / 2, low + Math.abs(low) / 2] : [0, 1];
    const { step } = ticks(low, high, Y_TICKS);
    return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
  }

  function smoothed(points, weight) {
    let mean = 0;
    let debt = 1;
    return points.map(([x, y]) => {
      mean = weight * mean + (1 - weight) * y;
      debt *= weight;
      return [x, mean / (1 - debt)];
    });
  }

  function path(points, x, y) {
    return points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  }

  axisrl.axis = { ticks, tickLabel };
  // A chart that follows the cursor: it has `point(step)`, with null when the cursor is gone.
  axisrl.follow = (chart) => live.add(chart);

  // Every chart shows the same step under its cursor.
  axisrl.pointAt = (step) => {
    for (const chart of live) chart.point(step);
  };
  axisrl.forgetCharts = () => live.clear();

  // `points` [[step, value], ...], `band` [[step, low, high], ...], `steps` of the common axis.
  axisrl.chart = (name, title, { points, band, steps, smoothing }) => {
    const reading = h("output", { class: "reading" });
    const box = h("div", { class: "plot" });
    const first = points[0];
    const last = points[points.length - 1];
    const said = `${name}: ${number(first[1])} at step ${first[0]}, ${number(last[1])} at step ${last[0]}`;
    let cursor = null;

    function nearest(step) {
      return points.reduce((best, p) => (Math.abs(p[0] - step) < Math.abs(best[0] - step) ? p : best));
    }

    function read(point) {
      axisrl.replace(reading,
        h("span", { class: "muted" }, `step ${point[0]}`), h("b", {}, number(point[1])));
    }

    function draw() {
      const width = Math.max(220, Math.round(box.clientWidth));
      const [low, high] = range(name, [...points.map((p) => p[1]), ...band.flatMap((b) => b.slice(1))]);
      const yTicks = ticks(low, high, Y_TICKS);
      const labels = yTicks.values.map((v) => tickLabel(v, yTicks.step));
      const left = 10 + CHAR * Math.max(...labels.map((l) => l.length));
      const [x0, x1] = [steps[0], steps[steps.length - 1]];
      const plotWidth = width - left - MARGIN.right;
      const x = (v) => left + (x1 === x0 ? plotWidth / 2 : ((v - x0) / (x1 - x0)) * plotWidth);
      const y = (v) => MARGIN.top + (1 - (v - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
      const xTicks = x1 === x0 ? { step: 1, values: [x0] } : ticks(x0, x1, Math.max(2, Math.floor(plotWidth / 64)), true);

      cursor = svg("g", { class: "cursor" });
      const frame = svg("svg", {
        width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", tabindex: 0, "aria-label": said,
      },
        yTicks.values.map((v, i) => [
          svg("line", { class: "grid", x1: left, x2: width - MARGIN.right, y1: y(v), y2: y(v) }),
          svg("text", { class: "tick", x: left - 6, y: y(v) + 3.5, "text-anchor": "end" }, labels[i]),
        ]),
        xTicks.values.map((v) => svg("text", {
          class: "tick", x: x(v), y: HEIGHT - 6, "text-anchor": "middle",
        }, tickLabel(v, xTicks.step))),
        band.length > 1 && svg("path", { class: "band", d: `${path([
          ...band.map((b) => [b[0], b[1]]), ...band.map((b) => [b[0], b[2]]).reverse()], x, y)}Z` }),
        smoothing && points.length > 2
          ? [svg("path", { class: "line faint", d: path(points, x, y) }),
             svg("path", { class: "line", d: path(smoothed(points, smoothing), x, y) })]
          : svg("path", { class: points.length > plotWidth / 2 ? "line dense" : "line", d: path(points, x, y) }),
        points.length <= 40 && points.map((p) => svg("circle", {
          class: smoothing ? "dot faint" : "dot", cx: x(p[0]), cy: y(p[1]), r: points.length === 1 ? 3.5 : 2.2,
        })),
        cursor,
      );
      const stepAt = (event) => {
        const at = event.clientX - frame.getBoundingClientRect().left;
        return x0 + ((at - left) / plotWidth) * (x1 - x0);
      };
      frame.addEventListener("pointermove", (event) => axisrl.pointAt(nearest(stepAt(event))[0]));
      frame.addEventListener("pointerleave", () => axisrl.pointAt(null));
      frame.addEventListener("blur", () => axisrl.pointAt(null));
      frame.addEventListener("keydown", (event) => move(event));
      self.mark = (point) => axisrl.replace(cursor,
        svg("line", { x1: x(point[0]), x2: x(point[0]), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
        svg("circle", { class: "dot", cx: x(point[0]), cy: y(point[1]), r: 4 }));
      axisrl.replace(box, frame);
      read(last);
    }

    function move(event) {
      const at = points.indexOf(self.at || last);
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: points.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      axisrl.pointAt(points[Math.min(points.length - 1, Math.max(0, to))][0]);
    }

    const self = {
      at: null,
      mark: () => {},
      point(step) {
        self.at = step === null ? null : nearest(step);
        if (self.at) self.mark(self.at);
        else if (cursor) axisrl.replace(cursor);
        read(self.at || last);
      },
    };
    live.add(self);
    let drawn = 0;
    new ResizeObserver(() => {
      if (box.clientWidth && box.clientWidth !== drawn) {
        drawn = box.clientWidth;
        draw();
      }
    }).observe(box);
    return h("figure", { class: "card chart" },
      h("figcaption", {}, h("span", { class: "name", title: name }, title), reading), box);
  };
})();
