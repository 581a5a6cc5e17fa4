// Answers that last: a word every 50 ms, without an end until `window.isDone`. page.py evaluates this
// file in the page.
(() => {
  const real = window.fetch;
  window.fetch = async (path, init) => {
    if (!init?.body) return real(path, init);
    const send = (controller, data) => controller.enqueue(new TextEncoder().encode(`data: ${data}\n\n`));
    return new Response(new ReadableStream({
      start(controller) { init.signal.addEventListener("abort", () => controller.error(init.signal.reason)); },
      async pull(controller) {
        await new Promise((waited) => setTimeout(waited, 50));
        if (init.signal.aborted) return;
        send(controller, window.isDone ? "[DONE]" : JSON.stringify({ choices: [{ delta: { content: "word " } }] }));
        if (window.isDone) controller.close();
      },
    }));
  };
})();
