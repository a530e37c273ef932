// The demo's drawing in two tabs that send each other their versions: a script for tests, prints JSON.

import { Drawing } from "../../web_demo/drawing/drawing.js";

const line = (...points) => ({ kind: "line", points, color: "red", width: 5 });
const copy = (value) => JSON.parse(JSON.stringify(value));
const shown = (drawing) => drawing.visible.map(({ by, shape }) => `${by} ${shape.points.length}`);

/** Two tabs. `deliver` gives each the last version that the other one has changed. */
function twoTabs() {
  const tabs = [new Drawing(), new Drawing()];
  const sent = [null, null];
  tabs.forEach((tab, own) => tab.addEventListener("change", ({ detail }) => {
    if (detail.isOwn) sent[own] = copy(tab.version);
  }));
  const deliver = () => {
    const versions = sent.splice(0, 2, null, null);
    tabs.forEach((tab, own) => versions[1 - own] && tab.load(versions[1 - own]));
  };
  const settle = () => {
    for (let round = 0; round < 10 && sent.some(Boolean); round++) deliver();
  };
  return { one: tabs[0], other: tabs[1], deliver, settle };
}

function atOnce() {
  const { one, other, settle } = twoTabs();
  one.draw("You", line([0, 0], [1, 1]));
  settle();
  one.draw("You", line([0, 0]));
  other.draw("agent", line([0, 0], [2, 2], [3, 3]));
  settle();
  return [shown(one), shown(other)];
}

function whileOneChanges() {
  const { one, other, deliver, settle } = twoTabs();
  const { id } = one.draw("agent", line([0, 0]));
  deliver();
  for (let count = 2; count <= 60; count++) {
    one.redraw(id, line(...Array(count).fill([0, 0])));
    if (count === 20) other.draw("You", line([0, 0], [5, 5]));
    if (count % 2) deliver();
  }
  const during = shown(one);
  settle();
  return { during, one: shown(one), other: shown(other) };
}

function undone() {
  const { one, other, settle } = twoTabs();
  one.draw("You", line([0, 0]));
  settle();
  other.undo();
  other.draw("agent", line([0, 0], [1, 1]));
  settle();
  return [shown(one), shown(other)];
}

function manyTabs() {
  let version = new Drawing().version;
  for (let count = 0; count < 50; count++) {
    const tab = new Drawing();
    tab.load(copy(version));
    tab.draw("You", line([0, 0]));
    version = tab.version;
  }
  return { shapes: version.done.length, tabs: Object.keys(version.seen).length };
}

console.log(JSON.stringify({ atOnce: atOnce(), whileOneChanges: whileOneChanges(), undone: undone(), manyTabs: manyTabs() }));
