// The two side panels. On a wide window they stand beside the chat and stay as they were left; on a
// narrow one they lie over it, one at a time, and the rest of the page waits.

import { byId } from "./dom.js";
import { loadValue, saveValue } from "./store.js";

const PANELS = {
  list: { panel: "list-panel", toggle: "toggle-list", beside: window.matchMedia("(min-width: 800px)") },
  memory: { panel: "memory-panel", toggle: "toggle-memory", beside: window.matchMedia("(min-width: 1120px)") },
};

/** Set up both panels. `onChange` runs when one was shown or hidden. */
export function setUpDrawers(onChange) {
  for (const [name, { toggle, panel, beside }] of Object.entries(PANELS)) {
    const set = (isOpen) => {
      show(name, isOpen);
      onChange();
    };
    const fit = () => set(beside.matches && loadValue(`panel-${name}`) !== "closed");
    byId(toggle).addEventListener("click", () => togglePanel(name, onChange));
    byId(panel).querySelector(".close-side").addEventListener("click", () => {
      set(false);
      byId(toggle).focus();
    });
    beside.addEventListener("change", fit);
    fit();
  }
  byId("scrim").addEventListener("click", () => {
    closeDrawer();
    onChange();
  });
}

/** Show a panel if it is hidden, and hide it if it is shown. */
export function togglePanel(name, onChange) {
  const { toggle, panel, beside } = PANELS[name];
  const isOpen = byId(toggle).getAttribute("aria-expanded") !== "true";
  if (!beside.matches) closeDrawer();
  if (beside.matches) saveValue(`panel-${name}`, isOpen ? "open" : "closed");
  show(name, isOpen);
  if (isOpen && !beside.matches) byId(panel).querySelector("button").focus();
  onChange();
}

/** Return true if a panel is in view. */
export function isOpen(name) {
  return !byId(PANELS[name].panel).hidden;
}

/** Hide the panel that lies over the chat. Returns false if there is none. */
export function closeDrawer() {
  for (const [name, { toggle, beside }] of Object.entries(PANELS)) {
    if (beside.matches || !isOpen(name)) continue;
    show(name, false);
    byId(toggle).focus();
    return true;
  }
  return false;
}

function show(name, isShown) {
  const { toggle, panel } = PANELS[name];
  byId(panel).hidden = !isShown;
  byId(toggle).setAttribute("aria-expanded", isShown);
  const over = Object.values(PANELS).find((one) => !one.beside.matches && !byId(one.panel).hidden);
  byId("scrim").hidden = !over;
  byId("main").inert = Boolean(over);
  document.querySelector(".bar").inert = Boolean(over);
}
