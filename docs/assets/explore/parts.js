// Building blocks of the explorables: elements, buttons, and a slider for mouse, touch and keyboard.
const Parts = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);
  const button = (text, onclick, attributes = {}) =>
    html("button", { type: "button", onclick, ...attributes }, text);

  function set(element, attributes, text) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined && element.textContent !== String(text)) element.textContent = text;
  }

  // Formats a number with at most this many decimals, without trailing zeros.
  const short = (number, decimals = 2) => String(Number(number.toFixed(decimals))).replace("-", "−");

  // A range input between its name and its value.
  function range(name, { min, max, step, value, oninput }) {
    const output = html("output", {}, short(value));
    const input = html("input", { type: "range", min, max, step, value, "aria-label": name });
    input.addEventListener("input", () => {
      output.textContent = short(Number(input.value));
      oninput(Number(input.value));
    });
    return html("label", { class: "explore-range" }, `${name} `, input, " ", output);
  }

  const KEYS = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 2, PageDown: -2 };

  // Turns an SVG element into a slider. `at(event)` returns the value under the pointer, `limits()` { max, step }.
  function slider(element, { name, limits, get, change, at }) {
    fill(element, { role: "slider", tabindex: 0, "aria-label": name, class: "explore-slider" }, []);
    const moveTo = (value) => change(Math.min(limits().max, Math.max(0, value)));
    element.addEventListener("keydown", (event) => {
      const { max, step } = limits();
      if (event.key in KEYS) moveTo(get() + KEYS[event.key] * step);
      else if (event.key === "Home") moveTo(0);
      else if (event.key === "End") moveTo(max);
      else return;
      event.preventDefault();
    });
    element.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // don't select text or scroll the page
      element.focus();
      element.setPointerCapture(event.pointerId);
      moveTo(at(event));
    });
    element.addEventListener("pointermove", (event) => {
      if (element.hasPointerCapture(event.pointerId)) moveTo(at(event));
    });
  }

  // Calls draw(width) now and whenever the element's width changes.
  function onWidth(element, draw) {
    let before = 0;
    new ResizeObserver(() => {
      const width = Math.floor(element.clientWidth);
      // deferred: resizing inside the observer's callback logs an error to the console
      if (width && width !== before) requestAnimationFrame(() => draw((before = width)));
    }).observe(element);
  }

  return { html, svg, button, set, short, range, slider, onWidth };
})();
