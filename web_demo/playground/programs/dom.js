/** The DOM: the program has a document, the output, and a tool changes what a person sees there. */

document.body.innerHTML = `
  <h1 id="title">Shopping list</h1>
  <ul id="items"></ul>
`;
const items = document.querySelector("#items");

offerTool({
  name: "add_item",
  description: "Add an item to the list that the person sees. Returns the whole list.",
  inputSchema: {
    type: "object",
    properties: { text: { type: "string", maxLength: 200, default: "Coffee" } },
    required: ["text"],
  },
  execute({ text }) {
    const item = document.createElement("li");
    item.textContent = text; // the text of a caller is never markup
    items.append(item);
    return { items: [...items.children].map((each) => each.textContent) };
  },
});
