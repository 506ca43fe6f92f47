// Builds elements. Text always becomes a text node: nothing here, or anywhere, parses markup.
"use strict";
globalThis.axisrl = {};
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === undefined || child === null || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  axisrl.h = (tag, attributes, ...children) =>
    fill(document.createElement(tag), attributes, children);

  axisrl.svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  axisrl.replace = (element, ...children) => {
    element.replaceChildren(...children.flat(Infinity).filter(Boolean));
    return element;
  };

  axisrl.select = (label, options, value, change) => {
    const select = axisrl.h(
      "select",
      { "aria-label": label, onchange: () => change(select.value) },
      options.map(([key, text]) =>
        axisrl.h("option", { value: key, selected: String(key) === String(value) }, text)),
    );
    return axisrl.h("label", { class: "field" }, axisrl.h("span", {}, label), select);
  };

  // A number as a person writes it: no more digits than say something.
  axisrl.number = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (Number.isInteger(value)) return size < 1e15 ? value.toLocaleString("en") : value.toExponential(2);
    if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
    if (size < 1e-3) return value.toExponential(2);
    return String(Number(value.toPrecision(3)));
  };

  axisrl.duration = (seconds) => {
    if (!(seconds > 0)) return "–";
    const [h, m, s] = [seconds / 3600, (seconds % 3600) / 60, seconds % 60].map(Math.floor);
    if (h) return `${h} h ${m} min`;
    return m ? `${m} min ${s} s` : `${s} s`;
  };
})();
