// Marks the files in dist/cjs as CommonJS, since the package is of the type "module".
import { writeFileSync } from "node:fs";

writeFileSync(new URL("../dist/cjs/package.json", import.meta.url), '{ "type": "commonjs" }\n');
