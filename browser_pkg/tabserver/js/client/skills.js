/**
 * Skills (SEP-2640): a SKILL.md with instructions for an agent, and the files beside it, as resources `skill://NAME/…`.
 *
 * A skill is the resource of its SKILL.md, which has the skill's entry in its `_meta`, and a template for the other files. The
 * entry has the digests of all files, so their content is read once, when the skill is offered. The worker parses and checks the
 * frontmatter: see handlers/skills.py.
 *
 * @import { Resource, Skill, SkillFile } from "../client.js"
 */

import { RefusedOffer, ResourceNotFound } from "./errors.js";

const MANIFEST = "SKILL.md";
const META_SKILL = "io.modelcontextprotocol.skills/entry";
const NAME = /^(?!.*--)[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$/;
const PATH = /^(?!.*(^|\/)\.{1,2}(\/|$))[^/\\\u0000-\u001f]+(\/[^/\\\u0000-\u001f]+)*$/;
/** What every client accepts. The limits of handlers/skills.py. */
const MAX_FILES = 512;
const MAX_SIZE = 16 * 1024 * 1024;
const FRONTMATTER = /^\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|$(?![^]))/ms;
/** @type {Record<string, string>} */
const TYPES = {
  md: "text/markdown", txt: "text/plain", py: "text/x-python", js: "text/javascript", json: "application/json", html: "text/html",
  css: "text/css", csv: "text/csv", svg: "image/svg+xml", xml: "text/xml", yaml: "application/yaml", yml: "application/yaml",
  toml: "application/toml", sh: "text/x-sh", png: "image/png", jpg: "image/jpeg", gif: "image/gif", pdf: "application/pdf",
};

/**
 * The resources of a skill, after its files were read. Throws for what clients refuse.
 * @param {Skill} skill
 * @returns {Promise<Resource[]>}
 */
export async function makeSkill({ name, description, files, metadata }) {
  if (!NAME.test(name ?? "")) {
    throw new RefusedOffer(`A skill needs a name of 1 to 64 characters: a-z, digits and single hyphens, not ${JSON.stringify(name)}`);
  }
  const root = `skill://${name}`;
  const paths = Object.keys(files ?? {});
  if (!paths.includes(MANIFEST)) throw new RefusedOffer(`Skill "${name}" needs a file ${MANIFEST}`);
  if (paths.length > MAX_FILES) throw new RefusedOffer(`Skill "${name}" has ${paths.length} files; clients accept ${MAX_FILES}`);
  /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
  const contents = new Map();
  for (const path of paths) {
    if (!PATH.test(path)) throw new RefusedOffer(`Skill "${name}": ${JSON.stringify(path)} is no path of a file, such as "references/FORMS.md"`);
    contents.set(path, await bytesOf(/** @type {SkillFile} */ (files[path]), name, path));
  }
  const manifest = withFrontmatter(textOf(contents.get(MANIFEST)), { name, description, ...metadata });
  contents.set(MANIFEST, new TextEncoder().encode(manifest));
  const size = [...contents.values()].reduce((sum, bytes) => sum + bytes.length, 0);
  if (size > MAX_SIZE) throw new RefusedOffer(`Skill "${name}" has ${size} bytes; clients accept 16 MiB`);
  const resources = await Promise.all([...contents].map(async ([path, bytes]) => ({
    uri: uriOf(root, path), digest: await digestOf(bytes), size: bytes.length,
  })));
  const entry = { text: FRONTMATTER.exec(manifest)?.[1] ?? "", resources };
  /** @type {Resource} */
  const first = {
    uri: `${root}/${MANIFEST}`, name, description, mimeType: "text/markdown", size: contents.get(MANIFEST)?.length,
    _meta: { [META_SKILL]: entry },
    read: () => manifest,
  };
  /** @type {Resource} */
  const others = {
    uri: `${root}/{path*}`, name: `Files of ${name}`,
    read: (uri, { variables: { path = "" } }) => contentOf(uri, path, contents.get(path)),
  };
  return contents.size > 1 ? [first, others] : [first];
}

/**
 * The SKILL.md with a frontmatter: its own, or one of these values. JSON is YAML.
 * @param {string} text
 * @param {Record<string, unknown>} values
 */
function withFrontmatter(text, values) {
  if (FRONTMATTER.test(text)) return text;
  const lines = Object.entries(values).filter(([, value]) => value !== undefined);
  return `---\n${lines.map(([key, value]) => `${key}: ${JSON.stringify(value)}\n`).join("")}---\n${text}`;
}

/**
 * @param {string} uri
 * @param {string} path
 * @param {Uint8Array<ArrayBuffer> | undefined} bytes
 */
function contentOf(uri, path, bytes) {
  if (!bytes) throw new ResourceNotFound(uri);
  const type = TYPES[path.slice(path.lastIndexOf(".") + 1).toLowerCase()];
  try {
    return { contents: [{ uri, mimeType: type ?? "text/plain", text: textOf(bytes) }] };
  } catch {
    return new Blob([bytes], { type: type ?? "application/octet-stream" });
  }
}

/**
 * @param {SkillFile} file
 * @param {string} name
 * @param {string} path
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function bytesOf(file, name, path) {
  if (typeof file === "string") return new TextEncoder().encode(file);
  if (file instanceof Uint8Array) return new Uint8Array(file);
  if (file instanceof Blob) return new Uint8Array(await file.arrayBuffer());
  if (!(file instanceof URL)) throw new RefusedOffer(`Skill "${name}": ${path} must be a text, a Uint8Array, a Blob or a URL`);
  const answer = await fetch(file);
  if (!answer.ok) throw new RefusedOffer(`Skill "${name}": ${file} answered ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** Throws for bytes that are no UTF-8. A byte order mark stays, so that the digest is right. @param {Uint8Array | undefined} bytes */
function textOf(bytes) {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function digestOf(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return `sha256:${[...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * @param {string} root
 * @param {string} path
 */
function uriOf(root, path) {
  return `${root}/${path.split("/").map(encodeURIComponent).join("/").replaceAll("'", "%27")}`;
}
