// The code of README.md has the right types: each block on its own, with the functions that stand for the
// reader's code.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import ts from "typescript";

const frame = `import * as simba from "simba-resp";
declare const token: number;
declare function write(token: number, signal: AbortSignal): Promise<void>;
declare function cleanup(token: number, signal: AbortSignal): Promise<void>;
declare function serve(signal: AbortSignal): Promise<void>;
declare function askSentinelForTheLeader(): Promise<{ host: string; port: number }>;
`;

test("the code of the README compiles", () => {
  const folder = new URL("../build/readme/", import.meta.url);
  const text = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const blocks = [...text.matchAll(/^( *)```[jt]s\n([^]*?)```/gm)].map((match) => match[2]!);
  assert.ok(blocks.length >= 10);
  mkdirSync(folder, { recursive: true });
  const files = blocks.map((block, i) => {
    const imports = block.match(/^ *import .*\n/gm)?.join("") ?? "";
    const client = /const client =/.test(block) ? "" : "declare const client: simba.Client;\n";
    const file = new URL(`${i}.ts`, folder).pathname;
    writeFileSync(file, imports + frame + client + block.replace(/^ *import .*\n/gm, ""));
    return file;
  });
  const lib = ["lib.es2022.d.ts", "lib.esnext.disposable.d.ts"];
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, lib, strict: true, types: ["node"] };
  const faults = ts.getPreEmitDiagnostics(ts.createProgram(files, { ...options, noEmit: true }));
  const told = faults.map(({ file, messageText }) => `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, " ")}`);
  assert.deepEqual(told, []);
});
