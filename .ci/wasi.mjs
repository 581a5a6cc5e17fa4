// Run a WebAssembly program under Node.js: `node .ci/wasi.mjs PROGRAM [ARGUMENTS]`. The program sees
// the whole file system and the environment; this script ends with its exit code.
import { readFile } from "node:fs/promises";
import process from "node:process";

// Node.js warns that this module may change; there is no stable one.
process.removeAllListeners("warning");
const { WASI } = await import("node:wasi");

const [program, ...rest] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args: [program, ...rest], env: process.env, preopens: { "/": "/" }, returnOnExit: true });
const compiled = await WebAssembly.compile(await readFile(program));
const instance = await WebAssembly.instantiate(compiled, wasi.getImportObject());
process.exitCode = wasi.start(instance);
