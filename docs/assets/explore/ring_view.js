// The explorable ring: <div data-explore="ring"></div>, or with a precaution removed from the start:
// <div data-explore="ring" data-without="no fence after the swap"></div>. The protocol is in ring_model.js.
const RingView = (() => {
  const { html, svg, button, set, onWidth } = Parts;

  function start(place) {
    let model, drawing, search;
    let history = []; // { state, move, story }: all moves, including those undone with Back
    let position = 0;
    let note = "";
    let width = 0;

    const picture = svg("svg", { class: "explore-picture", role: "img" });
    const frame = html("div", { class: "explore-frame" }, picture);
    const choice = html(
      "select",
      { onchange: () => choose(choice.value) },
      html("option", { value: "" }, "nothing"),
    );
    for (const [group, rows] of Object.entries(RingWords.PRECAUTIONS)) {
      const options = rows.map(([mutation, name]) => html("option", { value: mutation }, name));
      choice.append(html("optgroup", { label: group }, ...options));
    }
    const explanation = html("p", { class: "explore-explanation" });
    const actions = html("div", { class: "explore-actions" });
    const message = html("p", { class: "explore-message", role: "status" });
    const log = html("ol", { class: "explore-log" });
    const find = button("Find the fault", startSearch);
    const back = button("Back", () => go(position - 1));
    const forward = button("Forward", () => go(position + 1));
    place.append(
      html("div", { class: "explore-bar" }, html("label", {}, "Remove: ", choice), find),
      explanation,
      html(
        "div",
        { class: "explore-sides" },
        frame,
        html(
          "div",
          {},
          actions,
          html(
            "div",
            { class: "explore-bar" },
            back,
            forward,
            button("Reset", () => choose(choice.value)),
          ),
          message,
          log,
        ),
      ),
    );

    function choose(mutation) {
      const { text, configuration, ...rest } = RingWords.precaution(mutation);
      model = new RingModel.Model(configuration, rest.mutation);
      search = null;
      explanation.textContent = text;
      history = [{ state: model.start(), move: null, story: "", violation: null }];
      [position, note] = [0, ""];
      drawing = RingPicture.start(model, picture);
      if (width) drawing.lay(width);
      update();
    }

    function entry(state, move) {
      const violation = move.violation ?? model.faultOf(move.after);
      return { state: move.after, move, story: RingWords.story(model, state, move), violation };
    }

    function make(move) {
      history = [...history.slice(0, position + 1), entry(history[position].state, move)];
      note = "";
      go(position + 1);
    }

    function go(where) {
      position = where;
      update();
    }

    // Searches all states in portions, so that the page stays responsive.
    function startSearch() {
      const mine = (search = RingExplorer.exploring(model));
      const goOn = () => {
        if (search !== mine) return; // another precaution was selected in the meantime
        const { done, value } = mine.next();
        if (done) endSearch(value);
        else {
          note = `${value.toLocaleString("en")} states so far …`;
          update();
          setTimeout(goOn);
        }
      };
      goOn();
    }

    function endSearch({ states, violation, trail }) {
      search = null;
      const count = states.toLocaleString("en");
      if (violation) {
        history = history.slice(0, 1);
        for (const move of trail) history.push(entry(history.at(-1).state, move));
        history.at(-1).violation = violation;
        note = `Found after ${count} states: ${RingWords.fault(violation)} Press Forward to replay it; the shortest path has ${trail.length} steps.`;
        go(0);
      } else {
        note = `Searched all ${count} states that two writers and the sampler can reach: no row is torn, and no other invariant is violated.`;
        update();
      }
    }

    function update() {
      const { state, move, violation } = history[position];
      drawing.show(state, move, violation);
      showActions(state, violation);
      message.classList.toggle("explore-alarm", Boolean(violation));
      message.textContent = violation
        ? RingWords.fault(violation)
        : position && !search
          ? history[position].story
          : note || "Press a button: each is one operation on shared memory.";
      set(picture, { "aria-label": describe(state) });
      const stories = history.slice(1, position + 1).map(({ story }) => html("li", {}, story));
      log.replaceChildren(...stories.reverse());
      log.setAttribute("reversed", "");
      [back.disabled, forward.disabled, find.disabled] = [
        !position,
        position + 1 >= history.length,
        Boolean(search),
      ];
    }

    // Shows a button for each move; the focus stays with the process whose button was pressed.
    function showActions(state, violation) {
      const focused = actions.contains(document.activeElement) ? document.activeElement.dataset : null;
      const moves = violation || search ? [] : model.moves(state);
      const actors = [...state.writers.keys(), "sampler"];
      actions.replaceChildren(
        ...actors.map((actor) =>
          rowOfActions(
            actor,
            state,
            moves.filter((move) => move.actor === actor),
          ),
        ),
      );
      if (!focused) return;
      const choices = [...actions.querySelectorAll("button")];
      const same = choices.find(
        (one) => one.dataset.actor === focused.actor && one.textContent === focused.text,
      );
      (same ?? choices.find((one) => one.dataset.actor === focused.actor) ?? choices[0] ?? back).focus();
    }

    function rowOfActions(actor, state, moves) {
      const name = RingWords.nameOf(actor);
      const buttons = moves.map((move) => {
        const text = RingWords.label(model, state, move);
        const kills = move.kind === "kill" ? "explore-kill" : "";
        return button(text, () => make(move), {
          "data-actor": actor,
          "data-text": text,
          class: kills,
          "aria-label": `${name}: ${text}`,
        });
      });
      const nothing = moves.length
        ? []
        : [actor === "sampler" ? "–" : RingWords.situation(model, state.writers[actor])];
      return html("div", { class: "explore-bar" }, html("b", {}, name), ...buttons, ...nothing);
    }

    function describe(state) {
      const slots = state.stamps.map((stamp, slot) => `slot ${slot}: ${RingWords.stamp(stamp)}`);
      return `Shared memory: next index ${state.nextIndex}; ${slots.join("; ")}.`;
    }

    choice.value = place.dataset.without ?? "";
    choose(choice.value);
    onWidth(frame, (wide) => {
      width = wide;
      drawing.lay(width);
      update();
    });
  }

  return { start };
})();
