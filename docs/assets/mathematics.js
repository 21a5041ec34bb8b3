// Sets the formulas that pymdownx.arithmatex has marked; nothing else on a page is touched.
document.querySelectorAll(".arithmatex").forEach((element) =>
  renderMathInElement(element, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  })
);
