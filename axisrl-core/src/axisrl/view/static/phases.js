// Where the time of each step went: its phases one on the other, and beside them who waited.
"use strict";
(() => {
  const { h, svg, number } = axisrl;
  const HEIGHT = 190;
  const MARGIN = { top: 10, right: 12, bottom: 22 };
  const CHAR = 6.6;
  const PHASES = [
    ["time/rollout_s", "rollouts"], ["time/score_s", "scoring"], ["time/train_s", "training"],
    ["time/sync_s", "weight sync"], ["time/eval_s", "evaluation"],
  ];
  const WAITS = [["time/trainer_wait_frac", "trainer waited"], ["time/engine_idle_frac", "engines idle"]];
  const percent = (share) => `${Math.round(100 * share)} %`;

  // The phases that a run measured, bottom first: [[name, title, class], ...].
  function measured(run) {
    return PHASES.map(([name, title], i) => [name, title, `phase-${i}`])
      .filter(([name]) => axisrl.series(run, name).some((point) => point[1] > 0));
  }

  // [{ step, entry, total, parts: [[class, low, high], ...] }, ...]
  function stacks(run, phases) {
    return run.metrics.filter((entry) => phases.some(([name]) => entry[name] > 0)).map((entry) => {
      let total = 0;
      const parts = phases.map(([name, , kind]) => {
        const low = total;
        total += entry[name] || 0;
        return [kind, low, total];
      });
      return { step: entry.step, entry, total, parts };
    });
  }

  function reading(bar, phases) {
    const seconds = phases.filter(([name]) => bar.entry[name] > 0).map(([name, title, kind]) =>
      h("span", { class: "key" }, h("i", { class: kind }), `${title} `, h("b", {}, `${number(bar.entry[name])} s`)));
    const shares = WAITS.filter(([name]) => typeof bar.entry[name] === "number").map(([name, title]) =>
      h("span", { class: "key" }, `${title} `, h("b", {}, percent(bar.entry[name]))));
    return [h("span", { class: "muted" }, `step ${bar.step}`), seconds, shares];
  }

  function frame(width, bars, steps) {
    const high = Math.max(...bars.map((bar) => bar.total));
    const yTicks = axisrl.axis.ticks(0, high, 4);
    const labels = yTicks.values.map((v) => axisrl.axis.tickLabel(v, yTicks.step));
    const left = 10 + CHAR * Math.max(...labels.map((label) => label.length));
    const [x0, x1] = [steps[0], steps[steps.length - 1]];
    const plotWidth = width - left - MARGIN.right;
    const slot = plotWidth / (x1 - x0 + 1);
    const thick = Math.max(0.5, slot > 4 ? Math.min(slot * 0.8, 48) : slot);
    const x = (step) => left + (step - x0 + 0.5) * slot;
    const y = (v) => MARGIN.top + (1 - v / high) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const xTicks = axisrl.axis.ticks(x0, x1, Math.max(2, Math.floor(plotWidth / 64)), true);
    const drawn = svg("svg", {
      width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img",
      "aria-label": `Seconds of each phase at ${bars.length} steps`,
    },
      yTicks.values.map((v, i) => [
        svg("line", { class: "grid", x1: left, x2: width - MARGIN.right, y1: y(v), y2: y(v) }),
        svg("text", { class: "tick", x: left - 6, y: y(v) + 3.5, "text-anchor": "end" }, labels[i]),
      ]),
      xTicks.values.map((v) => svg("text", {
        class: "tick", x: x(v), y: HEIGHT - 6, "text-anchor": "middle",
      }, axisrl.axis.tickLabel(v, xTicks.step))),
      bars.map((bar) => bar.parts.filter(([, low, top]) => top > low).map(([kind, low, top]) =>
        svg("rect", { class: kind, x: x(bar.step) - thick / 2, width: thick, y: y(top), height: y(low) - y(top) }))),
    );
    return { drawn, x, at: (pixel) => x0 + (pixel - left) / slot - 0.5 };
  }

  // A wide card, or nothing for a run that measured no phase.
  axisrl.phases = (run, steps) => {
    const phases = measured(run);
    const bars = stacks(run, phases);
    if (!bars.length) return null;
    const line = h("output", { class: "reading keys" });
    const box = h("div", { class: "plot tall" });
    const last = bars[bars.length - 1];
    const nearest = (step) => bars.reduce((best, bar) =>
      (Math.abs(bar.step - step) < Math.abs(best.step - step) ? bar : best));
    let mark = () => {};

    function draw() {
      const { drawn, x, at } = frame(Math.max(220, Math.round(box.clientWidth)), bars, steps);
      const cursor = svg("g", { class: "cursor" });
      drawn.append(cursor);
      mark = (bar) => axisrl.replace(cursor, bar &&
        svg("line", { x1: x(bar.step), x2: x(bar.step), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
      drawn.addEventListener("pointermove", (event) =>
        axisrl.pointAt(nearest(at(event.clientX - drawn.getBoundingClientRect().left)).step));
      drawn.addEventListener("pointerleave", () => axisrl.pointAt(null));
      axisrl.replace(box, drawn);
    }

    axisrl.follow({
      point(step) {
        const bar = step === null ? null : nearest(step);
        mark(bar);
        axisrl.replace(line, ...reading(bar || last, phases));
      },
    });
    axisrl.replace(line, ...reading(last, phases));
    let width = 0;
    new ResizeObserver(() => {
      if (box.clientWidth && box.clientWidth !== width) {
        width = box.clientWidth;
        draw();
      }
    }).observe(box);
    return h("figure", { class: "card chart wide" },
      h("figcaption", {}, h("span", { class: "name" }, "Phases of each step, seconds"), line), box);
  };
})();
