// Tables of figures: "5.69 (5.60, 5.81)" is a median and its quartiles. The figure never wraps, and a button shows or
// hides the quartiles; without scripts they are always shown.
document.querySelectorAll(".md-typeset table:not([class])").forEach((table) => {
  const spreads = [];
  table.querySelectorAll("td").forEach((cell) => {
    const parts = cell.childElementCount ? null : cell.textContent.match(/^([-\d.,]+%?) (\([-\d.,]+%?(?:,| to) [-\d.,]+%?\))$/);
    if (!parts) return;
    const spread = document.createElement("span");
    spread.textContent = " " + parts[2];
    spread.className = "spread";
    cell.textContent = parts[1];
    cell.append(spread);
    spreads.push(spread);
  });
  if (!spreads.length) return;
  const button = document.createElement("button");
  button.className = "md-button spread-button";
  const show = (shown) => {
    spreads.forEach((spread) => (spread.hidden = !shown));
    button.textContent = shown ? "Hide the spread" : "Show the spread";
    button.setAttribute("aria-pressed", shown);
  };
  button.type = "button";
  button.addEventListener("click", () => show(spreads[0].hidden));
  show(false);
  table.before(button);
});
