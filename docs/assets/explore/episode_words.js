// The sentences below the explorable episode.
const EpisodeWords = (() => {
  const { short } = Parts;

  const named = (word, numbers) => (numbers.length > 1 ? `${word}s` : word);
  const listed = (steps) => `${named("step", steps)} ${steps.join(", ").replace(/, (\d+)$/, " and $1")}`;
  const ofRange = (steps) => (steps.length > 2 ? `steps ${steps[0]} to ${steps.at(-1)}` : listed(steps));

  // The window that starts at a step, or why none does.
  function window(options, step) {
    const starts = EpisodeModel.starts(options);
    return starts.includes(step) ? ofWindow(options, step) : ofNoWindow(options, step, starts);
  }

  function ofWindow(options, start) {
    const entries = EpisodeModel.windowAt(options, start).filter(({ valid }) => valid);
    const unrolled = entries.filter(({ learn }) => !learn).map(({ step }) => step);
    const learned = entries.filter(({ learn }) => learn).map(({ step }) => step);
    const unrolls = unrolled.length ? ` unrolls ${ofRange(unrolled)} and` : "";
    const sentences = [`The window that starts at step ${start}${unrolls} learns from ${ofRange(learned)}.`];
    const { burnIn, length } = options;
    if (unrolled.length < burnIn)
      sentences.push(`Its burn-in has ${unrolled.length} of ${burnIn} steps, because no more precede it.`);
    if (learned.length < length)
      sentences.push(`The episode ends after ${learned.length} of ${length} steps to learn from.`);
    return sentences.join(" ");
  }

  function ofNoWindow({ steps, ended, length, period, boundary }, step, starts) {
    const learning = starts.filter((start) => start <= step && step < start + length);
    const learned = learning.length
      ? `It is learned in the ${named("window", learning)} starting at ${listed(learning)}.`
      : "No available window learns from it.";
    const none = `No window starts at step ${step}`;
    if (step % period) return `${none}, which is not a multiple of the period. ${learned}`;
    const missing = step + length - steps;
    if (!ended) return `${none} yet: it needs ${missing} more ${missing > 1 ? "steps" : "step"}. ${learned}`;
    const shifted = `The window that starts at step ${starts.at(-1)} ends with the last step. `;
    const beyond = `${none}, because it would extend beyond the end of the episode.`;
    return `${beyond} ${boundary === "shift" ? shifted : ""}${learned}`;
  }

  // The row of a step for a goal, which was achieved after `goalStep`, or is the stored one if that is null.
  function row({ steps, ended, step, strategy, n, gamma }, goal, goalStep, relabelled) {
    const { window, rewards, sum, discount, last, ends } = relabelled;
    const terms = rewards.slice(0, last - step + 1).map((reward, k) => {
      const term = short(Math.abs(gamma ** k * reward));
      return reward < 0 ? (k ? ` − ${term}` : `−${term}`) : k ? ` + ${term}` : term;
    });
    const total = terms.length > 1 ? ` = ${short(sum)}` : "";
    const sentences = [];
    if (goalStep !== null) sentences.push(`Step ${step} gets goal ${goal}, achieved after step ${goalStep}.`);
    else sentences.push(`Step ${step} keeps its goal, ${goal}.`);
    if (strategy === "final" && !ended) sentences.push("A running episode has no final step yet.");
    if (ends && n > 1) sentences.push(`Step ${last} reaches the goal, so the n-step window ends there.`);
    else if (window.length < n)
      sentences.push(`The n-step window has ${window.length} of ${n} steps, because no more are stored.`);
    sentences.push(`reward = ${terms.join("")}${total}, discount = ${short(discount, 3)}.`);
    sentences.push(`next_obs is observation ${last + 1}, and terminated is ${ends}.`);
    if (ended && last === steps - 1) sentences.push("truncated is true, as stored.");
    return sentences.join(" ");
  }

  return { window, row };
})();
