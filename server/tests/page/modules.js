// Tests of the page's modules. page.py evaluates this file in the page: it returns the failures.
(async () => {
  const failures = [];
  const load = (name) => import(new URL(`page/${name}.js`, document.baseURI).href);
  const [markdown, inlines, tree, sse, cost, turn, numbers, transfer] = await Promise.all(
    ["markdown", "inline", "tree", "sse", "cost", "turn", "numbers", "transfer"].map(load));

  function same(what, found, wanted) {
    const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
    if (a !== b) failures.push(`${what}: ${a} instead of ${b}`);
  }

  function throws(what, run) {
    try {
      run();
      failures.push(`${what}: no error`);
    } catch (error) {
      if (!(error instanceof Error)) failures.push(`${what}: ${error}`);
    }
  }

  // Markdown becomes elements, written here as nested brackets: (em text).
  function outline(node) {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    return `(${[node.tagName.toLowerCase(), ...[...node.childNodes].map(outline)].join(" ")})`;
  }
  function shown(text) {
    const parent = document.createElement("div");
    new markdown.MarkdownView(parent).update(text);
    parent.querySelectorAll("figcaption").forEach((caption) => caption.remove());
    return [...parent.childNodes].map(outline).join("");
  }

  for (const [text, wanted] of [
    ["plain", "(p plain)"],
    ["a *b* _c_ **d** __e__ ~~f~~", "(p a  (em b)   (em c)   (strong d)   (strong e)   (del f))"],
    ["***both***", "(p (em (strong both)))"],
    ["*a **b** c*", "(p (em a  (strong b)  c))"],
    ["snake_case_name and 2 * 3 * 4", "(p snake_case_name and 2 * 3 * 4)"],
    ["*never closed", "(p *never closed)"],
    ["**a*", "(p * (em a))"],
    ["`a *b*` ``c`d``", "(p (code a *b*)   (code c`d))"],
    ["`open", "(p `open)"],
    ["\\*not\\*", "(p *not*)"],
    ["one  \ntwo\nthree", "(p one   (br) two\nthree)"],
    ["# One\n## Two #", "(h3 One)(h4 Two)"],
    ["#no heading", "(p #no heading)"],
    ["- a\n- b\n  - c\n- d", "(ul (li a) (li b (ul (li c))) (li d))"],
    ["1. a\n2. b", "(ol (li a) (li b))"],
    ["7) a", "(ol (li a))"],
    ["- a\n\n- b", "(ul (li (p a)) (li (p b)))"],
    ["- a\n  more\n\ntext", "(ul (li a\nmore))(p text)"],
    ["1. a\n   ```\n   x\n   ```\n2. b", "(ol (li a (figure (pre (code x)))) (li b))"],
    ["> a\n> b", "(blockquote (p a\nb))"],
    ["---", "(hr)"],
    ["```js\n<b>\n  x\n```\nafter", "(figure (pre (code <b>\n  x)))(p after)"],
    ["````\n```\n````", "(figure (pre (code ```)))"],
    ["```\nopen", "(figure (pre (code open)))"],
    ["| a | b |\n|--:|---|\n| 1 | 2 | 3 |\n| x \\| y |",
      "(div (table (thead (tr (th a) (th b))) (tbody (tr (td 1) (td 2)) (tr (td x | y) (td)))))"],
    ["a | b\nno rule", "(p a | b\nno rule)"],
    ["<script>alert(1)</script><img src=x onerror=alert(1)>",
      "(p <script>alert(1)</script><img src=x onerror=alert(1)>)"],
    ["[a](https://example.org/b?c=d)", "(p (a a))"],
    ["[a](javascript:alert(1)) [b](data:text/html,x) [c](/here)", "(p (span a)   (span b)   (span c))"],
    ["![p](https://example.org/p.png)", "(p (a Picture: p))"],
    ["see https://example.org/a_b_c.", "(p see  (a https://example.org/a_b_c) .)"],
    ["<https://example.org>", "(p (a https://example.org))"],
    ["", ""],
  ]) same(text, shown(text), wanted);

  // Links open apart, and tell the other side nothing.
  const anchor = inlines.link("https://example.org/", ["x"]);
  same("rel", anchor.rel.split(" ").includes("noopener") && anchor.target, "_blank");
  for (const address of ["javascript:alert(1)", "JAVASCRIPT:alert(1)", " javascript:x", "data:text/html,x",
    "vbscript:x", "file:///etc/passwd", "//example.org", "x"]) {
    same(address, inlines.link(address, ["x"]).tagName, "SPAN");
  }

  // No text makes attributes or elements beyond the known ones.
  const known = new Set(["A", "BLOCKQUOTE", "BR", "BUTTON", "CODE", "DEL", "DIV", "EM", "FIGCAPTION", "FIGURE", "H3",
    "H4", "H5", "H6", "HR", "LI", "OL", "P", "PRE", "SPAN", "STRONG", "svg", "path", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL"]);
  const pieces = ["*", "**", "_", "~~", "`", "```\n", "\n", "\n\n", "- ", "1. ", "> ", "# ", "|", "|--|\n", "[", "](", ")",
    "https://a.b/", "<img onerror=x>", "![", "\\", " ", "  \n", "word", "\u0000", "é", "😀", "\t", "&lt;", "    "];
  let seed = 7;
  const random = (n) => { seed = (seed * 48271) % 2147483647; return seed % n; };
  for (let round = 0; round < 400; round += 1) {
    const text = Array.from({ length: 60 }, () => pieces[random(pieces.length)]).join("");
    const whole = document.createElement("div");
    new markdown.MarkdownView(whole).update(text);
    for (const element of whole.querySelectorAll("*")) {
      if (!known.has(element.tagName)) failures.push(`element ${element.tagName} of ${JSON.stringify(text)}`);
      for (const { name } of element.attributes) if (name.startsWith("on")) failures.push(`attribute ${name}`);
    }
    // Growing by pieces comes out as the whole does.
    const growing = document.createElement("div");
    const view = new markdown.MarkdownView(growing);
    for (let end = 0; end < text.length; end += 37) view.update(text.slice(0, end));
    view.update(text);
    if (outline(growing) !== outline(whole)) failures.push(`grown otherwise: ${JSON.stringify(text)}`);
  }

  // Work on hostile text is bounded.
  for (const piece of ["[", "*", "_a", "`", "``` ", "> ", "- ", "|", "#", "# ", "[a](", "![", "<https://", "https://", " ", "~~", "\\",
    "**a ", "*a_b ", "``a`", "1. ", "|-", "- - "]) {
    for (const text of [piece.repeat(20_000), `${piece}\n`.repeat(5000), `x | y\n${piece.repeat(5000)}`]) {
      const start = performance.now();
      shown(text);
      const took = performance.now() - start;
      if (took > 4000) failures.push(`${JSON.stringify(piece)} repeated took ${took} ms`);
    }
  }

  // The tree: siblings, the chosen path, and plain data.
  const chat = tree.newConversation("system");
  const first = tree.addMessage(chat, null, "user", { text: "1" });
  const answer = tree.addMessage(chat, first, "assistant", { text: "2", stats: { cached: 2, evaluated: 3, generated: 3, prompt: 5, why: "complete" } });
  const edited = tree.addMessage(chat, null, "user", { text: "1b", files: [{ name: "a.txt", text: "``` x" }] });
  const texts = () => tree.path(chat).map((node) => node.text);
  same("path of the newest", texts(), ["1b"]);
  same("sibling", tree.chooseSibling(chat, edited, -1).id, first.id);
  same("path of the first", texts(), ["1", "2"]);
  same("no further sibling", tree.chooseSibling(chat, first, -1), null);
  same("above", tree.above(chat, answer).map((node) => node.text), ["1"]);
  const copy = tree.fromData(JSON.parse(JSON.stringify(tree.toData(chat))));
  same("there and back", tree.toData(copy), tree.toData(chat));
  const damaged = (change) => {
    const data = JSON.parse(JSON.stringify(tree.toData(chat)));
    change(data);
    return () => tree.fromData(data);
  };
  throws("version", damaged((data) => { data.version = 2; }));
  throws("no root", damaged((data) => data.nodes.shift()));
  throws("lost child", damaged((data) => data.nodes.pop()));
  throws("two ids", damaged((data) => data.nodes.push(data.nodes[1])));
  throws("circle", damaged((data) => { data.nodes[1].children.push("root"); }));
  throws("island", damaged((data) => data.nodes.push({ ...data.nodes[1], id: "x", children: [] })));
  throws("role", damaged((data) => { data.nodes[1].role = "system"; }));
  throws("id", damaged((data) => { data.nodes[1].id = "__proto__"; }));
  throws("too many", damaged((data) => { data.nodes = Array(10_001).fill(data.nodes[0]); }));
  for (const value of [null, 1, "x", [], {}, { version: 1 }]) throws("no conversation", () => tree.fromData(value));
  for (const text of ["", "{}", "[]", '{"kind":"other"}']) throws("no file", () => transfer.readConversations(text));

  // Requests: files are fenced so that they cannot end their fence.
  const next = tree.addMessage(chat, edited, "assistant");
  same("request", turn.requestBody(chat, next, { temperature: 0, key: "secret" }), {
    messages: [{ role: "system", content: "system" }, { role: "user", content: "File: a.txt\n````\n``` x\n````\n\n1b" }],
    timings_per_token: false, temperature: 0,
  });
  const node = tree.addMessage(chat, edited, "assistant");
  same("role only", turn.takeChunk(node, { choices: [{ delta: { role: "assistant", content: null } }] }), false);
  same("content", turn.takeChunk(node, { choices: [{ delta: { content: "a" } }] }), true);
  turn.takeChunk(node, { choices: [{ delta: {}, finish_reason: "stop" }] });
  turn.takeChunk(node, { choices: [], timings: { cache_n: 4, prompt_n: 2, predicted_n: 3 }, backstitch: { reused: 4, replayed: 1, why: "differs" } });
  same("finish", [node.text, node.finish, node.stats.prompt, node.stats.replayed, turn.endOf(node)], ["a", "stop", 6, 1, 9]);
  turn.takeChunk(node, { choices: [{ delta: { content: { a: 1 } } }], timings: { cache_n: "x", prompt_n: -1, predicted_n: null } });
  same("hostile", [node.text, node.stats.prompt], ["a", 0]);

  // Events: however the bytes are cut.
  const stream = ": ping\n\ndata: é1\n\ndata:2\r\ndata: 3\r\n\r\nevent: x\ndata: [DONE]\n\n";
  const bytes = new TextEncoder().encode(stream);
  for (const size of [1, 2, 3, 7, 1000]) {
    const body = new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    });
    const data = [];
    for await (const event of sse.events(body)) data.push(event);
    same(`events in pieces of ${size}`, data, ["é1", "2\n3", "[DONE]"]);
  }

  // Costs.
  const cache = cost.readCache({ n_ctx: 64, sequences: [{ seq: 3, n_tokens: 100, text_begin: "1", positions: [
    { from: 0, to: 40, restored_from: 0, cost: "replayed" },
    { from: 40, to: 60, restored_from: 32, cost: "reevaluated" },
    { from: 60, to: 100, restored_from: 60, cost: "held" }] }] });
  const [sequence] = cache.sequences;
  same("free", cost.costAt(sequence, 70), { kind: "held", tokens: 0 });
  same("replayed", cost.costAt(sequence, 39), { kind: "replayed", tokens: 39 });
  same("re-evaluated", cost.costAt(sequence, 50), { kind: "reevaluated", tokens: 18 });
  same("the end", cost.costAt(sequence, 100), { kind: "held", tokens: 0 });
  same("words", cost.costInWords(cost.costAt(sequence, 1)), "replays 1 token");
  const fitting = { text: "1", stats: { prompt: 90, generated: 11 } };
  same("the sequence of the conversation", cost.sequenceOf([fitting], cache.sequences)?.seq, 3);
  same("another's sequence", cost.sequenceOf([{ text: "1", stats: { prompt: 50, generated: 11 } }], cache.sequences), null);
  for (const data of [null, 1, [], { sequences: 1 }, { sequences: [null, 1, { positions: [null, { from: -1, to: "x" }] }], counters: [] }]) {
    same("hostile cache", Array.isArray(cost.readCache(data).sequences), true);
  }

  same("numbers", [numbers.whole(1234), numbers.count(1, "token"), numbers.bytes(1), numbers.bytes(1536), numbers.duration(1500)],
    ["1,234", "1 token", "1 byte", "1.5 KiB", "1.5 s"]);
  return failures;
})()
