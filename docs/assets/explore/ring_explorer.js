// Breadth-first search of all states that a model of the ring can reach, until an invariant is violated.
const RingExplorer = (() => {
  // Yields the number of states found at intervals, so that the page can show it and stay responsive. Returns
  // { states, violation, trail }: the number of states, the violated invariant (null if none), and the moves of
  // a shortest path to it.
  function* exploring(model) {
    const states = [model.start()];
    const numbers = new Map([[JSON.stringify(states[0]), 0]]);
    const cameFrom = [null]; // [number of the previous state, move]
    // For each writer, the successor of each state if only that writer runs; the state itself if the writer has
    // ended.
    const alone = states[0].writers.map(() => []);
    const found = (violation, at, ...last) => ({
      states: states.length,
      violation,
      trail: [...trailTo(at, cameFrom), ...last],
    });
    for (let at = 0; at < states.length; at++) {
      if (at % 1000 === 999) yield states.length;
      const fault = model.faultOf(states[at]);
      if (fault) return found(fault, at);
      const firsts = states[at].writers.map(() => at);
      for (const move of model.moves(states[at])) {
        if (move.violation) return found(move.violation, at, move);
        if (move.after === states[at]) continue;
        const key = JSON.stringify(move.after);
        let number = numbers.get(key);
        if (number === undefined) {
          number = states.push(move.after) - 1;
          numbers.set(key, number);
          cameFrom.push([at, move]);
        }
        if (move.actor !== "sampler" && firsts[move.actor] === at && move.kind !== "heir")
          firsts[move.actor] = number;
      }
      firsts.forEach((number, actor) => alone[actor].push(number));
    }
    for (const [actor, ways] of alone.entries()) {
      const waits = firstThatNeverEnds(ways);
      if (waits !== null) return found(`writer ${actor} waits for another writer`, waits);
    }
    return { states: states.length, violation: null, trail: [] };
  }

  // Finds a state from which the successors form a cycle.
  function firstThatNeverEnds(ways) {
    const ends = new Uint8Array(ways.length); // 1: leads to an end, 2: on the current path
    for (let start = 0; start < ways.length; start++) {
      const way = [start];
      let at = start;
      while (!ends[at] && ways[at] !== at) {
        ends[at] = 2;
        at = ways[at];
        way.push(at);
      }
      if (ends[at] === 2) return start;
      for (const state of way) ends[state] = 1;
    }
    return null;
  }

  function trailTo(state, cameFrom) {
    const moves = [];
    for (let step = cameFrom[state]; step; step = cameFrom[step[0]]) moves.push(step[1]);
    return moves.reverse();
  }

  function explore(model) {
    const ways = exploring(model);
    let step = ways.next();
    while (!step.done) step = ways.next();
    return step.value;
  }

  return { exploring, explore };
})();
