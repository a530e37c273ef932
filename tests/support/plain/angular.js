// An Angular application without a component: its platform and tools of its environment.
import "@angular/compiler";
import { createEnvironmentInjector, inject, InjectionToken, platformCore, provideExperimentalWebMcpTools } from "@angular/core";

const PRICES = new InjectionToken("prices");
const tool = {
  name: "angular_price",
  description: "What a thing costs.",
  inputSchema: { type: "object", properties: { thing: { type: "string" } }, required: ["thing"] },
  execute({ thing }, { signal, elicit }) {
    const price = inject(PRICES)[thing];
    if (price === undefined) throw new RangeError(`There is no price of ${thing}`);
    return { price, more: typeof elicit, isSignal: signal instanceof AbortSignal };
  },
};
const providers = [{ provide: PRICES, useValue: { pear: 4 } }, provideExperimentalWebMcpTools([tool])];
createEnvironmentInjector(providers, platformCore().injector);
