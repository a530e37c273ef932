// Checks values against schemas with js/schema/validate.js: [[schema, value], …] in a file, a list of faults for each out.
import { readFileSync } from "node:fs";
import { check } from "../../browser_pkg/tabserver/js/schema/validate.js";

const cases = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.log(JSON.stringify(cases.map(([schema, value]) => check(schema, value))));
