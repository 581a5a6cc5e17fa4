// Build elements. Text only ever becomes text nodes: nothing on this page parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return the element with this id, which index.html has. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return true on a telephone or tablet without a keyboard and mouse. */
export function isTouchOnly() {
  return window.matchMedia("(hover: none) and (pointer: coarse)").matches;
}

/** Return a new element. Attributes whose names begin with "on" are listeners. */
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return a new SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Return a drawing of 20 by 20 units made of one path, which screen readers skip. */
export function icon(path) {
  return svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: path }));
}

/** Return a button that shows an icon, with a name for screen readers and a tooltip. */
export function iconButton(label, path, onclick, attributes = {}) {
  return el("button", { type: "button", class: "icon small", "aria-label": label, title: label, onclick, ...attributes },
    icon(path));
}

export const ICONS = {
  copy: "M7 7h9v9H7zM13 7V4H4v9h3",
  edit: "M4 16l1-4 8-8 3 3-8 8zM11 6l3 3",
  again: "M16 10a6 6 0 1 1-2-4.5M14.5 2v4h-4",
  close: "M5 5l10 10M15 5L5 15",
  bin: "M4 6h12M8 6V4h4v2M6 6l1 11h6l1-11",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  play: "M6 4l10 6-10 6z",
};
