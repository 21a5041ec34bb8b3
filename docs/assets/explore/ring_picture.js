// The picture of the explorable ring: pending stores of the writers, shared memory, and the sampler's copy. The
// columns are stamp, word 1, word 2 and, if rows have masses, mass.
const RingPicture = (() => {
  const R = RingModel;
  const { svg, set } = Parts;
  const [ROW, CELL, GAP] = [44, 30, 6];

  function start(model, picture) {
    const columns = model.masses ? ["stamp", "word 1", "word 2", "mass"] : ["stamp", "word 1", "word 2"];
    const rows = [];
    let y = 24;
    const addRow = (name, cells) => {
      const row = {
        y,
        name: svg(
          "text",
          { x: 8, y: y + (name.startsWith("slot") ? 24 : 15), class: "explore-strong" },
          name,
        ),
        note: svg("text", { x: 8, y: y + 30, class: "explore-note" }),
        cells: cells.map((column) => ({
          column,
          box: svg("rect", { height: CELL, rx: 4, class: "explore-cell" }),
          text: svg("text", { class: "explore-middle" }),
        })),
      };
      rows.push(row);
      y += ROW;
      return row;
    };
    const every = columns.map((_, column) => column);
    const writers = model.adds.map((_, actor) => addRow(RingWords.nameOf(actor), every));
    const memoryTop = y;
    y += 26;
    const slots = model.start().stamps.map((_, slot) => addRow(`slot ${slot}`, every));
    const memoryBottom = y;
    y += 16;
    const sampler = addRow("Sampler", [0, 1, 2]);
    const secondLook = addRow("", [0]);
    const height = y - 4;
    const memory = svg("rect", {
      x: 1,
      y: memoryTop,
      height: memoryBottom - memoryTop,
      rx: 8,
      class: "explore-memory",
    });
    const memoryTitle = svg("text", { x: 8, y: memoryTop + 17, class: "explore-note" });
    const titles = columns.map((title) =>
      svg("text", { y: 16, class: "explore-middle explore-note" }, title),
    );
    picture.replaceChildren(memory, memoryTitle, ...titles);
    for (const row of rows)
      picture.append(row.name, row.note, ...row.cells.flatMap(({ box, text }) => [box, text]));

    function lay(width) {
      const label = width < 480 ? 94 : 150;
      const stamp = width < 480 ? 108 : 150;
      const other = Math.min(130, (width - label - stamp - 8) / (columns.length - 1));
      const left = (column) => (column === 0 ? label : label + stamp + (column - 1) * other);
      const wide = (column) => (column === 0 ? stamp : other) - GAP;
      set(picture, { width, height, viewBox: `0 0 ${width} ${height}` });
      set(memory, { width: left(columns.length) + 4 });
      titles.forEach((title, column) => set(title, { x: left(column) + wide(column) / 2 }));
      for (const row of rows) {
        for (const { column, box, text } of row.cells) {
          set(box, { x: left(column), y: row.y + 4, width: wide(column) });
          set(text, { x: left(column) + wide(column) / 2, y: row.y + 4 + 20 });
        }
      }
    }

    // Shows a state and what the last move changed. `last` is the move that led here, null at the start.
    function show(state, last, violation) {
      memoryTitle.textContent = `shared memory · next index ${state.nextIndex}`;
      state.writers.forEach((writer, actor) => {
        const row = writers[actor];
        row.note.textContent = RingWords.situation(model, writer);
        row.cells.forEach((cell) => fillCell(cell, heldBack(model, writer, actor, cell.column)));
      });
      state.stamps.forEach((stamp, slot) => {
        const isBad = Boolean(violation) && violation.includes(`slot ${slot}`);
        slots[slot].cells.forEach((cell) => fillCell(cell, inMemory(state, stamp, slot, cell.column, isBad)));
      });
      const loaded = state.sampler ?? (last?.actor === "sampler" ? last.loaded : null);
      const isBad = Boolean(violation) && violation.includes("returned");
      sampler.note.textContent = loaded ? `reads slot ${loaded[0]}` : "draws a slot";
      sampler.cells.forEach((cell) => fillCell(cell, copied(loaded, cell.column, isBad)));
      secondLook.note.textContent = loaded ? "second check" : "";
      fillCell(secondLook.cells[0], stampCell(loaded?.[R.SECOND + 1]));
    }

    return { lay, show };
  }

  // { text, index of the row whose colour it has, classes }; null for nothing
  const wordCell = (value) =>
    value === R.NOTHING || value === undefined
      ? null
      : { text: value === R.NEVER_WRITTEN ? "–" : value, index: value };

  function stampCell(stamp) {
    if (stamp === R.NOTHING || stamp === undefined) return null;
    return { text: RingWords.stamp(stamp), index: R.indexOf(stamp), isHeld: R.isHeld(stamp) };
  }

  function heldBack(model, writer, actor, column) {
    const group = writer.pending.findIndex((stores) => stores.some((which) => columnOf(which) === column));
    if (group < 0) return null;
    const index = writer.reserved[0];
    // Of two pending stores to the stamp, the first is shown.
    const which = writer.pending[group].find((store) => columnOf(store) === column);
    const stamp = which === "hold" ? R.heldStamp(index, actor + 1) : R.publishedStamp(index);
    return { ...(column === 0 ? stampCell(stamp) : wordCell(index)), isWaiting: true, isNext: group === 0 };
  }

  const columnOf = (which) => (typeof which === "number" ? which + 1 : 0);

  function inMemory(state, stamp, slot, column, isBad) {
    const cell = column === 0 ? stampCell(stamp) : wordCell(state.words[3 * slot + column - 1]);
    return cell ? { ...cell, isBad } : { text: "–", index: R.NOTHING, isBad };
  }

  function copied(loaded, column, isBad) {
    if (!loaded) return null;
    const cell = column === 0 ? stampCell(loaded[R.FIRST + 1]) : wordCell(loaded[column]);
    return cell && { ...cell, isBad };
  }

  function fillCell({ box, text }, cell) {
    const written = cell ? String(cell.text) : "";
    const colour =
      cell && cell.index >= 0 ? `hsl(${(170 + 95 * cell.index) % 360} 65% 50% / 0.28)` : "transparent";
    const classes = {
      held: cell?.isHeld,
      waiting: cell?.isWaiting,
      late: cell?.isWaiting && !cell.isNext,
      bad: cell?.isBad,
      empty: !cell,
    };
    for (const [name, on] of Object.entries(classes)) box.classList.toggle(`explore-${name}`, Boolean(on));
    text.classList.toggle("explore-late", Boolean(classes.late));
    box.classList.toggle(
      "explore-changed",
      box.dataset.before !== undefined && box.dataset.before !== written && !!cell && !cell.isWaiting,
    );
    box.dataset.before = written;
    box.style.fill = colour;
    text.textContent = written;
  }

  return { start };
})();
