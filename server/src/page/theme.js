// Set the theme before anything is drawn. A classic script: modules run too late for that.
"use strict";
(function () {
  let theme = "auto";
  try {
    theme = localStorage.getItem("backstitch:theme") || "auto";
  } catch {
    // Without storage, the theme of the system is used.
  }
  document.documentElement.dataset.theme = theme;
})();
