// Three bar charts below the explorable tree, with a bar per slot: share of draws, weight, and their product.
const TreeCharts = (() => {
  const { html, svg, set, short } = Parts;
  const [ROW, TOP, BAR] = [104, 22, 54]; // heights of a chart, its title, and its highest bar

  function start() {
    const picture = svg("svg", { class: "explore-picture", role: "img" });
    const rows = ["share", "weight", "together"].map((name, row) => {
      const title = svg("text", { y: row * ROW + 14, class: "explore-note" });
      const line = svg("line", {
        x1: 0,
        y1: row * ROW + TOP + BAR,
        y2: row * ROW + TOP + BAR,
        class: "explore-edge",
      });
      picture.append(title, line);
      return { name, title, line, base: row * ROW + TOP + BAR, bars: [] };
    });
    return {
      picture: html("div", { class: "explore-frame" }, picture),
      update: (...now) => update(picture, rows, ...now),
    };
  }

  function update(picture, rows, nodes, counts, beta, width) {
    const draws = counts.reduce((sum, count) => sum + count, 0);
    const expected = TreeModel.probabilities(nodes);
    const weights = TreeModel.weights(nodes, beta);
    const together = expected.map((probability, slot) => probability * (weights[slot] ?? 0));
    set(picture, { width, height: 3 * ROW, viewBox: `0 0 ${width} ${3 * ROW}` });
    const shares = draws ? counts.map((count) => count / draws) : expected.map(() => 0);
    const values = { share: shares, weight: weights.map((weight) => weight ?? 0), together };
    const titles = {
      share: `share of ${draws.toLocaleString("en")} draws; lines: probability P`,
      weight: "weight w",
      together: "P × w: share of a row in the loss",
    };
    const highest = Math.max(...expected, ...shares, 1e-9);
    for (const { name, title, line, base, bars } of rows) {
      const most = name === "weight" ? 1 : name === "share" ? highest : Math.max(...expected, 1e-9);
      set(title, {}, titles[name]);
      set(line, { x2: width });
      values[name].forEach((value, slot) => {
        bars[slot] ??= addBar(picture, name === "share");
        const [x, column] = [(slot + 0.5) * (width / values[name].length), width / values[name].length];
        const wide = Math.min(34, column - 10);
        const high = (value / most) * BAR;
        const missing = name === "weight" && weights[slot] === null;
        const number = name === "share" && !draws ? expected[slot] : value;
        set(bars[slot].bar, { x: x - wide / 2, width: wide, y: base - high, height: high });
        set(bars[slot].text, { x, y: base + 16 }, missing ? "–" : short(number, width < 480 ? 2 : 3));
        const y = base - (expected[slot] / most) * BAR;
        if (bars[slot].tick) set(bars[slot].tick, { d: `M${x - wide / 2 - 3} ${y}h${wide + 6}` });
      });
    }
    set(picture, { "aria-label": describe(expected, shares, weights, draws) });
  }

  function addBar(picture, withTick) {
    const bar = svg("rect", { class: "explore-fill" });
    const text = svg("text", { class: "explore-middle" });
    const tick = withTick ? svg("path", { class: "explore-tick" }) : null;
    picture.append(bar, text, ...(tick ? [tick] : []));
    return { bar, text, tick };
  }

  function describe(expected, shares, weights, draws) {
    const slots = expected.map((probability, slot) => {
      const share = draws ? `, drawn ${short(shares[slot], 3)}` : "";
      return `slot ${slot}: probability ${short(probability, 3)}${share}, weight ${short(weights[slot] ?? 0, 3)}`;
    });
    return `${slots.join("; ")}.`;
  }

  return { start };
})();
