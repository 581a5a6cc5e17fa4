// One message on the page: its text, what can be done with it, and what it cost.

import { copyButton } from "./clipboard.js";
import { costInWords } from "./cost.js";
import { el, iconButton, ICONS } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { bytes, count, duration, whole } from "./numbers.js";
import { reasonOf } from "./turn.js";
import { siblings } from "./tree.js";

/**
 * A message that is shown. `actions` has edit(node, text), regenerate(node), step(node, by),
 * retry(node).
 */
export class MessageView {
  #actions;
  #conversation;
  #markdown = null;
  #isRunning = false;

  constructor(conversation, node, actions) {
    this.node = node;
    this.#conversation = conversation;
    this.#actions = actions;
    this.content = el("div", { class: "content" });
    this.footer = el("div", { class: "footer" });
    this.element = el("article", { class: `message ${node.role}`, tabindex: "-1", "data-id": node.id },
      this.content, this.footer);
    this.#build();
  }

  /** Show what changed. `isRunning`: the answer is being written. */
  update(isRunning) {
    const hasChanged = isRunning !== this.#isRunning;
    this.#isRunning = isRunning;
    if (this.#markdown) this.#updateAnswer();
    if (hasChanged || !isRunning) this.#drawFooter();
  }

  /** Show the cost of going back to the message; null hides it. */
  showCost(cost) {
    this.cost.textContent = cost === null ? "" : `Going back here: ${costInWords(cost)}`;
    this.cost.dataset.kind = cost?.kind ?? "";
  }

  /** Replace the text by a field to edit it. */
  edit() {
    if (this.element.classList.contains("editing")) return;
    const { node } = this;
    const isUser = node.role === "user";
    const field = el("textarea", { "aria-label": isUser ? "Edit your message" : "Edit the answer", rows: "3" });
    field.value = node.text;
    const close = () => {
      this.element.classList.remove("editing");
      this.#build();
      this.element.focus();
    };
    const save = () => {
      close();
      if (field.value !== node.text) this.#actions.edit(node, field.value);
      else if (isUser) this.#actions.regenerate(node);
    };
    const form = el("form", { class: "edit", onsubmit: (event) => { event.preventDefault(); save(); } }, field,
      el("div", { class: "actions" },
        el("span", { class: "hint grow" }, isUser ? "The message as it was stays beside it." : "Becomes a branch; nothing is generated."),
        el("button", { type: "button", class: "quiet", onclick: close }, "Cancel"),
        el("button", { class: "primary" }, isUser ? "Send" : "Save")));
    form.addEventListener("keydown", (event) => {
      // These keys end the choice of characters of an input method.
      if (event.isComposing) return;
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        save();
      }
    });
    this.element.classList.add("editing");
    this.#markdown = null;
    this.content.replaceChildren(form);
    this.footer.hidden = true;
    fit(field);
    field.addEventListener("input", () => fit(field));
    field.focus();
  }

