// Puts an explorable into each element with data-explore, in place of the text for readers without scripts.
document.querySelectorAll("[data-explore]").forEach((place) => {
  const views = { "sum-tree": SumTreeView, ring: RingView, episode: EpisodeView };
  const view = views[place.dataset.explore];
  if (!view)
    throw new Error(
      `data-explore="${place.dataset.explore}" is not one of ${Object.keys(views).join(", ")}.`,
    );
  place.replaceChildren();
  place.classList.add("explore");
  view.start(place);
});
