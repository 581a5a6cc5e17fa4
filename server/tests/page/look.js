// What can be seen of the page now: page.py evaluates this file, which returns what is wrong with it.
(() => {
  const failures = [];
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  // A colour as [red, green, blue, alpha], drawn over another one.
  function over(color, below) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = `rgb(${below.join(" ")})`;
    canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  }
  function background(element) {
    if (element === null) return [255, 255, 255];
    return over(getComputedStyle(element).backgroundColor, background(element.parentElement));
  }
  function luminance(color) {
    const [r, g, b] = color.map((n) => n / 255).map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(a, b) {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  }
  const isSeen = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true })
    && !element.closest(".hidden-label, :disabled, [inert]");

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (texts.currentNode.data.trim() === "" || !isSeen(element)) continue;
    const below = background(element);
    const found = contrast(over(getComputedStyle(element).color, below), below);
    if (found < 4.5) failures.push(`contrast ${found.toFixed(2)} of "${texts.currentNode.data.slice(0, 30)}"`);
  }

  for (const control of document.querySelectorAll("button, input, textarea, summary, a[href]")) {
    if (!isSeen(control)) continue;
    const label = control.getAttribute("aria-label") ?? (control.labels?.[0]?.textContent || control.textContent);
    if (!label.trim()) failures.push(`no name: ${control.outerHTML.slice(0, 80)}`);
    const { width, height } = control.getBoundingClientRect();
    if (control.matches("button") && width > 0 && (width < 24 || height < 24)) {
      failures.push(`too small: ${control.outerHTML.slice(0, 80)} ${width} x ${height}`);
    }
  }

  const wide = document.documentElement.scrollWidth - window.innerWidth;
  if (wide > 0) failures.push(`wider than the window by ${wide}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) failures.push("an id is there twice");
  return failures;
})()