  #build() {
    const { node } = this;
    this.footer.hidden = false;
    if (node.role === "user") {
      this.content.replaceChildren(...node.files.map(fileView), el("div", { class: "plain" }, node.text));
    } else {
      this.reasoning = el("div", { class: "markdown" });
      this.reasoningBox = el("details", { class: "reasoning" }, el("summary", null, "Reasoning"), this.reasoning);
      this.answer = el("div", { class: "markdown" });
      this.notice = el("div", { class: "notice", hidden: true });
      this.content.replaceChildren(this.reasoningBox, this.answer, this.notice);
      this.#markdown = { answer: new MarkdownView(this.answer), reasoning: new MarkdownView(this.reasoning) };
      this.#updateAnswer();
    }
    this.#drawFooter();
  }

  #updateAnswer() {
    const { node } = this;
    this.#markdown.answer.update(node.text);
    this.#markdown.reasoning.update(node.reasoning);
    this.reasoningBox.hidden = node.reasoning === "";
    this.reasoningBox.firstChild.textContent =
      this.#isRunning && node.text === "" ? "Reasoning …" : "Reasoning";
    this.element.classList.toggle("running", this.#isRunning);
    this.element.setAttribute("aria-busy", this.#isRunning);
    const notice = this.#isRunning ? null : noticeOf(node);
    this.notice.hidden = notice === null;
    this.notice.classList.toggle("error", node.error !== null);
    this.notice.replaceChildren(...(notice === null ? [] : [notice]));
    if (node.error !== null && notice !== null) {
      this.notice.append(el("button", { type: "button", class: "link", onclick: () => this.#actions.retry(node) }, "Try again"));
    }
  }

  #drawFooter() {
    const { node } = this;
    const focused = this.footer.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const branches = this.#branches();
    this.element.setAttribute("aria-label", this.#label());
    this.cost ??= el("span", { class: "cost hint" });
    const parts = this.#isRunning ? [branches] : [branches, this.#buttons(), node.stats && statsView(node.stats), this.cost];
    this.footer.replaceChildren(...parts.filter(Boolean));
    if (focused) [...this.footer.querySelectorAll("button")].find((b) => b.getAttribute("aria-label") === focused)?.focus();
  }

  #label() {
    const ids = siblings(this.#conversation, this.node);
    const who = this.node.role === "user" ? "Your message" : "Answer";
    return ids.length > 1 ? `${who}, branch ${ids.indexOf(this.node.id) + 1} of ${ids.length}` : who;
  }

  #buttons() {
    const { node } = this;
    const again = node.role === "user" ? "Answer this again" : "Regenerate";
    return el("span", { class: "buttons", role: "group", "aria-label": "Actions" },
      copyButton("Copy", () => node.text),
      iconButton("Edit", ICONS.edit, () => this.edit()),
      iconButton(again, ICONS.again, () => this.#actions.regenerate(node)));
  }

  #branches() {
    const { node } = this;
    const ids = siblings(this.#conversation, node);
    if (ids.length < 2) return null;
    const at = ids.indexOf(node.id);
    const step = (by) => () => this.#actions.step(node, by);
    return el("span", { class: "branches", role: "group", "aria-label": "Branches" },
      iconButton("Previous branch", ICONS.left, step(-1), { disabled: at === 0 }),
      el("span", { class: "branch-number" }, `${at + 1}/${ids.length}`),
      iconButton("Next branch", ICONS.right, step(1), { disabled: at === ids.length - 1 }));
  }
}

/** Make a field as high as its text, within the limits of its style. */
export function fit(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function fileView({ name, text }) {
  return el("details", { class: "file" },
    el("summary", null, el("span", { class: "file-name" }, name), " ", el("span", { class: "hint" }, bytes(text.length))),
    el("pre", { tabindex: "0", "aria-label": `Contents of ${name}` }, el("code", null, text)));
}

function noticeOf(node) {
  if (node.error !== null) return node.error;
  if (node.finish === "length") return "The answer reached its limit of tokens.";
  if (node.finish === "stopped") return "Stopped.";
  if (node.finish === null) return "The answer was cut off when the page was closed.";
  if (node.text === "" && node.reasoning === "") return "The answer is empty.";
  return null;
}

// A line that unfolds to everything that the server told of the turn.
function statsView(stats) {
  const speed = stats.perSecond ? ` at ${stats.perSecond.toFixed(stats.perSecond < 10 ? 1 : 0)}/s` : "";
  const line = `${whole(stats.cached)} reused · ${whole(stats.evaluated)} evaluated · ${count(stats.generated, "token")}${speed}`;
  const rows = [
    ["Prompt", count(stats.prompt, "token")],
    ["Reused", `${count(stats.cached, "token")}${stats.fromDisk ? `, of them ${whole(stats.fromDisk)} from disk` : ""}`],
    stats.replayed !== undefined && ["Replayed", count(stats.replayed, "token")],
    ["Evaluated", `${count(stats.evaluated, "token")}${stats.promptMs ? ` in ${duration(stats.promptMs)}` : ""}`],
    stats.reevaluated !== undefined && ["Of them held before", count(stats.reevaluated, "token")],
    stats.difference !== null && stats.difference !== undefined && ["First differing token", whole(stats.difference)],
    stats.why && ["Why no more was reused", reasonOf(stats)],
    ["Written", `${count(stats.generated, "token")}${stats.generatedMs ? ` in ${duration(stats.generatedMs)}` : ""}`],
  ].filter(Boolean);
  return el("details", { class: "stats" }, el("summary", { class: "hint" }, line),
    el("dl", null, ...rows.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
}
