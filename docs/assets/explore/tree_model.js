// The model behind the explorable sum tree: a plain binary heap over the masses of slots.
//
// nodes[1] is the root, node n has the children 2n and 2n + 1, and the leaf of slot s is
// nodes[nodes.length / 2 + s]. A leaf holds a mass, every other node the sum of its children.
// tests/test_explorables.py compares it with Python.
const TreeModel = (() => {
  // Reproducible random numbers in [0, 1) (mulberry32).
  function randomNumbers(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  // mass = priority ** alpha   (Schaul et al. 2016, eq. 1); the package first adds a small eps to the priority
  const massOf = (priority, alpha) => priority ** alpha;

  const leafCount = (nodes) => nodes.length / 2;
  const masses = (nodes) => nodes.slice(leafCount(nodes));

  function build(leaves) {
    const nodes = [0, ...new Array(leaves.length - 1).fill(0), ...leaves];
    for (let node = leaves.length - 1; node >= 1; node--) nodes[node] = nodes[2 * node] + nodes[2 * node + 1];
    return nodes;
  }

  // Sets a leaf; returns the nodes above it that were recomputed, the lowest first.
  function setMass(nodes, slot, mass) {
    let node = leafCount(nodes) + slot;
    nodes[node] = mass;
    const path = [];
    while (node > 1) {
      node >>= 1;
      nodes[node] = nodes[2 * node] + nodes[2 * node + 1]; // not += difference: rounding errors would accumulate
      path.push(node);
    }
    return path;
  }

  // One comparison. A query that is strictly less goes left, and no query enters a subtree without mass. So none
  // ends at a leaf without mass, even if it equals the total or is off by a rounding error.
  function step(nodes, node, query) {
    const left = nodes[2 * node];
    const right = nodes[2 * node + 1];
    const toTheRight = query >= left && right > 0;
    return {
      node,
      query,
      left,
      right,
      toTheRight,
      next: 2 * node + (toTheRight ? 1 : 0),
      rest: toTheRight ? query - left : query,
    };
  }

  // The comparisons from the root to a leaf, and the slot of that leaf.
  function find(nodes, query) {
    const steps = [];
    let [node, rest] = [1, query];
    while (node < leafCount(nodes)) {
      steps.push(step(nodes, node, rest));
      ({ next: node, rest } = steps.at(-1));
    }
    return { slot: node - leafCount(nodes), steps };
  }

  // P(i) = m_i / Σ_k m_k; all 0 if there is no mass
  const probabilities = (nodes) => masses(nodes).map((mass) => (nodes[1] > 0 ? mass / nodes[1] : 0));

  // w_i = (min_k m_k / m_i)^β   (section 3.4, divided by the largest); null for a row that is never drawn
  function weights(nodes, beta) {
    const smallest = Math.min(...masses(nodes).filter((mass) => mass > 0));
    return masses(nodes).map((mass) => (mass > 0 ? (smallest / mass) ** beta : null));
  }

  // Counts how often each slot is drawn in a number of draws.
  function countDraws(nodes, draws, random) {
    const counts = new Array(leafCount(nodes)).fill(0);
    for (let draw = 0; draw < draws; draw++) counts[find(nodes, random() * nodes[1]).slot]++;
    return counts;
  }

  return {
    randomNumbers,
    massOf,
    leafCount,
    masses,
    build,
    setMass,
    step,
    find,
    probabilities,
    weights,
    countDraws,
  };
})();
