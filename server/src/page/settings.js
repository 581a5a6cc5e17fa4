// Settings: the system message of the conversation, sampling, and the API key.

import { byId } from "./dom.js";
import { loadSettings, saveSettings } from "./store.js";

const NUMBERS = { temperature: "Temperature", top_p: "Top-p", max_tokens: "Most tokens", seed: "Seed" };

let settings = loadSettings();

/** Return the settings: {system, temperature, top_p, max_tokens, seed, key}. Missing: the server's. */
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
    const wrong = firstInvalid(form);
    byId("settings-error").textContent = wrong ? `${NUMBERS[wrong.name]}: ${wrong.validationMessage}` : "";
    if (wrong) {
      event.preventDefault();
      wrong.focus();
      return;
    }
    settings = read(form);
    saveSettings(settings);
    onSave(settings.system);
  });
}

/** Open the dialog. `field` has the focus. */
export function openSettings(system, field = "system") {
  const form = byId("settings-form");
  for (const name of [...Object.keys(NUMBERS), "key"]) form.elements[name].value = settings[name] ?? "";
  form.elements.system.value = system;
  byId("settings-error").textContent = "";
  byId("settings").showModal();
  form.elements[field].focus();
}

function firstInvalid(form) {
  return Object.keys(NUMBERS).map((name) => form.elements[name]).find((field) => !field.checkValidity());
}

function read(form) {
  const values = { system: form.elements.system.value, key: form.elements.key.value.trim() };
  for (const name of Object.keys(NUMBERS)) {
    if (form.elements[name].value !== "") values[name] = form.elements[name].valueAsNumber;
  }
  return values;
}
