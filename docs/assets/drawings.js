// Text in the drawings and charts of a chapter is at least 9 pixels high. A drawing that would be smaller on a narrow page
// keeps its width and scrolls by itself; a shadow at the edge shows that there is more.
const SMALLEST_TEXT = 9; // pixels
document.querySelectorAll(".md-typeset svg[role='img'][viewBox]").forEach((svg) => {
  const sizes = [...svg.querySelectorAll("text")].map((text) => parseFloat(getComputedStyle(text).fontSize));
  if (!sizes.length) return;
  svg.style.minWidth = Math.ceil((svg.viewBox.baseVal.width * SMALLEST_TEXT) / Math.min(...sizes)) + "px";
  svg.parentElement.classList.add("scrolls");
});
