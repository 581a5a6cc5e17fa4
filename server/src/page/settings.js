// Settings: the system message of the conversation, sampling, and the API key.

import { wrongInKey } from "./api.js";
import { byId } from "./dom.js";
import { loadSettings, saveSettings } from "./store.js";
import { toast } from "./toast.js";

const NUMBERS = { temperature: "Temperature", top_p: "Top-p", max_tokens: "Most tokens", seed: "Seed" };
const CHECKED = { ...NUMBERS, key: "API key" };

let settings = loadSettings();
// The system message with which the dialog was opened.
let opened = "";

/**
 * Return the settings: {system, temperature, top_p, max_tokens, seed, key}. Missing: the server's.
 * `system` is that of new conversations.
 */
export function current() {
  return settings;
}

/**
 * Set up the dialog. `getSystem` returns the system message of the shown conversation; `onSave`
 * gets the new one.
 */
export function setUpSettings(getSystem, onSave) {
  const dialog = byId("settings");
  const form = byId("settings-form");
  byId("open-settings").addEventListener("click", () => openSettings(getSystem()));
  byId("settings-cancel").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", (event) => {
    const { key, system } = form.elements;
    key.setCustomValidity(wrongInKey(key.value.trim()) ?? "");
    const wrong = firstInvalid(form);
    byId("settings-error").textContent = wrong ? `${CHECKED[wrong.name]}: ${wrong.validationMessage}` : "";
    if (wrong) {
      event.preventDefault();
      wrong.focus();
      return;
    }
    const hasNewSystem = system.value !== opened;
    settings = read(form, hasNewSystem ? system.value : settings.system);
    keep();
    onSave(hasNewSystem ? system.value : getSystem());
  });
}

function keep() {
  try {
    saveSettings(settings);
  } catch {
    toast("This browser’s storage is full: the settings hold until the page is closed.");
  }
}

/** Open the dialog. `field` has the focus. */
export function openSettings(system, field = "system") {
  const form = byId("settings-form");
  for (const name of [...Object.keys(NUMBERS), "key"]) form.elements[name].value = settings[name] ?? "";
  form.elements.system.value = system;
  opened = form.elements.system.value;
  byId("settings-error").textContent = "";
  byId("settings").showModal();
  form.elements[field].focus();
}

function firstInvalid(form) {
  return Object.keys(CHECKED).map((name) => form.elements[name]).find((field) => !field.checkValidity());
}

function read(form, system) {
  const values = { system, key: form.elements.key.value.trim() };
  for (const name of Object.keys(NUMBERS)) {
    if (form.elements[name].value !== "") values[name] = form.elements[name].valueAsNumber;
  }
  return values;
}
