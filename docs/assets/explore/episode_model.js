// The model behind the explorable episode: windows of a sequence buffer, and goals of a hindsight buffer.
//
// An episode has steps 0 to steps - 1 and one more observation, after its last step. `ended` is false while it
// is running. tests/test_explorables.py compares it with SequenceReplayBuffer and HindsightReplayBuffer.
const EpisodeModel = (() => {
  const BOUNDARIES = ["pad", "shift", "drop"];
  const STRATEGIES = ["future", "final", "episode", "none"]; // "none": the row isn't relabelled

  const numbers = (start, stop) => Array.from({ length: Math.max(0, stop - start) }, (_, i) => start + i);

  // The steps where an available window starts. A window starts at its first step to learn from.
  function starts({ steps, ended, length, period, boundary }) {
    const multiples = numbers(0, steps).filter((step) => step % period === 0);
    if (ended && boundary === "pad") return multiples;
    const complete = multiples.filter((step) => step + length <= steps);
    const last = Math.max(0, steps - length); // the start of the window that ends with the last step
    const isCutOff = complete.length < multiples.length; // a window would extend beyond the end
    const shifts = ended && boundary === "shift" && isCutOff && complete.at(-1) !== last;
    return shifts ? [...complete, last] : complete;
  }

  // The entries of a window, one per time: `step` is the step in the episode. The last entry is only an
  // observation. An entry that is not real is padding.
  function windowAt({ steps, length, burnIn }, start) {
    return numbers(0, burnIn + length + 1).map((time) => {
      const step = start - burnIn + time;
      const real = step >= 0 && step <= steps;
      const valid = step >= 0 && step < steps && time < burnIn + length;
      return { time, step, real, valid, learn: valid && time >= burnIn };
    });
  }

  // The steps whose achieved goals the strategy draws from, all with the same probability. If there are none,
  // the step keeps its goal. The achieved goal of a step is the goal achieved after its action.
  function goalSteps({ steps, ended }, step, strategy) {
    if (strategy === "none") return [];
    if (strategy === "final") return ended ? [steps - 1] : []; // a running episode has no final step yet
    return numbers(strategy === "future" ? step : 0, steps);
  }

  // The n-step window of a row for a goal. `rewards` and `terminated` are recomputed for up to n steps; `sum`
  // is the return, of the rewards up to `last`, which is the first step that terminates, if any.
  function relabel({ steps, achieved }, step, goal, n, gamma) {
    const window = numbers(step, Math.min(step + n, steps));
    const terminated = window.map((each) => achieved[each] === goal);
    const rewards = terminated.map((reached) => (reached ? 0 : -1));
    const counted = terminated.includes(true) ? terminated.indexOf(true) + 1 : window.length;
    let [sum, discount] = [0, 1];
    for (const reward of rewards.slice(0, counted)) {
      sum += discount * reward;
      discount *= gamma;
    }
    const [last, ends] = [window[counted - 1], terminated[counted - 1]];
    return { window, rewards, terminated, sum, discount: ends ? 0 : discount, last, ends };
  }

  return { BOUNDARIES, STRATEGIES, starts, windowAt, goalSteps, relabel };
})();
