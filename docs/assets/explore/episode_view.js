// The explorable episode: <div data-explore="episode"></div>. Its windows and goals are in episode_model.js.
const EpisodeView = (() => {
  const { html, svg, button, set, short, range, slider, onWidth } = Parts;
  const [STEPS, LENGTH, BURN_IN] = [9, 6, 3]; // the largest of each, so that every number has one digit
  const ACHIEVED = [1, 2, 3, 2, 3, 4, 5, 4, 3]; // positions after the steps of a walk that starts at 0
  const GOAL = 7; // the stored goal, which the walk misses
  const SEED = 2;
  // Widths and heights in pixels: the names, a cell, a row, the strip, and what is between it and the rows.
  const [NAMES, CELL, ROW, STRIP, GAP, BAR] = [76, 24, 28, 44, 76, 7];
  const STRIP_CELLS = STRIP - CELL - 4; // leaves room for the outline of the focus

  function start(place) {
    const random = TreeModel.randomNumbers(SEED);
    const now = { mode: "windows", steps: STEPS, ended: true, step: 6 };
    Object.assign(now, { length: 4, burnIn: 2, period: 2, boundary: "pad" });
    Object.assign(now, { strategy: "future", n: 3, gamma: 0.9, achieved: ACHIEVED, uniform: random() });
    let width = 0;

    function change(values) {
      Object.assign(now, values);
      now.step = Math.min(now.step, now.steps - 1);
      update();
    }

    // Elements

    function choice(name, key, options) {
      const select = html("select", { onchange: () => change({ [key]: select.value }) });
      select.append(...options.map((option) => html("option", {}, option)));
      return html("label", {}, `${name}: `, select);
    }

    const number = (name, key, min, max) =>
      range(name, { min, max, step: 1, value: now[key], oninput: (value) => change({ [key]: value }) });
    const bar = (...controls) => html("div", { class: "explore-bar" }, ...controls);
    const onchange = () => change({ ended: ended.checked });
    const ended = html("input", { type: "checkbox", checked: "", onchange });
    const draw = button("Draw another goal", () => change({ uniform: random() }));
    const bars = {
      windows: bar(
        number("length", "length", 1, LENGTH),
        number("burn-in", "burnIn", 0, BURN_IN),
        number("period", "period", 1, LENGTH),
        choice("boundary", "boundary", EpisodeModel.BOUNDARIES),
      ),
      goals: bar(choice("strategy", "strategy", EpisodeModel.STRATEGIES), number("n", "n", 1, 5), draw),
    };
    const strip = svg("g");
    const note = (y, text) => svg("text", { y, class: "explore-note" }, text);
    const name = note(STRIP_CELLS + 17, "episode");
    const top = svg("svg", { class: "explore-picture", height: STRIP }, name, strip);
    const below = svg("svg", { class: "explore-picture", height: GAP + 4 * ROW, role: "img" });
    const frame = html("div", { class: "explore-frame" }, top, below);
    const message = html("p", { class: "explore-message", role: "status" });
    const ofBoth = bar(
      choice("show", "mode", Object.keys(bars)),
      number("steps", "steps", 1, STEPS),
      html("label", {}, ended, " episode ended"),
    );
    place.append(ofBoth, ...Object.values(bars), frame, message);
    slider(strip, {
      name: "step",
      limits: () => ({ max: now.steps - 1, step: 1 }),
      get: () => now.step,
      change: (value) => change({ step: Math.floor(value) }),
      at: (event) => (event.clientX - top.getBoundingClientRect().left - left(0)) / column(),
    });

    // Drawing

    // Each step has a column. A window may begin before the episode and extend beyond its end.
    const firstColumn = () => (now.mode === "windows" ? -BURN_IN : 0);
    const lastColumn = () => (now.mode === "windows" ? STEPS + LENGTH - 1 : STEPS);
    const column = () => Math.min(48, (width - NAMES - 4) / (lastColumn() - firstColumn() + 1));
    const left = (step) => NAMES + (step - firstColumn()) * column();
    const middle = (step) => left(step) + column() / 2;
    const cellAt = (step, y, attributes) =>
      svg("rect", { x: left(step) + 1, y, width: column() - 2, height: CELL, rx: 4, ...attributes });

    // A cell is round if it holds only an observation.
    function drawCells(y, cells) {
      return cells.flatMap(({ step, text, look = "", isFaint, isObservation }) => {
        const [ofCell, ofText] = isFaint ? ["explore-empty", "explore-note"] : [look, ""];
        return [
          cellAt(step, y, { class: `explore-cell ${ofCell}`, rx: isObservation ? CELL / 2 : 4 }),
          svg("text", { x: middle(step), y: y + 17, class: `explore-middle ${ofText}` }, text),
        ];
      });
    }

    const drawRows = (rows) =>
      Object.entries(rows).flatMap(([name, cells], i) => {
        const y = GAP + i * ROW;
        return [note(y + 17, name), ...drawCells(y, cells)];
      });

    const arrowhead = (step, y) =>
      svg("path", { d: `M${middle(step) - 5} ${y}h10l-5 8z`, class: "explore-mark" });

    // The strip, with a look for each step and a mark above the steps where a window starts.
    function drawStrip(lookOf, starts) {
      const steps = ACHIEVED.slice(0, now.steps).keys();
      const cells = Array.from(steps, (step) => ({ step, text: step, look: lookOf(step) }));
      cells.push({ step: now.steps, text: now.steps, isObservation: true });
      const marks = starts.map((step) => arrowhead(step, 6));
      const selected = cellAt(now.step, STRIP_CELLS, { class: "explore-cell explore-passed" });
      strip.replaceChildren(...drawCells(STRIP_CELLS, cells), ...marks, selected);
      set(strip, {
        "aria-valuemin": 0,
        "aria-valuemax": now.steps - 1,
        "aria-valuenow": now.step,
        "aria-valuetext": `step ${now.step}${starts.includes(now.step) ? ", where a window starts" : ""}`,
      });
    }

    function drawWindows() {
      const starts = EpisodeModel.starts(now);
      const entries = starts.includes(now.step) ? EpisodeModel.windowAt(now, now.step) : [];
      const steps = entries.slice(0, -1); // the last entry is only an observation
      const lookOf = ({ valid, learn }) => (learn ? "explore-learn" : valid ? "explore-unroll" : "");
      drawStrip((step) => lookOf(entries.find((entry) => entry.step === step) ?? {}), starts);
      const cell = (entry, text, is) => ({ step: entry.step, text, isFaint: !is, look: lookOf(entry) });
      const rows = {
        time: steps.map(({ step, time }) => ({ step, text: time, look: "explore-empty" })),
        obs: entries.map((entry) => ({
          ...cell(entry, entry.real ? entry.step : "–", entry.real),
          isObservation: entry.real && !entry.valid,
        })),
        valid: steps.map((entry) => cell(entry, Number(entry.valid), entry.valid)),
        learn: steps.map((entry) => cell(entry, Number(entry.learn), entry.learn)),
      };
      below.replaceChildren(
        note(18, "windows"),
        ...starts.flatMap((start, i) => barOfWindow(start, 6 + BAR * i)),
        ...drawRows(rows),
      );
      const described = entries.map(({ time, step, real, valid, learn }) => {
        const name = `step ${step}, ${learn ? "learn" : "burn-in"}`;
        return `time ${time}: ${valid ? name : real ? `observation ${step}` : "padding"}`;
      });
      set(below, { "aria-label": described.join("; ") || "No window." });
      message.textContent = EpisodeWords.window(now, now.step);
    }

    // A window as a bar: burn-in is thin, and padding is only an outline.
    function barOfWindow(start, y) {
      const bar = (from, to, attributes) =>
        svg("rect", { x: left(from), y, width: (to - from) * column(), height: BAR - 2, ...attributes });
      const end = Math.min(start + now.length, now.steps);
      const look = start === now.step ? "explore-mark" : "explore-fill";
      return [
        bar(Math.max(0, start - now.burnIn), start, { class: look, y: y + 2, height: 1.5 }),
        bar(start, end, { class: look }),
        bar(end, start + now.length, { class: "explore-cell" }),
      ];
    }

    function drawGoals() {
      const choices = EpisodeModel.goalSteps(now, now.step, now.strategy);
      const goalStep = choices.length ? choices[Math.floor(now.uniform * choices.length)] : null;
      const goal = goalStep === null ? GOAL : ACHIEVED[goalStep];
      const relabelled = EpisodeModel.relabel(now, now.step, goal, now.n, now.gamma);
      const { window, rewards, terminated, last } = relabelled;
      draw.disabled = choices.length < 2;
      drawStrip((step) => (window.includes(step) && step <= last ? "explore-learn" : ""), []);
      const ofWindow = (values) =>
        window.map((step, k) => ({ step, text: values[k], isFaint: step > last, look: "explore-learn" }));
      const rows = {
        achieved: ACHIEVED.slice(0, now.steps).map((text, step) => ({
          step,
          text,
          isFaint: !choices.includes(step),
          look: step === goalStep ? "explore-at" : "",
        })),
        reward: ofWindow(rewards.map((reward) => short(reward))),
        terminated: ofWindow(terminated.map(Number)),
      };
      below.replaceChildren(
        note(GAP / 2, `goal ${goal}`),
        ...drawRows(rows),
        ...(goalStep === null ? [] : arrow(now.step, goalStep)),
      );
      const described = window.map((step, k) => {
        const values = `achieved ${ACHIEVED[step]}, reward ${rewards[k]}, terminated ${terminated[k]}`;
        return `step ${step}: ${values}${step > last ? ", not summed" : ""}`;
      });
      set(below, { "aria-label": `goal ${goal}; ${described.join("; ")}` });
      message.textContent = EpisodeWords.row(now, goal, goalStep, relabelled);
    }

    function arrow(step, goalStep) {
      const [from, to, half] = [middle(step), middle(goalStep), GAP / 2];
      const line = `M${from} 2C${from} ${half} ${to} ${half} ${to} ${GAP - 10}`;
      return [svg("path", { d: line, class: "explore-tick" }), arrowhead(goalStep, GAP - 11)];
    }

    function update() {
      if (!width) return;
      for (const [mode, controls] of Object.entries(bars)) controls.hidden = mode !== now.mode;
      if (now.mode === "windows") drawWindows();
      else drawGoals();
    }

    onWidth(frame, (wide) => {
      width = wide;
      set(top, { width, viewBox: `0 0 ${width} ${STRIP}` });
      set(below, { width, viewBox: `0 0 ${width} ${GAP + 4 * ROW}` });
      update();
    });
  }

  return { start };
})();
