// Where the page's data comes from: the server it was loaded from, or the file it is part of.
"use strict";
(() => {
  const embedded = document.getElementById("data");
  const file = embedded && JSON.parse(embedded.textContent);
  const cache = new Map();
  let etag = "";

  async function ask(path, headers) {
    const answer = await fetch(path, { headers });
    if (answer.status === 304) return null;
    if (!answer.ok) throw new Error(`the server answered ${answer.status} to ${path}`);
    etag = answer.headers.get("ETag") || etag;
    return answer.json();
  }

  axisrl.data = {
    isFile: Boolean(file),

    // The run's overview; null when nothing changed since the last call.
    async run() {
      if (file) return file.run;
      const run = await ask("/api/run", etag ? { "If-None-Match": etag } : {});
      if (run) cache.clear();
      return run;
    },

    async rollouts(kind, step) {
      const key = `${kind}/${step}`;
      if (file) return file.rollouts[key] || [];
      if (!cache.has(key)) cache.set(key, await ask(`/api/rollouts/${key}`));
      return cache.get(key);
    },
  };

  // [[step, value], ...] of one metric, holes left out.
  axisrl.series = (run, name) =>
    run.metrics
      .filter((entry) => typeof entry[name] === "number")
      .map((entry) => [entry.step, entry[name]]);

  axisrl.metricNames = (run) => {
    const names = new Set(run.metrics.flatMap((entry) => Object.keys(entry)));
    const bound = (name) => names.has(name.replace(/_(low|high)$/, "")) && /_(low|high)$/.test(name);
    return [...names].filter((name) =>
      !["step", "time"].includes(name) && !bound(name) && axisrl.series(run, name).length);
  };

  // [[step, low, high], ...] where a metric has its confidence interval beside it.
  axisrl.band = (run, name) =>
    run.metrics
      .filter((entry) => typeof entry[`${name}_low`] === "number" && typeof entry[`${name}_high`] === "number")
      .map((entry) => [entry.step, entry[`${name}_low`], entry[`${name}_high`]]);

  axisrl.lastSaid = (row, role) => {
    const said = row.messages.filter((message) => message.role === role);
    return said.length ? said[said.length - 1].content : "";
  };
})();
