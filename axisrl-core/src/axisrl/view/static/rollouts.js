// The rollout browser: a step's groups on the left, one rollout whole on the right.
"use strict";
(() => {
  const { h, number } = axisrl;
  const REWARDS = [["any", "any"], ["high", "above 0"], ["low", "0 or below"], ["none", "not scored"]];
  const chosen = { file: null, row: 0, outcome: "any", reward: "any", text: "" };
  let rows = [];
  let shown = [];

  const id = (row) => row.summary.id;
  const files = (run) => [
    ...run.steps.map((step) => [`step/${step}`, `step ${step}`]),
    ...run.evals.map((step) => [`eval/${step}`, `evaluation at ${step}`]),
  ];

  const REWARD_TESTS = {
    any: () => true,
    high: (reward) => reward > 0,
    low: (reward) => reward !== null && reward <= 0,
    none: (reward) => reward === null,
  };

  function matches(row) {
    const { outcome, reward } = row.summary;
    if (chosen.outcome !== "any" && outcome !== chosen.outcome) return false;
    if (!REWARD_TESTS[chosen.reward](reward)) return false;
    const text = chosen.text.toLowerCase();
    return !text || row.messages.some((m) => m.content.toLowerCase().includes(text));
  }

  function grouped(list) {
    const groups = new Map();
    for (const row of list) {
      const key = row.summary.group;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    return [...groups.values()];
  }

  function meanReward(group) {
    const scored = group.map((row) => row.summary.reward).filter((reward) => reward !== null);
    return scored.length ? scored.reduce((a, b) => a + b, 0) / scored.length : null;
  }

  function bar(reward, low, high) {
    const element = h("span", { class: "bar", "aria-hidden": "true" }, h("i", {}));
    const share = reward === null ? 0 : high > low ? (reward - low) / (high - low) : 1;
    element.firstChild.style.width = `${Math.round(100 * Math.max(0, share))}%`;
    return element;
  }

  function list(select) {
    const rewards = rows.map((row) => row.summary.reward).filter((reward) => reward !== null);
    const [low, high] = [Math.min(0, ...rewards), Math.max(0, ...rewards)];
    return grouped(shown).map((group) =>
      h("section", { class: "group" },
        h("h3", {},
          h("span", { class: "task", title: group[0].summary.task_id }, group[0].summary.task_id),
          h("span", { class: "muted" }, `mean ${number(meanReward(group))}`)),
        group.map((row) => {
          const at = shown.indexOf(row);
          return h("button", {
            class: "row", "data-at": at, "aria-current": at === chosen.row ? "true" : null,
            onclick: () => select(at),
          },
            h("span", { class: "member" }, `#${row.summary.member}`),
            bar(row.summary.reward, low, high),
            h("span", { class: "value" }, number(row.summary.reward)),
            h("span", { class: `outcome ${row.summary.outcome}` }, row.summary.outcome.replace("_", " ")),
            h("span", { class: "muted tokens" }, `${row.summary.sampled_tokens} tok`));
        })));
  }

  function facts(row) {
    const s = row.summary;
    const pairs = [
      ["Reward", number(s.reward)], ["Advantage", number(row.advantage)],
      ["Outcome", s.outcome.replace("_", " ")], ["Passed", s.passed ? "yes" : "no"],
      ["Turns", s.turns], ["Prompt tokens", s.prompt_tokens], ["Sampled tokens", s.sampled_tokens],
      ["Weight version", s.versions[0] === s.versions[1] ? s.versions[0] : s.versions.join("–")],
      ["Seconds", number(s.seconds)],
    ];
    return h("dl", { class: "facts" },
      pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  function verdicts(row) {
    const parts = Object.entries(row.summary.parts);
    const judged = Object.entries(row.verdicts);
    if (!parts.length && !judged.length) return null;
    return h("table", { class: "verdicts" },
      h("thead", {}, h("tr", {}, ["Verdict or part", "Score", "Passed", "Detail"].map((t) => h("th", {}, t)))),
      h("tbody", {},
        judged.map(([name, v]) => h("tr", {},
          h("td", {}, name), h("td", {}, number(v.score)), h("td", {}, v.passed ? "✓ yes" : "✗ no"),
          h("td", { class: v.error ? "error" : "" }, v.error || v.detail))),
        parts.map(([name, value]) => h("tr", {},
          h("td", {}, name), h("td", {}, number(value)), h("td", { class: "muted" }, "reward part"), h("td", {})))));
  }

  function calls(message) {
    return (message.tool_calls || []).map((call) =>
      h("pre", { class: "call" }, `${call.function.name}(${JSON.stringify(call.function.arguments)})`));
  }

  function detail(row) {
    if (!row) return h("p", { class: "empty" }, "No rollout matches the filters.");
    return h("article", {},
      h("h2", {}, h("span", { class: "mono" }, row.summary.task_id), h("span", { class: "muted" }, ` rollout ${row.summary.member}`)),
      facts(row),
      row.summary.error && h("p", { class: "error" }, row.summary.error),
      verdicts(row),
      row.messages.map((message) =>
        h("section", { class: `message ${message.role}` },
          h("h3", {}, message.name ? `${message.role} · ${message.name}` : message.role),
          message.content === "" ? h("p", { class: "muted" }, "(empty)") : h("pre", {}, message.content),
          calls(message))));
  }

  axisrl.rollouts = async (run) => {
    const all = files(run);
    if (!all.length) return h("p", { class: "empty" }, "This run has saved no rollouts yet.");
    if (!all.some(([key]) => key === chosen.file)) chosen.file = all[Math.max(0, run.steps.length - 1)][0];
    const left = h("div", { class: "list", role: "group", "aria-label": "Rollouts" });
    const right = h("div", { class: "detail", tabindex: "-1" });
    const count = h("span", { class: "muted count" });
    const toolbar = h("div", { class: "toolbar" });

    function select(at) {
      chosen.row = Math.max(0, Math.min(at, shown.length - 1));
      for (const button of left.querySelectorAll(".row")) {
        const current = Number(button.dataset.at) === chosen.row;
        button.toggleAttribute("aria-current", current);
        if (current) button.scrollIntoView({ block: "nearest" });
      }
      axisrl.replace(right, detail(shown[chosen.row]));
      right.scrollTop = 0;
    }

    function filter() {
      const current = shown[chosen.row];
      shown = rows.filter(matches);
      axisrl.replace(count, document.createTextNode(`${shown.length} of ${rows.length} rollouts`));
      axisrl.replace(left, list(select));
      select(Math.max(0, shown.findIndex((row) => current && id(row) === id(current))));
    }

    async function open(key) {
      chosen.file = key;
      rows = await axisrl.data.rollouts(...key.split("/"));
      const outcomes = [...new Set(rows.map((row) => row.summary.outcome))].sort();
      if (!outcomes.includes(chosen.outcome)) chosen.outcome = "any";
      drawToolbar(outcomes);
      filter();
    }

    function turn(by) {
      const at = all.findIndex(([key]) => key === chosen.file) + by;
      if (all[at]) open(all[at][0]);
    }

    function drawToolbar(outcomes) {
      const search = h("input", {
        type: "search", class: "search", placeholder: "Search messages  ( / )", "aria-label": "Search messages",
        value: chosen.text, oninput: () => { chosen.text = search.value.trim(); filter(); },
      });
      axisrl.replace(toolbar,
        h("span", { class: "stepper" },
          h("button", { title: "Previous  ( [ )", "aria-label": "Previous step", onclick: () => turn(-1) }, "‹"),
          axisrl.select("From", all, chosen.file, open),
          h("button", { title: "Next  ( ] )", "aria-label": "Next step", onclick: () => turn(1) }, "›")),
        axisrl.select("Outcome", [["any", "any"], ...outcomes.map((o) => [o, o.replace("_", " ")])],
          chosen.outcome, (value) => { chosen.outcome = value; filter(); }),
        axisrl.select("Reward", REWARDS, chosen.reward, (value) => { chosen.reward = value; filter(); }),
        search, count);
    }

    axisrl.keys = {
      j: () => select(chosen.row + 1), k: () => select(chosen.row - 1),
      "]": () => turn(1), "[": () => turn(-1),
    };
    await open(chosen.file);
    return h("div", {}, toolbar, h("div", { class: "browser" }, left, right));
  };
})();
