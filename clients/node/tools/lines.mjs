// Prints how many lines of code the TypeScript files of a folder have: lines with a token, as the
// scanner of the TypeScript compiler sees them, so without blank lines and comments.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const folder = process.argv[2];
let all = 0;
for (const name of readdirSync(folder).filter((file) => file.endsWith(".ts")).sort()) {
  const source = ts.createSourceFile(name, readFileSync(join(folder, name), "utf8"), ts.ScriptTarget.Latest, true);
  const lines = new Set();
  const visit = (node) => {
    const children = node.getChildren(source).filter((child) => !ts.isJSDoc(child));
    if (children.length === 0 && node.getWidth(source) > 0) {
      const from = source.getLineAndCharacterOfPosition(node.getStart(source)).line;
      const to = source.getLineAndCharacterOfPosition(node.getEnd()).line;
      for (let line = from; line <= to; line++) lines.add(line);
    }
    children.forEach(visit);
  };
  visit(source);
  console.log(String(lines.size).padStart(5), name);
  all += lines.size;
}
console.log(String(all).padStart(5), "in all");
