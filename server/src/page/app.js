// The page: puts its parts together.

import { getJson } from "./api.js";
import { setUpAttaching } from "./attach.js";
import * as chat from "./chat.js";
import { setUpComposer } from "./composer.js";
import { drawList } from "./conversations.js";
import { sequenceOf } from "./cost.js";
import { byId, isTouchOnly } from "./dom.js";
import { closeDrawer, isOpen, setUpDrawers, togglePanel } from "./drawers.js";
import { setUpKeys } from "./keys.js";
import { MemoryPoll } from "./memory.js";
import { drawMemory } from "./memory-view.js";
import { current, openSettings, setUpSettings } from "./settings.js";
import * as store from "./store.js";
import { toast } from "./toast.js";
import { exportConversations, setUpImport } from "./transfer.js";

const THEMES = { auto: "light", light: "dark", dark: "auto" };

const memory = { cache: null, error: null };
const poll = new MemoryPoll((cache, error) => {
  memory.cache = cache ?? (error ? null : memory.cache);
  memory.error = error;
  drawPanel();
}, () => isOpen("memory"), chat.isRunning);

// Draw the picture of the memory, and the costs at the messages.
function drawPanel() {
  byId("memory-state").textContent = chat.isRunning() ? "live" : "";
  if (memory.cache === null && memory.error === null) return;
  const nodes = chat.shownPath();
  const sequence = memory.cache && sequenceOf(nodes, memory.cache.sequences);
  const focused = document.activeElement?.dataset?.key;
  const panel = byId("memory");
  const state = { ...memory, sequence, nodes, conversation: chat.conversation(), focus: goToMessage };
  panel.replaceChildren(...drawMemory(state));
  if (focused) panel.querySelector(`[data-key="${focused}"]`)?.focus();
  chat.showCosts(sequence);
}

function goToMessage(id) {
  closeDrawer();
  chat.focusMessage(id);
}

function openChat(id) {
  chat.open(id);
  if (closeDrawer() || id === null) byId("input").focus();
}

function newChat() {
  openChat(null);
}

function toggleList() {
  togglePanel("list", () => {});
}

function toggleMemory() {
  togglePanel("memory", () => poll.refresh());
}

// Show the name of the model, which the server tells without a key.
async function showModel() {
  try {
    const models = await getJson("v1/models", current().key);
    byId("model").textContent = String(models?.data?.[0]?.id ?? "").split("/").at(-1).slice(0, 80);
  } catch {
    // Without a server there is no model; sending a message says so.
  }
}

function setUpTheme() {
  const root = document.documentElement;
  const button = byId("switch-theme");
  const name = () => {
    const words = { auto: "as the system", light: "light", dark: "dark" }[root.dataset.theme];
    button.setAttribute("aria-label", `Theme: ${words}`);
    button.title = `Theme: ${words}`;
  };
  button.addEventListener("click", () => {
    root.dataset.theme = THEMES[root.dataset.theme] ?? "auto";
    store.saveValue("theme", root.dataset.theme);
    name();
  });
  name();
}

function setUpTransfer() {
  const day = () => new Date().toISOString().slice(0, 10);
  byId("export-chat").addEventListener("click", () => exportConversations([chat.conversation()], `conversation-${day()}`));
  byId("export-all").addEventListener("click", () =>
    exportConversations(store.list().map((head) => store.load(head.id)), `conversations-${day()}`));
  setUpImport(openChat);
}

// Another tab changed the storage.
function setUpTabs() {
  window.addEventListener("storage", ({ key }) => {
    chat.takeStored(store.idOfKey(key));
    drawList(openChat);
  });
  window.addEventListener("pagehide", chat.keepRunning);
}

function start() {
  chat.listen(() => {
    drawList(openChat);
    drawPanel();
  }, () => poll.refresh());
  setUpTheme();
  setUpDrawers(() => poll.refresh());
  chat.setUpScrolling();
  setUpSettings(() => chat.conversation().system, (system) => {
    chat.setSystem(system);
    showModel();
    poll.refresh();
  });
  setUpComposer();
  setUpAttaching();
  setUpTransfer();
  setUpTabs();
  setUpKeys({ newChat, toggleList, toggleMemory, closeDrawer, openSettings: () => openSettings(chat.conversation().system) });
  for (const id of ["new-chat", "new-chat-narrow"]) byId(id).addEventListener("click", newChat);
  chat.open(store.loadValue("open"));
  if (!store.isLasting()) toast("This browser refuses storage: conversations are lost when the page is closed.");
  showModel();
  if (!isTouchOnly()) byId("input").focus();
}

start();
