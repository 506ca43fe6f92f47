// Before and after: the same held-out tasks at two evaluations, side by side.
"use strict";
(() => {
  const { h, number } = axisrl;
  const KINDS = [
    ["fixed", "Newly right"], ["broken", "Newly wrong"], ["right", "Right both times"], ["wrong", "Wrong both times"],
  ];
  const PAGE = 40;
  const chosen = { before: null, after: null, kind: "all" };

  // An evaluation writes each task's greedy answer first; only that one is the same draw twice.
  function greedy(rows) {
    const first = new Map();
    for (const row of rows) {
      if (!first.has(row.summary.task_id)) first.set(row.summary.task_id, row);
    }
    return first;
  }

  function kindOf(before, after) {
    if (before.summary.passed) return after.summary.passed ? "right" : "broken";
    return after.summary.passed ? "fixed" : "wrong";
  }

  async function pairs() {
    const [before, after] = await Promise.all(
      [chosen.before, chosen.after].map((step) => axisrl.data.rollouts("eval", step)));
    const later = greedy(after);
    return [...greedy(before)]
      .filter(([task]) => later.has(task))
      .map(([task, row]) => ({ before: row, after: later.get(task), kind: kindOf(row, later.get(task)) }));
  }

  function side(title, row) {
    const { passed, reward, sampled_tokens: tokens } = row.summary;
    return h("div", { class: `side ${passed ? "pass" : "fail"}` },
      h("h4", {},
        h("span", { class: "mark" }, passed ? "✓ right" : "✗ wrong"), title,
        h("span", { class: "muted" }, `reward ${number(reward)} · ${tokens} tok`)),
      h("pre", {}, axisrl.lastSaid(row, "assistant") || "(empty)"));
  }

  function card(pair) {
    return h("article", { class: "card pair" },
      h("h3", { class: "mono" }, pair.before.summary.task_id),
      h("pre", { class: "question" }, axisrl.lastSaid(pair.before, "user")),
      h("div", { class: "sides" },
        side(`step ${chosen.before}`, pair.before), side(`step ${chosen.after}`, pair.after)));
  }

  axisrl.answers = async (run) => {
    if (run.evals.length < 2) {
      return h("p", { class: "empty" }, "Two evaluations with saved rollouts make a comparison; this run has "
        + `${run.evals.length}.`);
    }
    if (!run.evals.includes(chosen.before)) chosen.before = run.evals[0];
    if (!run.evals.includes(chosen.after)) chosen.after = run.evals[run.evals.length - 1];
    const toolbar = h("div", { class: "toolbar" });
    const body = h("div", {});
    const steps = run.evals.map((step) => [step, `step ${step}`]);

    async function draw(limit) {
      const all = await pairs();
      const shown = all.filter((pair) => chosen.kind === "all" || pair.kind === chosen.kind);
      const tab = (kind, title, count) => h("button", {
        class: `chip ${kind}`, "aria-pressed": String(chosen.kind === kind),
        onclick: () => { chosen.kind = kind; draw(PAGE); },
      }, title, h("b", {}, count));
      axisrl.replace(toolbar,
        axisrl.select("Before", steps, chosen.before, (v) => { chosen.before = Number(v); draw(PAGE); }),
        axisrl.select("After", steps, chosen.after, (v) => { chosen.after = Number(v); draw(PAGE); }),
        h("span", { class: "chips", role: "group", "aria-label": "Which tasks" },
          tab("all", "All", all.length),
          KINDS.map(([kind, title]) => tab(kind, title, all.filter((pair) => pair.kind === kind).length))));
      axisrl.replace(body, shown.slice(0, limit).map(card),
        shown.length > limit && h("button", { class: "more", onclick: () => draw(limit + PAGE) },
          `Show ${Math.min(PAGE, shown.length - limit)} more of ${shown.length - limit}`),
        !shown.length && h("p", { class: "empty" }, "No task is in this class."));
    }
    await draw(PAGE);
    return h("div", {}, toolbar, body);
  };
})();
