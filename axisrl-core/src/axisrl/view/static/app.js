// The frame: header, tabs, keyboard, theme, and watching a run that goes on.
"use strict";
(() => {
  const { h, number } = axisrl;
  const TABS = [["curves", "Curves"], ["rollouts", "Rollouts"], ["answers", "Before and after"]];
  const HELP = [["1 2 3", "tabs"], ["/", "search"], ["j k", "next, previous rollout"], ["[ ]", "step"], ["← →", "read a focused chart"]];
  const WATCH_MS = 3000;
  const THEMES = ["auto", "light", "dark"];
  const app = document.getElementById("app");
  const head = h("header", {});
  const main = h("main", { id: "view", tabindex: "-1" });
  let run = null;

  // A page opened as a file may be denied storage; the theme then lasts as long as the page.
  const memory = {
    get: () => { try { return localStorage.getItem("axisrl-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("axisrl-theme", value); } catch { /* see above */ } },
  };
  let theme = THEMES.includes(memory.get()) ? memory.get() : "auto";

  const tab = () => (TABS.some(([key]) => `#${key}` === location.hash) ? location.hash.slice(1) : "curves");

  function tile(title, value, note) {
    return h("div", { class: "tile" },
      h("span", { class: "muted" }, title), h("b", {}, value), note && h("span", { class: "muted" }, note));
  }

  function change(title, name) {
    const points = axisrl.series(run, name);
    if (!points.length) return null;
    const [from, to] = [points[0], points[points.length - 1]];
    return tile(title,
      from === to ? number(to[1]) : `${number(from[1])} → ${number(to[1])}`,
      from === to ? `step ${to[0]}` : `step ${from[0]} to ${to[0]}`);
  }

  function tiles() {
    const last = run.metrics[run.metrics.length - 1];
    return h("div", { class: "tiles" },
      change("Training reward", "reward/mean"),
      change("Held-out accuracy, greedy", "eval/accuracy"),
      tile("Steps", last ? number(last.step) : "–", "optimizer updates"),
      last && tile("Time", axisrl.duration(last.time - run.metrics[0].time), "first to last step"));
  }

  function cycleTheme() {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    memory.set(theme);
    drawHead();
  }

  function drawHead() {
    document.title = `${run.name} · axisrl`;
    document.documentElement.dataset.theme = theme;
    axisrl.replace(head,
      h("div", { class: "title" },
        h("h1", {}, run.name),
        h("span", { class: `state ${run.state}` }, run.state),
        run.manifest.recipe && h("span", { class: "muted mono" }, run.manifest.recipe),
        h("button", { class: "theme", onclick: cycleTheme, title: "Colours" }, `theme: ${theme}`)),
      tiles(),
      (run.resume || run.command) && h("p", { class: "command" },
        h("span", { class: "muted" }, run.resume ? "go on with" : "started with"), h("code", {}, run.resume || run.command)),
      run.left_out > 0 && h("p", { class: "note" },
        `${run.left_out} rollout files are not in this page; they would make it too large.`),
      h("nav", { role: "tablist", "aria-label": "Views" }, TABS.map(([key, title]) =>
        h("a", { href: `#${key}`, role: "tab", "aria-selected": String(key === tab()), "aria-controls": "view" }, title))));
  }

  async function drawMain() {
    axisrl.keys = {};
    const view = await axisrl[tab()](run);
    axisrl.replace(main, view);
  }

  async function draw() {
    drawHead();
    await drawMain();
  }

  // A watched page must not take a field away from under the reader's fingers.
  const busy = () => main.contains(document.activeElement)
    && ["INPUT", "SELECT"].includes(document.activeElement.tagName);

  async function watch() {
    try {
      const fresh = await axisrl.data.run();
      if (fresh) {
        run = fresh;
        drawHead();
        if (!busy()) await drawMain();
      }
    } catch {
      // The server is gone: what is drawn stays true of the moment it was drawn.
      return;
    }
    if (run.state === "running") setTimeout(watch, WATCH_MS);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (event.key === "Escape" && typing) document.activeElement.blur();
    if (typing) return;
    const number = Number(event.key);
    if (TABS[number - 1]) location.hash = TABS[number - 1][0];
    else if (event.key === "/" && main.querySelector(".search")) main.querySelector(".search").focus();
    else if (axisrl.keys[event.key]) axisrl.keys[event.key]();
    else return;
    event.preventDefault();
  }

  async function start() {
    run = await axisrl.data.run();
    axisrl.replace(app, head, main,
      h("footer", {}, HELP.map(([keys, what]) => h("span", {}, h("kbd", {}, keys), what))));
    await draw();
    addEventListener("hashchange", draw);
    addEventListener("keydown", onKey);
    if (!axisrl.data.isFile && run.state === "running") setTimeout(watch, WATCH_MS);
  }

  start().catch((problem) => {
    axisrl.replace(app, h("p", { class: "empty error" }, `This run cannot be shown: ${problem.message}`));
  });
})();
