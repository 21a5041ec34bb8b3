// The explorable sum tree: <div data-explore="sum-tree"></div>. The tree itself is in tree_model.js.
// With data-brief only the tree is shown, without alpha, beta and the charts. data-priorities replaces the priorities.
const SumTreeView = (() => {
  const { html, svg, button, set, short, range, slider, onWidth } = Parts;
  const PRIORITIES = [3, 1, 5, 1, 4, 0, 2, 8];
  const MOST = 10; // the largest priority
  const SEED = 1;
  // Heights in pixels of the strip, a level of the tree, a node, and the track of a priority.
  const [STRIP, LEVEL, NODE, TRACK] = [58, 50, 26, 72];
  const TREE = STRIP + 24;
  const TRACK_TOP = TREE + 3 * LEVEL + NODE + 26;
  const HEIGHT = TRACK_TOP + TRACK + 40;
  const MARGIN = 8; // beside the strip, so that the needle is visible at its ends

  function start(place) {
    const random = TreeModel.randomNumbers(SEED);
    const first = place.dataset.priorities?.split(" ").map(Number) ?? PRIORITIES;
    const priorities = [...first];
    let [alpha, beta] = [1, 0.4];
    let nodes = build();
    let query = null; // of the current draw
    let taken = 0; // comparisons done
    let recomputed = { slot: null, path: [] };
    let counts = new Array(priorities.length).fill(0);
    let width = 0;

    function build() {
      return TreeModel.build(priorities.map((priority) => TreeModel.massOf(priority, alpha)));
    }

    // Actions

    const total = () => nodes[1];
    const found = () => TreeModel.find(nodes, query);
    const isAtLeaf = () => query !== null && taken === found().steps.length;

    function changeMasses() {
      [query, taken] = [null, 0];
      counts = counts.map(() => 0);
      update();
    }

    function changePriority(slot, value) {
      const priority = Math.round(value);
      if (priority === priorities[slot]) return;
      priorities[slot] = priority;
      recomputed = { slot, path: TreeModel.setMass(nodes, slot, TreeModel.massOf(priority, alpha)) };
      changeMasses();
    }

    function changeAlpha(value) {
      alpha = value;
      nodes = build();
      recomputed = { slot: null, path: [] };
      changeMasses();
    }

    function ask(number) {
      [query, taken, recomputed] = [number, 0, { slot: null, path: [] }];
      update();
    }

    const newQuery = () => ask(random() * total());

    function goDown(howFar) {
      if (query === null || isAtLeaf()) newQuery();
      taken = Math.min(found().steps.length, taken + howFar);
      if (isAtLeaf()) counts[found().slot]++;
      update();
    }

    function drawMany() {
      TreeModel.countDraws(nodes, 1000, random).forEach((count, slot) => (counts[slot] += count));
      update();
    }

    function startAgain() {
      priorities.splice(0, priorities.length, ...first);
      nodes = build();
      recomputed = { slot: null, path: [] };
      changeMasses();
    }

    // Elements

    const buttons = {
      query: button("New query", newQuery),
      step: button("Step", () => goDown(1)),
      leaf: button("To the leaf", () => goDown(Infinity)),
      again: button("Reset", startAgain),
    };
    const picture = svg("svg", { class: "explore-picture", height: HEIGHT });
    const log = html("ol", { class: "explore-log", "aria-live": "polite" });
    const frame = html("div", { class: "explore-frame" }, picture);
    const charts = TreeCharts.start();
    place.append(html("div", { class: "explore-bar" }, ...Object.values(buttons)), frame, log);
    const ofAll = [
      range("alpha", { min: 0, max: 1, step: 0.1, value: alpha, oninput: changeAlpha }),
      range("beta", { min: 0, max: 1, step: 0.1, value: beta, oninput: (value) => update((beta = value)) }),
      button("1,000 draws", drawMany),
    ];
    if (!("brief" in place.dataset))
      place.append(html("div", { class: "explore-bar" }, ...ofAll), charts.picture);

    const stripTitle = svg("text", { y: 12, class: "explore-note" }, "masses laid end to end, and the query");
    const segments = priorities.map((_, slot) => ({
      box: svg("rect", { y: 18, height: 22, class: "explore-cell" }),
      text: svg("text", { y: 34, class: "explore-middle" }, `${slot}`),
    }));
    const interval = svg("rect", { y: 43, height: 4, class: "explore-mark" });
    const needle = svg("g", {}, svg("rect", { x: -14, y: 14, width: 28, height: 44, class: "explore-touch" }));
    needle.append(svg("path", { d: "M0 16V48M0 44l-6 12h12z", class: "explore-needle" }));
    slider(needle, {
      name: "query",
      limits: () => ({ max: total(), step: total() / 48 }),
      get: () => query ?? 0,
      change: ask,
      at: (event) => (event.clientX - picture.getBoundingClientRect().left - MARGIN) / pixelsPerMass(),
    });
    picture.append(stripTitle, ...segments.flatMap(({ box, text }) => [box, text]), interval, needle);

    const edges = nodes.map((_, node) => (node > 1 ? svg("line", { class: "explore-edge" }) : null));
    const circles = nodes.map((_, node) => ({
      box: svg("rect", { height: NODE, rx: 6, class: "explore-cell" }),
      text: svg("text", { class: "explore-middle" }),
      node,
    }));
    picture.append(...edges.filter(Boolean), ...circles.slice(1).flatMap(({ box, text }) => [box, text]));
    const tracksTitle = svg(
      "text",
      { y: TRACK_TOP - 8, class: "explore-note" },
      "priorities: drag one, or use the arrow keys",
    );
    const tracks = priorities.map((_, slot) => {
      const parts = {
        back: svg("rect", { y: TRACK_TOP, height: TRACK, rx: 4, class: "explore-track" }),
        bar: svg("rect", { rx: 4, class: "explore-fill" }),
        text: svg("text", { y: TRACK_TOP + TRACK + 15, class: "explore-middle" }),
      };
      const group = svg("g", {}, parts.back, parts.bar, parts.text);
      slider(group, {
        name: `priority of slot ${slot}`,
        limits: () => ({ max: MOST, step: 1 }),
        get: () => priorities[slot],
        change: (value) => changePriority(slot, value),
        at: (event) => MOST * (1 - (event.clientY - picture.getBoundingClientRect().top - TRACK_TOP) / TRACK),
      });
      return {
        group,
        ...parts,
        name: svg("text", { y: HEIGHT - 6, class: "explore-middle explore-note" }, `slot ${slot}`),
      };
    });
    picture.append(tracksTitle, ...tracks.flatMap(({ group, name }) => [group, name]));

    // Drawing

    function update() {
      if (!width) return;
      const way = query === null ? [] : found().steps.slice(0, taken);
      const at = query === null ? null : (way.at(-1)?.next ?? 1);
      drawStrip(at);
      drawTree(way, at);
      drawTracks();
      writeLog(way);
      charts.update(nodes, counts, beta, width);
      for (const name of ["query", "step", "leaf"]) buttons[name].disabled = !total();
    }

    const pixelsPerMass = () => (total() ? (width - 2 * MARGIN) / total() : 0);

    function drawStrip(at) {
      const masses = TreeModel.masses(nodes);
      const scale = pixelsPerMass();
      let x = MARGIN;
      const edgesOfSlots = masses.map((mass) => (x += mass * scale) - mass * scale);
      segments.forEach(({ box, text }, slot) => {
        const wide = masses[slot] * scale;
        set(box, { x: edgesOfSlots[slot], width: wide });
        set(text, { x: edgesOfSlots[slot] + wide / 2 }, wide > 12 ? slot : "");
      });
      const [first, last] = at === null ? [0, -1] : slotsBelow(at);
      const left = edgesOfSlots[first];
      const right = last < 0 ? left : edgesOfSlots[last] + masses[last] * scale;
      set(interval, { x: left, width: right - left });
      set(needle, {
        transform: `translate(${MARGIN + (query ?? 0) * scale} 0)`,
        "aria-valuemin": 0,
        "aria-valuemax": short(total()),
        "aria-valuenow": short(query ?? 0),
      });
      needle.classList.toggle("explore-waiting", query === null);
    }

    // The first and the last slot below a node.
    function slotsBelow(node) {
      let [first, last] = [node, node];
      while (first < TreeModel.leafCount(nodes)) [first, last] = [2 * first, 2 * last + 1];
      return [first - TreeModel.leafCount(nodes), last - TreeModel.leafCount(nodes)];
    }

    function drawTree(way, at) {
      const column = width / priorities.length;
      const middle = (node) => {
        const [first, last] = slotsBelow(node);
        return ((first + last + 1) / 2) * column;
      };
      const top = (node) => TREE + LEVEL * Math.floor(Math.log2(node));
      const passed = new Set(way.map((step) => step.node));
      const recomputedNodes = new Set(recomputed.path);
      for (const { box, text, node } of circles.slice(1)) {
        const wide = Math.min(56, column - 4);
        set(box, { x: middle(node) - wide / 2, y: top(node), width: wide });
        set(text, { x: middle(node), y: top(node) + 18 }, short(nodes[node], nodes[node] < 10 ? 2 : 1));
        box.classList.toggle("explore-at", node === at);
        box.classList.toggle("explore-passed", passed.has(node) && node !== at);
        box.classList.toggle("explore-new", recomputedNodes.has(node));
        text.classList.toggle("explore-strong", node === at);
      }
      edges.forEach((edge, node) => {
        if (!edge) return;
        const above = node >> 1;
        set(edge, { x1: middle(above), y1: top(above) + NODE, x2: middle(node), y2: top(node) });
        edge.classList.toggle("explore-passed", passed.has(above) && (passed.has(node) || node === at));
        const changed = recomputed.slot !== null && node === TreeModel.leafCount(nodes) + recomputed.slot;
        edge.classList.toggle("explore-new", recomputedNodes.has(node) || changed);
      });
    }

    function drawTracks() {
      const column = width / priorities.length;
      tracks.forEach(({ group, back, bar, text, name }, slot) => {
        const [x, wide] = [(slot + 0.5) * column, Math.min(34, column - 10)];
        const high = Math.max(3, (priorities[slot] / MOST) * TRACK);
        set(back, { x: x - wide / 2, width: wide });
        set(bar, { x: x - wide / 2, width: wide, y: TRACK_TOP + TRACK - high, height: high });
        set(text, { x }, priorities[slot]);
        set(name, { x }, width < 480 ? slot : `slot ${slot}`);
        set(group, { "aria-valuemin": 0, "aria-valuemax": MOST, "aria-valuenow": priorities[slot] });
      });
    }

    function writeLog(way) {
      const lines = linesOfLog(way);
      const written = [...log.children];
      const same = written.findIndex((item, i) => item.textContent !== lines[i]);
      const kept = same < 0 ? written.length : same; // screen readers don't repeat lines that stay
      written.slice(kept).forEach((item) => item.remove());
      log.append(...lines.slice(kept).map((line) => html("li", {}, line)));
    }

    function linesOfLog(way) {
      if (!total()) return ["Every mass is 0, so no row can be drawn."];
      if (recomputed.slot !== null) {
        const { slot, path } = recomputed;
        const sum = (node) =>
          `${short(nodes[node])} = ${short(nodes[2 * node])} + ${short(nodes[2 * node + 1])}`;
        return [
          `Slot ${slot} now has mass ${short(TreeModel.masses(nodes)[slot])}.`,
          ...path.map((node) => sum(node)),
        ];
      }
      if (query === null) return ["New query picks a number below the total. Step makes one comparison."];
      const lines = [`The query is ${short(query)}, the total ${short(total())}.`, ...way.map(lineOfStep)];
      if (!isAtLeaf()) return lines;
      const { slot } = found();
      const [probability, weight] = [
        TreeModel.probabilities(nodes)[slot],
        TreeModel.weights(nodes, beta)[slot],
      ];
      return [
        ...lines,
        `Slot ${slot} is drawn: its probability is ${short(probability, 3)}, its weight ${short(weight, 3)}.`,
      ];
    }

    function lineOfStep({ query, left, right, toTheRight, rest }) {
      if (toTheRight)
        return `${short(query)} ≥ ${short(left)}: go right, with ${short(query)} − ${short(left)} = ${short(rest)}.`;
      if (query < left) return `${short(query)} < ${short(left)}: go left.`;
      return `${short(query)} ≥ ${short(left)}, but the right child is ${short(right)}: go left.`;
    }

    onWidth(frame, (wide) => {
      width = wide;
      set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
      update();
    });
  }

  return { start };
})();
