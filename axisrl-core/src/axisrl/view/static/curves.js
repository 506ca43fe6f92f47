// The curves: every metric in sections by the first word of its name, most asked-for first.
"use strict";
(() => {
  const { h } = axisrl;
  const TIME = "Time, seconds and shares";
  const SECTIONS = [
    ["reward", "Reward"], ["eval", "Held-out evaluation"], ["loss", "Loss"], ["train", "Training"],
    ["optim", "Optimizer"], ["rollout", "Rollouts"], ["mismatch", "Engine and trainer agreement"],
    ["filter", "Filters"], ["weights", "Weights"], ["time", TIME], ["system", "System"],
  ];
  const FIRST = ["reward/mean", "eval/accuracy", "loss/total"];
  const LEVELS = [["0", "none"], ["0.6", "some"], ["0.9", "strong"]];
  const chosen = { smoothing: "0", filter: "" };

  function sections(names) {
    const groups = new Map(SECTIONS.map(([prefix, title]) => [prefix, { title, names: [] }]));
    for (const name of names) {
      const prefix = name.split("/")[0];
      if (!groups.has(prefix)) groups.set(prefix, { title: prefix, names: [] });
      groups.get(prefix).names.push(name);
    }
    return [...groups.values()].filter((group) => group.names.length);
  }

  function inOrder(names) {
    const rank = (name) => (FIRST.includes(name) ? 0 : 1);
    return names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
  }

  function shortName(name) {
    return name.includes("/") ? name.slice(name.indexOf("/") + 1) : name;
  }

  function draw(run, body) {
    axisrl.forgetCharts();
    const steps = run.metrics.map((entry) => entry.step);
    const names = axisrl.metricNames(run).filter((name) => name.includes(chosen.filter));
    axisrl.replace(body, sections(names).map((group) =>
      h("section", {},
        h("h2", {}, group.title),
        group.title === TIME && axisrl.phases(run, steps),
        h("div", { class: "charts" }, inOrder(group.names).map((name) =>
          axisrl.chart(name, shortName(name), {
            points: axisrl.series(run, name), band: axisrl.band(run, name), steps, smoothing: Number(chosen.smoothing),
          }))))));
    if (!names.length) {
      axisrl.replace(body, h("p", { class: "empty" },
        chosen.filter ? `No metric has “${chosen.filter}” in its name.` : "No step is finished yet."));
    }
  }

  axisrl.curves = (run) => {
    const body = h("div", {});
    const filter = h("input", {
      type: "search", placeholder: "Filter metrics  ( / )", value: chosen.filter, "aria-label": "Filter metrics",
      class: "search",
      oninput: () => { chosen.filter = filter.value.trim(); draw(run, body); },
    });
    draw(run, body);
    return h("div", {},
      h("div", { class: "toolbar" },
        filter,
        axisrl.select("Smoothing", LEVELS, chosen.smoothing, (value) => {
          chosen.smoothing = value;
          draw(run, body);
        })),
      body);
  };
})();
