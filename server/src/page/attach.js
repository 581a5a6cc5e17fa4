// Text files that are attached to a message: chosen, dropped or pasted.

import { byId, el, iconButton, ICONS } from "./dom.js";
import { bytes } from "./numbers.js";
import { toast } from "./toast.js";

const MOST_BYTES = 1024 * 1024;
const MOST_FILES = 20;

let files = [];

/** Return the attached files, {name, text}, and begin anew. */
export function takeFiles() {
  const taken = files;
  files = [];
  draw();
  return taken;
}

/** Return true if files are attached. */
export function hasFiles() {
  return files.length > 0;
}

/** Attach the files of a list. Those that are no text are refused with a notice. */
export async function attachFiles(list) {
  for (const file of list) {
    try {
      if (files.length >= MOST_FILES) throw new Error(`there are ${MOST_FILES} files already`);
      files.push({ name: file.name.slice(0, 200), text: await readText(file) });
    } catch (error) {
      toast(`${file.name}: ${error.message}`);
    }
  }
  draw();
}

async function readText(file) {
  if (file.size > MOST_BYTES) throw new Error(`has ${bytes(file.size)}, more than ${bytes(MOST_BYTES)}`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("is no text in UTF-8");
  }
  if (text.includes("\0")) throw new Error("is no text");
  return text;
}

/** Let people choose, drop and paste files. */
export function setUpAttaching() {
  const field = byId("attach-file");
  byId("attach").addEventListener("click", () => field.click());
  field.addEventListener("change", () => {
    attachFiles([...field.files]);
    field.value = "";
  });
  const main = byId("main");
  main.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    main.classList.add("dropping");
  });
  main.addEventListener("dragleave", () => main.classList.remove("dropping"));
  main.addEventListener("drop", (event) => {
    main.classList.remove("dropping");
    if (event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    attachFiles([...event.dataTransfer.files]);
  });
  byId("input").addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attachFiles([...event.clipboardData.files]);
  });
}

function draw() {
  const list = byId("attachments");
  list.hidden = files.length === 0;
  list.replaceChildren(...files.map((file) => el("li", null,
    el("span", { class: "file-name" }, file.name),
    el("span", { class: "hint" }, bytes(file.text.length)),
    iconButton(`Remove ${file.name}`, ICONS.close, () => {
      files = files.filter((other) => other !== file);
      draw();
      byId("input").focus();
    }))));
}
